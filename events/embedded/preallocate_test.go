package embedded

import (
	"errors"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
)

// A noPreallocFS is on the disk and refuses to reserve space, as ext2,
// ramfs and NFS before 4.2 do, and as a nearly full disk does.
type noPreallocFS struct {
	vfs.FS
	refusal error
}

func (r noPreallocFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return noPreallocFile{file, r.refusal}, nil
}

func (r noPreallocFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return r.wrap(r.FS.Create(name, c))
}

func (r noPreallocFS) ReuseForWrite(from, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return r.wrap(r.FS.ReuseForWrite(from, name, c))
}

type noPreallocFile struct {
	vfs.File
	refusal error
}

func (f noPreallocFile) Preallocate(int64, int64) error { return f.refusal }

// A store works on a file system that refuses to reserve space.
func TestStoreNeedsNoPreallocation(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{syscall.EOPNOTSUPP, syscall.ENOSPC} {
		writesAndReads(t, t.TempDir(), noPreallocFS{vfs.Default, refusal})
	}
}

// A store works on a real file system that cannot reserve space.
func TestStoreWorksOnAFileSystemWithoutPreallocation(t *testing.T) {
	t.Parallel()
	writesAndReads(t, mountRAM(t), nil)
}

func writesAndReads(t *testing.T, dir string, storage vfs.FS) {
	t.Helper()
	for round := range 2 {
		s, err := Open(t.Context(), dir, Config{FS: storage})
		must(t, err)
		must(t, s.Append(t.Context(), "s-1", events.Revision(round*10), newRecordWriter(byte(round)).records(10, 1000)...))
		must(t, s.Compact(t.Context()))
		if got := len(all(t, s)); got != 10*(round+1) {
			t.Errorf("round %d: %d records are there, want %d", round, got, 10*(round+1))
		}
		if err := errors.Join(s.failStop.Err(), s.Close()); err != nil {
			t.Error(err)
		}
	}
}
