//go:build unix

package pebblefiles

import "syscall"

// maxOpenTables returns the number of tables that a reader holds open at most: a quarter
// of the files that this process may open.
func maxOpenTables() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 64
	}
	return int(min(limit.Cur/4, 1<<20))
}
