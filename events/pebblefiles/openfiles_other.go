//go:build !unix

package pebblefiles

// maxOpenTables returns the number of tables that a reader holds open at most.
func maxOpenTables() int { return 1 << 10 }
