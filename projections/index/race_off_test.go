//go:build !race

package index

// raceEnabled reports that the race detector is on.
const raceEnabled = false
