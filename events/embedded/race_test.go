//go:build race

package embedded

// raceEnabled reports whether the race detector is on. Tests make fewer rounds with it.
const raceEnabled = true
