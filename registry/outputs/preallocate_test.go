package outputs

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A noPreallocFS is on disk, rejects preallocation, and reports no disk usage, like
// ramfs.
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

func (r noPreallocFS) GetDiskUsage(string) (vfs.DiskUsage, error) { return vfs.DiskUsage{}, nil }

type noPreallocFile struct {
	vfs.File
	refusal error
}

func (f noPreallocFile) Preallocate(int64, int64) error { return f.refusal }

// A store works without preallocation and without figures of free space.
func TestStoreNeedsNoPreallocation(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{syscall.EOPNOTSUPP, syscall.ENOSPC} {
		testKeepAndRead(t, t.TempDir(), noPreallocFS{vfs.Default, refusal})
	}
}

// A store works on a real file system without preallocation.
func TestStoreWorksOnAFileSystemWithoutPreallocation(t *testing.T) {
	t.Parallel()
	testKeepAndRead(t, mountRAMFS(t), nil)
}

func testKeepAndRead(t *testing.T, dir string, storage vfs.FS) {
	t.Helper()
	ref := refs(1)
	for round := range uint64(2) {
		s, err := Open(dir, Config{FS: storage})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{10, 20 * chunkSize} {
			content := random(size, round)
			r := ref()
			mustKeep(t, s, r, content)
			if !bytes.Equal(readAll(t, s, r), content) {
				t.Errorf("round %d: an output of %d bytes reads otherwise", round, size)
			}
		}
		if err := s.Compact(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
