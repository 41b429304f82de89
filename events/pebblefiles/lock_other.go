//go:build !linux

package pebblefiles

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A disk uses the locks of vfs.Default, which readers do not share.
type disk struct{ vfs.FS }

func (d disk) Unwrap() vfs.FS { return d.FS }

func (d disk) lock(path string) (io.Closer, error) { return d.FS.Lock(path) }

// Users returns the processes that have a file open. They are unknown on this system.
func Users(string) []int { return nil }
