//go:build !unix

package pebblefiles

// maxHeld returns how many tables of one database a reader holds open.
func maxHeld() int { return 1 << 10 }
