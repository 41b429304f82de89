//go:build !linux

package pebblefiles

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A disk uses the locks of vfs.Default, which readers do not share.
type disk struct{ vfs.FS }

// Unwrap returns the file system below.
func (d disk) Unwrap() vfs.FS { return d.FS }

// lock locks a file for a writer.
func (d disk) lock(path string) (io.Closer, error) { return d.FS.Lock(path) }

// Users returns nil. This system does not show which processes have a file open.
func Users(string) []int { return nil }
