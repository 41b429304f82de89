package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
)

// Write puts the content that make returns in place of the target's, and
// creates the target and the directories above it where they do not exist. It
// calls make once, with at most the first peek bytes of what is there, or nil
// where there is nothing. It reports whether the target existed.
func (t Target) Write(peek int, make func(before []byte) []byte) (existed bool, err error) {
	defer t.root.locks.hold(t.Path)()
	outer, done, err := t.enter()
	if err != nil {
		return false, err
	}
	defer done()
	before, mode, err := t.look(outer, int64(peek))
	existed = err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if !existed {
		if err := outer.MkdirAll(path.Dir(t.name()), 0o777); err != nil {
			return false, err
		}
	}
	return existed, put(outer, t.name(), make(before), mode)
}

// Replace puts after in place of the target's content if that is exactly
// before. Else it changes nothing and returns an ErrChanged, also if the
// target does not exist any more.
func (t Target) Replace(before, after []byte) error {
	defer t.root.locks.hold(t.Path)()
	outer, done, err := t.enter()
	if err != nil {
		return err
	}
	defer done()
	found, mode, err := t.look(outer, int64(len(before))+1)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(found, before) {
		return fmt.Errorf("replace %s: %w", t.Resource, ErrChanged)
	}
	if err != nil {
		return err
	}
	return put(outer, t.name(), after, mode)
}

// Remove removes the target, a file, and reports whether it existed.
func (t Target) Remove() (existed bool, err error) {
	defer t.root.locks.hold(t.Path)()
	outer, done, err := t.enter()
	if err != nil {
		return false, err
	}
	defer done()
	if _, _, err = t.look(outer, 0); err == nil {
		err = outer.Remove(t.name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// look returns the first bytes of a regular file and its mode. A file that may
// not be written is an error: to replace it would get round its mode.
func (t Target) look(outer *os.Root, limit int64) ([]byte, fs.FileMode, error) {
	info, err := outer.Stat(t.name())
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("open %s: %w: %s", t.Resource, ErrNotRegular, info.Mode().Type())
	}
	f, err := openRegular(outer, t.name(), os.O_RDWR)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	return data, info.Mode().Perm(), err
}

// put writes content beside a file and moves it into its place. Mode zero is
// that of a file that does not exist yet: the system's default.
func put(in *os.Root, name string, content []byte, mode fs.FileMode) error {
	beside, f, err := create(in, path.Dir(name))
	if err != nil {
		return err
	}
	err = fill(f, content, mode)
	if err == nil {
		err = in.Rename(beside, name)
	}
	if err != nil {
		_ = in.Remove(beside) // the first error is the one that tells
		return err
	}
	return syncDir(in, path.Dir(name))
}

func fill(f *os.File, content []byte, mode fs.FileMode) error {
	_, err := f.Write(content)
	if err == nil && mode != 0 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// create makes a file that did not exist.
func create(in *os.Root, dir string) (string, *os.File, error) {
	for n := 0; ; n++ {
		name := path.Join(dir, fmt.Sprintf(".ledger-write-%d", n))
		f, err := in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return name, f, err
		}
	}
}

// syncDir makes the entries of a directory durable, where the file system can.
func syncDir(in *os.Root, dir string) error {
	d, err := in.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// locks holds one lock for each path that is being written. The zero locks is
// ready for use.
type locks struct {
	mu struct {
		sync.Mutex
		held map[string]*lock
	}
}

type lock struct {
	sync.Mutex
	users int // who hold it or wait for it; guarded by locks.mu
}

// hold waits for the lock of a path and returns how to let go of it.
func (ls *locks) hold(path string) (release func()) {
	ls.mu.Lock()
	l := ls.mu.held[path]
	if l == nil {
		l = new(lock)
		if ls.mu.held == nil {
			ls.mu.held = map[string]*lock{}
		}
		ls.mu.held[path] = l
	}
	l.users++
	ls.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(ls.mu.held, path)
		}
	}
}
