//go:build !unix

package pebblefiles

// maxHeld returns how many tables of one database a reader holds open.
func maxOpenTables() int { return 1 << 10 }
