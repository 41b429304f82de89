//go:build unix

package conns

import (
	"math"
	"syscall"
)

// openFiles returns the number of files that this process may have open: its
// resource limit.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return reservedFiles
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
