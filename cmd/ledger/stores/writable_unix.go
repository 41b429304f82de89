//go:build unix

package stores

import "golang.org/x/sys/unix"

// writable reports whether this process may make files in a folder. It is false on a
// read-only file system.
func writable(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }
