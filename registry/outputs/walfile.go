package outputs

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// stretch is the step in which a log is filled with zeros.
const fillStep = 1 << 20

var zeros [64 << 10]byte

// filledLogs is a file system whose logs are logFiles.
type filledWALs struct{ vfs.FS }

func newFilledWALs(storage vfs.FS) vfs.FS { return filledWALs{storage} }

func (f filledWALs) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return asWAL(name)(f.FS.Create(name, c))
}

func (f filledWALs) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return asWAL(to)(f.FS.ReuseForWrite(from, to, c))
}

func (f filledWALs) Unwrap() vfs.FS { return f.FS }

// asLog returns a function that makes a logFile of a file that was opened, if its name
// is that of a log.
func asWAL(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil || pebblefiles.KindOf(name) != pebblefiles.Log {
			return file, err
		}
		return newWALFile(file), nil
	}
}

// A logFile is a log of the database in which there are bytes already where the
// next records go: a sync of what was written over waits for one write of the
// disk, and that of a file that grew for the journal of the file system as well.
// Pebble takes zeros for an end, and uses a log again when it can, so that most
// are filled once. The disk is told to begin writing before it is asked to be
// done.
type walFile struct {
	vfs.File
	end          int64 // of what is written
	writebackEnd int64 // the end of what the disk was told to write
	filled       int64 // the bytes that there are
}

// newLogFile returns a log of f, which is written from its beginning on.
func newWALFile(f vfs.File) *walFile {
	l := &walFile{File: f}
	if info, err := f.Stat(); err == nil {
		l.filled = info.Size()
	}
	return l
}

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

// fill sees to it that there are bytes up to end. A log that cannot be filled
// grows as it is written; whether that goes well, the write says.
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
