package builtins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// errChangedSinceRead is the failure of a call that would change a file whose content
// differs from the version that the session read or wrote last.
var errChangedSinceRead = domain.Fail("File changed since it was last read in this session. Read it again before editing.")

// A fileVersions tracks for each session the version of every file that the session read
// or wrote last. A version is the digest of the content, or the size and time of a file
// over maxHashed; it is empty for a file that the session deleted. fileVersions is safe
// for concurrent use.
type fileVersions struct {
	load func(context.Context, domain.SessionID) (map[string]string, error) // Config.FileVersions
	mu   struct {
		sync.Mutex
		sessions map[domain.SessionID]*sessionFiles
		uses     uint64 // calls of acquire
	}
}

// newFileVersions returns a fileVersions that gets the versions of a session from load at
// the first use of the session. load may be nil.
func newFileVersions(load func(context.Context, domain.SessionID) (map[string]string, error)) *fileVersions {
	v := &fileVersions{load: load}
	v.mu.sessions = map[domain.SessionID]*sessionFiles{}
	return v
}

// A sessionFiles holds the versions of the files of one session. The call that acquired
// it owns it until release.
type sessionFiles struct {
	lock   chan struct{} // holds one value while a call owns the sessionFiles
	loaded bool
	files  map[string]trackedFile // by canonical path

	// The fields below are guarded by fileVersions.mu.
	users   int    // calls that own the sessionFiles or wait for it
	lastUse uint64 // fileVersions.uses at the last acquire
	owner   *fileVersions
}

// A trackedFile is a file in a sessionFiles.
type trackedFile struct {
	version string
	writes  int // changes by calls of the session in this process
}

// maxTrackedSessions is the maximum number of sessions in a fileVersions. A new session
// evicts the least recently used one without users. An evicted session is loaded again at
// its next use.
const maxTrackedSessions = 1024

// acquire waits until no other call of the session owns its files, loads the files at the
// first use of the session, and returns them. The caller calls release, and must not wait
// for a person before. acquire returns the cause of an ended context, or the error of the
// load.
func (v *fileVersions) acquire(ctx context.Context, session domain.SessionID) (*sessionFiles, error) {
	s := v.session(session)
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		s.leave()
		return nil, context.Cause(ctx)
	}
	if s.loaded {
		return s, nil
	}
	if v.load != nil {
		known, err := v.load(ctx, session)
		if err != nil {
			s.release()
			return nil, fmt.Errorf("load the file versions of session %s: %w", session, err)
		}
		for path, version := range known {
			s.files[path] = trackedFile{version: version}
		}
	}
	s.loaded = true
	return s, nil
}

// session returns the sessionFiles of a session and counts the caller as a user.
func (v *fileVersions) session(id domain.SessionID) *sessionFiles {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.mu.sessions[id]
	if s == nil {
		if len(v.mu.sessions) >= maxTrackedSessions {
			v.evictLocked()
		}
		s = &sessionFiles{lock: make(chan struct{}, 1), files: map[string]trackedFile{}, owner: v}
		v.mu.sessions[id] = s
	}
	v.mu.uses++
	s.users++
	s.lastUse = v.mu.uses
	return s
}

// evictLocked removes the session without users that was used the longest time ago. The
// caller holds v.mu.
func (v *fileVersions) evictLocked() {
	var oldest domain.SessionID
	found := false
	for id, s := range v.mu.sessions {
		if s.users == 0 && (!found || s.lastUse < v.mu.sessions[oldest].lastUse) {
			oldest, found = id, true
		}
	}
	if found {
		delete(v.mu.sessions, oldest)
	}
}

// release ends the ownership of the caller.
func (s *sessionFiles) release() {
	<-s.lock
	s.leave()
}

// leave removes the caller from the users of the session.
func (s *sessionFiles) leave() {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.users--
}

// checkUnchanged returns errChangedSinceRead if the version that the session knows for an
// existing file differs from version, the present one. A file that the session never read
// or wrote counts as unchanged.
func (s *sessionFiles) checkUnchanged(path, version string) error {
	if known, ok := s.files[path]; ok && known.version != version {
		return errChangedSinceRead
	}
	return nil
}

// recordWrite stores the version of a file that a call of the session wrote. The version
// of a deleted file is empty.
func (s *sessionFiles) recordWrite(a domain.FileAccess) {
	s.files[a.Path] = trackedFile{a.Version, s.files[a.Path].writes + 1}
}

// writes returns how often calls of the session changed a file in this process.
func (s *sessionFiles) writes(path string) int { return s.files[path].writes }

// recordRead stores the version of the content that a read returned. before is the result
// of writes at the beginning of the read. If a call of the session has changed the file
// since, recordRead stores nothing, because the known version is newer.
func (s *sessionFiles) recordRead(path, version string, before int) {
	if s.files[path].writes == before {
		s.files[path] = trackedFile{version, before}
	}
}

// maxHashed is the maximum size of a file whose version is the digest of its content, in
// bytes. No tool writes a larger content, because the input of a call is one record.
const maxHashed = 64 << 20

// contentVersion returns the version of a file with this content. A content over maxHashed
// gets a version that no file has, so that the file must be read before it is changed.
func contentVersion(content []byte) string {
	if len(content) > maxHashed {
		return "unknown"
	}
	sum := sha256.Sum256(content)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// digestPrefix begins a version that is a digest.
const digestPrefix = "sha256:"

// A versionReader computes the version of a file while a call reads the file from its
// beginning.
type versionReader struct {
	from io.Reader
	info fs.FileInfo // before the first read
	sum  hash.Hash   // of the bytes read
	read int64       // bytes read
}

// newVersionReader returns a versionReader for the file f, whose bytes it reads from the
// reader from. f must be at its beginning.
func newVersionReader(f *os.File, from io.Reader) (*versionReader, error) {
	info, err := f.Stat()
	return &versionReader{from: from, info: info, sum: sha256.New()}, err
}

// Read reads from the file.
func (r *versionReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.hashed() {
		r.sum.Write(p[:n])
	}
	r.read += int64(n)
	return n, err
}

// hashed reports whether the version is a digest of the content.
func (r *versionReader) hashed() bool { return max(r.info.Size(), r.read) <= maxHashed }

// version reads the rest of the file, if the version is a digest, and returns the
// version. It returns the error of reading.
func (r *versionReader) version() (string, error) {
	if r.hashed() {
		if _, err := io.Copy(io.Discard, io.LimitReader(r, maxHashed+1-r.read)); err != nil {
			return "", err
		}
	}
	if !r.hashed() {
		return fmt.Sprintf("stat:%d:%d", r.info.Size(), r.info.ModTime().UnixNano()), nil
	}
	return digestPrefix + hex.EncodeToString(r.sum.Sum(nil)), nil
}
