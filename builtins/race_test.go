//go:build race

package builtins

// raceEnabled reports whether the race detector is on. Tests use smaller files
// with it.
const raceEnabled = true
