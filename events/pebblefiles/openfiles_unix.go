//go:build unix

package pebblefiles

import "syscall"

// maxHeld returns how many tables of one database a reader holds open: a quarter
// of the files that this process may have open.
func maxOpenTables() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 64
	}
	return int(min(limit.Cur/4, 1<<20))
}
