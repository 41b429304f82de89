//go:build !linux

package pebblefiles

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Locks are those of vfs.Default, which belong to a writer alone.
type disk struct{ vfs.FS }

func (d disk) Unwrap() vfs.FS { return d.FS }

func (d disk) lock(path string) (io.Closer, error) { return d.FS.Lock(path) }

// Users returns the other processes that have a file open, as far as this one may
// know: none of them here.
func Users(string) []int { return nil }
