//go:build !unix

package pebblefiles

// maxOpenTables returns the maximum number of tables that a reader holds open: 1024,
// because the limit of this system is not known.
func maxOpenTables() int { return 1 << 10 }
