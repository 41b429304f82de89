package filestest

import (
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A LyingSyncFS is a file system that ignores random syncs of logs and reports success,
// as a disk does that acknowledges data in its volatile cache. A power cut then loses
// logs that the store believes to be durable. It is safe for concurrent use.
type LyingSyncFS struct {
	vfs.FS
	oneIn int
	mu    struct {
		sync.Mutex
		rng *rand.Rand
	}
}

// NewLyingSyncFS returns a file system over fs that ignores syncs of logs at random. The
// argument oneIn is the average number of syncs for each ignored one. If oneIn is 1, the
// file system ignores every sync, and rng may be nil.
func NewLyingSyncFS(fs vfs.FS, rng *rand.Rand, oneIn int) *LyingSyncFS {
	s := &LyingSyncFS{FS: fs, oneIn: oneIn}
	s.mu.rng = rng
	return s
}

// lie reports whether the file system ignores a sync.
func (s *LyingSyncFS) lie() bool {
	if s.oneIn == 1 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.rng.IntN(s.oneIn) == 0
}

// wrap returns a file that ignores syncs if it is a log.
func (s *LyingSyncFS) wrap(file vfs.File, name string, err error) (vfs.File, error) {
	if err == nil && strings.HasSuffix(name, ".log") {
		return lyingSyncFile{file, s}, nil
	}
	return file, err
}

// Create creates a file.
func (s *LyingSyncFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := s.FS.Create(name, category)
	return s.wrap(file, name, err)
}

// ReuseForWrite renames a file and opens it for writing.
func (s *LyingSyncFS) ReuseForWrite(from, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := s.FS.ReuseForWrite(from, name, category)
	return s.wrap(file, name, err)
}

// A lyingSyncFile is a log of a LyingSyncFS.
type lyingSyncFile struct {
	vfs.File
	fs *LyingSyncFS
}

// Sync syncs the file or ignores the call.
func (f lyingSyncFile) Sync() error {
	if f.fs.lie() {
		return nil
	}
	return f.File.Sync()
}

// SyncData syncs the file or ignores the call.
func (f lyingSyncFile) SyncData() error {
	if f.fs.lie() {
		return nil
	}
	return f.File.SyncData()
}
