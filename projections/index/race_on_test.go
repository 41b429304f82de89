//go:build race

package index

// raceEnabled reports that the race detector is on. It makes SQLite, which is Go code
// translated from C, about fifteen times as slow, so the tests use short histories.
const raceEnabled = true
