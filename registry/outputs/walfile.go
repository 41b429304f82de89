package outputs

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// fillStep is the number of bytes by which a WAL file is filled with zeros in advance.
const fillStep = 1 << 20

// zeros is a source of zero bytes; it is never changed.
var zeros [64 << 10]byte

// A filledWALs is a file system that opens WAL files as walFiles, and all other files
// unchanged.
type filledWALs struct{ vfs.FS }

// newFilledWALs returns a filledWALs over storage.
func newFilledWALs(storage vfs.FS) vfs.FS { return filledWALs{storage} }

// Create creates a file.
func (f filledWALs) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return asWAL(name)(f.FS.Create(name, c))
}

// ReuseForWrite renames a file and opens it for writing.
func (f filledWALs) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return asWAL(to)(f.FS.ReuseForWrite(from, to, c))
}

// Unwrap returns the file system below.
func (f filledWALs) Unwrap() vfs.FS { return f.FS }

// asWAL returns a function that wraps a newly opened file in a walFile if its name is
// that of a WAL.
func asWAL(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil || pebblefiles.KindOf(name) != pebblefiles.Log {
			return file, err
		}
		return newWALFile(file), nil
	}
}

// A walFile is a WAL file that is filled with zeros ahead of the next records. A sync
// after overwriting allocated blocks costs one disk write; a sync of a growing file
// also waits for the journal of the file system. Pebble takes zeros for the end of
// the WAL. It recycles WAL files, so most of them are filled once. Every writeOut
// bytes the walFile starts writeback, so that a later sync has less to write.
type walFile struct {
	vfs.File
	end          int64 // end of the written records, in bytes
	writebackEnd int64 // end of the bytes whose writeback has started
	filled       int64 // size of the file
}

// newWALFile returns a walFile over f. Pebble writes the file from its beginning,
// also a recycled one.
func newWALFile(f vfs.File) *walFile {
	l := &walFile{File: f}
	if info, err := f.Stat(); err == nil {
		l.filled = info.Size()
	}
	return l
}

// Write appends p to the records. If starting the writeback fails, it returns a
// pebblefiles.ErrSyncFailed: the error may be the result of an earlier write, so the
// fail-stop file system must treat it like a failed sync.
func (l *walFile) Write(p []byte) (int, error) {
	l.fill(l.end + int64(len(p)))
	n, err := l.File.Write(p)
	l.end += int64(n)
	if err == nil && l.end-l.writebackEnd >= writeOut {
		l.writebackEnd = l.end
		if _, err = l.SyncTo(l.end); err != nil {
			err = fmt.Errorf("%w: %w", pebblefiles.ErrSyncFailed, err)
		}
	}
	return n, err
}

// fill writes zeros into the file up to the offset end, rounded up to fillStep. If
// writing them fails, fill does not try again: the file grows as it is written, and the
// write of a record reports a full disk.
func (l *walFile) fill(end int64) {
	if end <= l.filled {
		return
	}
	for until := (end + fillStep - 1) / fillStep * fillStep; l.filled < until; {
		n, err := l.WriteAt(zeros[:min(int64(len(zeros)), until-l.filled)], l.filled)
		l.filled += int64(n)
		if err != nil {
			l.filled = math.MaxInt64
		}
	}
}
