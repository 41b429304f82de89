package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/integrity"
	"github.com/settlement-ledger/ledger/events/pebblefiles/filestest"
)

// A failingDisk is a file system that refuses operations, as a full disk does, or a
// process without free file descriptors.
type failingDisk struct {
	vfs.FS
	mu struct {
		sync.Mutex
		refusal func(op, name string) error // nil: there is room
		before  func(op string)             // is called before each operation; nil: nothing is
	}
}

func (d *failingDisk) set(refusal func(op, name string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.refusal = refusal
}

// full refuses every creation and every write with ENOSPC.
func full(string, string) error { return syscall.ENOSPC }

// filesOut refuses to open files.
func filesOut(op, _ string) error {
	if op == "create" || op == "open" {
		return syscall.EMFILE
	}
	return nil
}

func (d *failingDisk) refuse(op, name string) error {
	d.mu.Lock()
	refusal, before := d.mu.refusal, d.mu.before
	d.mu.Unlock()
	if before != nil {
		before(op)
	}
	if refusal == nil || op == "sync" && refusal("", name) == syscall.ENOSPC {
		return nil
	}
	return refusal(op, name)
}

func (d *failingDisk) wrap(op, name string, open func() (vfs.File, error)) (vfs.File, error) {
	if err := d.refuse(op, name); err != nil {
		return nil, err
	}
	file, err := open()
	if err != nil {
		return nil, err
	}
	return failingFile{file, d, name}, nil
}

func (d *failingDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap("create", name, func() (vfs.File, error) { return d.FS.Create(name, c) })
}

func (d *failingDisk) ReuseForWrite(from, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap("create", name, func() (vfs.File, error) { return d.FS.ReuseForWrite(from, name, c) })
}

func (d *failingDisk) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return d.wrap("open", name, func() (vfs.File, error) { return d.FS.Open(name, o...) })
}

func (d *failingDisk) Rename(from, name string) error {
	if err := d.refuse("rename", name); err != nil {
		return err
	}
	return d.FS.Rename(from, name)
}

type failingFile struct {
	vfs.File
	failingDisk *failingDisk
	name        string
}

func (f failingFile) Write(p []byte) (int, error) {
	if err := f.failingDisk.refuse("write", f.name); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f failingFile) sync(do func() error) error {
	if err := f.failingDisk.refuse("sync", f.name); err != nil {
		return err
	}
	return do()
}

func (f failingFile) Sync() error     { return f.sync(f.File.Sync) }
func (f failingFile) SyncData() error { return f.sync(f.File.SyncData) }

// appendUntilResumed repeats an append until it succeeds.
func appendUntilResumed(t *testing.T, s *Store, a attempt) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := s.Append(t.Context(), a.stream, a.after, a.records...)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrPaused) || time.Now().After(deadline) {
			t.Fatalf("append to a store that is to go on: %v", err)
		}
	}
}

// A store on a full disk, or without free file descriptors, serves reads and
// followers, refuses appends, and resumes by itself when the condition ends.
func TestPausedStoreGoesOn(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]func(op, name string) error{"a full disk": full, "no more files": filesOut} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := &failingDisk{FS: vfs.NewMem()}
			s, err := Open(t.Context(), "store", Config{FS: disk})
			must(t, err)
			attempts := []attempt{}
			for i := range 3 {
				attempts = append(attempts, attempt{stream: "s-1", after: events.Revision(i), records: newRecordWriter(byte(i)).records(1, 100)})
			}
			appendUntilResumed(t, s, attempts[0])
			followed := make(chan domain.EventID, 3)
			recoverPanic := make(chan struct{}, 3)
			ended := make(chan error, 1)
			go func() {
				for e, err := range s.Follow(t.Context(), events.Position{}, events.Following{CaughtUp: func(events.Position) { recoverPanic <- struct{}{} }}) {
					if err != nil {
						ended <- err
						return
					}
					followed <- e.ID
				}
			}()
			<-recoverPanic
			disk.set(refusal)
			// The logs that are there are written to where files cannot be opened.
			err = s.Append(t.Context(), "s-1", 1, attempts[1].records...)
			for i := 0; err == nil && i < 3; i++ {
				must(t, s.use(func() error { return s.rotate() }))
				err = s.Append(t.Context(), "s-1", 2, attempts[2].records...)
			}
			if !errors.Is(err, ErrPaused) {
				t.Fatalf("an append meanwhile: %v, want %v", err, ErrPaused)
			}
			if err := s.SaveCheckpoint(t.Context(), "c", []byte("{}")); !errors.Is(err, ErrPaused) {
				t.Errorf("a checkpoint meanwhile: %v, want %v", err, ErrPaused)
			}
			if got := all(t, s); len(got) == 0 || got[0].ID != attempts[0].records[0].ID || s.Stats().Failure == nil {
				t.Errorf("the store has %d records and the failure %v, want what it had and why it paused", len(got), s.Stats().Failure)
			}
			disk.set(nil)
			appendUntilResumed(t, s, attempts[1])
			appendUntilResumed(t, s, attempts[2])
			for _, a := range attempts {
				select {
				case id := <-followed:
					if id != a.records[0].ID {
						t.Errorf("a follower was given %s, want %s", id, a.records[0].ID)
					}
				case err := <-ended:
					t.Fatalf("a follower ended: %v", err)
				}
			}
			must(t, s.SaveCheckpoint(t.Context(), "c", []byte("{}")))
			must(t, s.Compact(t.Context()))
			if v := s.Stats(); v.Failure != nil {
				t.Errorf("the store goes on and has the failure %v", v.Failure)
			}
			must(t, s.Close())
			if err := <-ended; !errors.Is(err, events.ErrClosed) {
				t.Errorf("a follower of a store that closes: %v", err)
			}
			s, err = Open(t.Context(), "store", Config{FS: disk})
			must(t, err)
			if got := len(all(t, s)); got != 3 {
				t.Errorf("%d records are there, want 3", got)
			}
			must(t, s.Close())
		})
	}
}

// rotate makes Pebble start another log.
func (s *Store) rotate() error { _, err := s.db.AsyncFlush(); return err }

// A store whose sync failed never resumes, even if a write had failed before.
func TestStoreDoesNotGoOnAfterAFailedSync(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		disk := &failingDisk{FS: vfs.NewMem()}
		s, err := Open(t.Context(), "store", Config{FS: disk})
		must(t, err)
		ended := make(chan error, 1)
		recoverPanic := make(chan struct{}, 3)
		go func() {
			for _, err := range s.Follow(t.Context(), events.Position{}, events.Following{CaughtUp: func(events.Position) { recoverPanic <- struct{}{} }}) {
				ended <- err
			}
		}()
		<-recoverPanic
		disk.set(func(op, name string) error {
			if op == "sync" && strings.HasSuffix(name, ".log") {
				return cause
			}
			return nil
		})
		if err := s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 100)...); !errors.Is(err, errStopped) {
			t.Errorf("append with a sync that fails: %v, want %v", err, errStopped)
		}
		disk.set(nil)
		if err := <-ended; !errors.Is(err, errStopped) {
			t.Errorf("a follower of a store that stopped: %v, want %v", err, errStopped)
		}
		s.failStop.Pause(fmt.Errorf("write: %w", syscall.ENOSPC))
		if err := s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 100)...); !errors.Is(err, errStopped) {
			t.Errorf("append to a store that stopped: %v, want %v", err, errStopped)
		}
		must(t, s.Close())
	}
}

// A paused store closes, and opens again.
func TestPausedStoreCloses(t *testing.T) {
	t.Parallel()
	disk := &failingDisk{FS: vfs.NewMem()}
	s, err := Open(t.Context(), "store", Config{FS: disk})
	must(t, err)
	a := attempt{stream: "s-1", records: newRecordWriter(1).records(1, 100)}
	disk.set(full)
	if err := s.Append(t.Context(), a.stream, a.after, a.records...); !errors.Is(err, ErrPaused) {
		t.Fatalf("an append to a full disk: %v, want %v", err, ErrPaused)
	}
	must(t, s.Close())
	disk.set(nil)
	s, err = Open(t.Context(), "store", Config{FS: disk})
	must(t, err)
	appendUntilResumed(t, s, a)
	must(t, s.Close())
}

// The disk is full at random operations of random histories of several writers, and
// the power is cut before some of them. After each opening every acknowledged append
// is there, no append is there in part, and in the end each is there once.
func TestFullDisksLoseNothing(t *testing.T) {
	t.Parallel()
	paused := 0
	for seed := range uint64(repeats(2, 300)) {
		paused += fills(t, seed)
		if t.Failed() {
			return
		}
	}
	if paused == 0 {
		t.Error("no store was paused")
	}
}

// fills runs one history, and returns the number of appends that found the store
// paused.
func fills(t *testing.T, seed uint64) (paused int) {
	t.Helper()
	memory := vfs.NewCrashableMem()
	disk := &failingDisk{FS: memory}
	model := newPromises()
	cutter := newPowerCutter(memory, rand.New(rand.NewPCG(seed, 9)), 20, model)
	s, err := Open(t.Context(), "store", Config{FS: cutter.Wrap(disk)})
	must(t, err)
	disk.mu.Lock()
	rng, left := rand.New(rand.NewPCG(seed, 10)), 0
	disk.mu.before = func(string) {
		disk.mu.Lock()
		defer disk.mu.Unlock()
		switch left--; {
		case left > 0:
		case disk.mu.refusal != nil:
			disk.mu.refusal, left = nil, 60+rng.IntN(200)
		case rng.IntN(2) == 0:
			disk.mu.refusal, left = full, 1+rng.IntN(8)
		default:
			disk.mu.refusal, left = filesOut, 1+rng.IntN(8)
		}
	}
	disk.mu.Unlock()
	var writing sync.WaitGroup
	var counting sync.Mutex
	for w := range 3 {
		p := newRecordWriter(byte(seed*3 + uint64(w)))
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		writing.Go(func() {
			stream, length := events.Stream(fmt.Sprintf("s-%d0", w)), events.Revision(0)
			for i := range 10 {
				a := attempt{stream: stream, after: length, records: p.records(1+rng.IntN(4), rng.IntN(300))}
				model.begin(a)
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
					err := s.Append(t.Context(), a.stream, a.after, a.records...)
					if err == nil {
						break
					}
					// One that only lacks a table to read from fails before it writes.
					again := errors.Is(err, ErrPaused) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE)
					if !again || time.Now().After(deadline) {
						t.Errorf("seed %d: append: %v", seed, err)
						return
					}
					counting.Lock()
					paused++
					counting.Unlock()
				}
				model.acknowledge(a)
				length += events.Revision(len(a.records))
				if i%4 == 3 {
					_ = s.use(s.rotate) // it may be paused
				}
			}
		})
	}
	writing.Wait()
	disk.mu.Lock()
	disk.mu.refusal, disk.mu.before = nil, nil
	disk.mu.Unlock()
	log := all(t, s)
	total := 0
	for _, a := range model.attempts {
		total += len(a.records)
	}
	if len(log) != total {
		t.Errorf("seed %d: %d records are there, want %d", seed, len(log), total)
	}
	must(t, s.Close())
	cutter.Check(t, fmt.Sprintf("seed %d", seed), func(c filestest.Cut[promised]) {
		survives(t, c, model.attempts, log, Sync(), false)
	})
	return paused
}

// A store resumes after a real disk was full, more than once.
func TestStoreGoesOnAfterADiskWasFull(t *testing.T) {
	t.Parallel()
	dir := mountSmall(t)
	s, err := Open(t.Context(), filepath.Join(dir, "store"), Config{})
	must(t, err)
	p, after := newRecordWriter(1), events.Revision(0)
	for range repeats(2, 3) {
		filler := filepath.Join(dir, "filler")
		file, err := os.Create(filler)
		must(t, err)
		for _, size := range []int{1 << 20, 1 << 12} {
			for err = nil; err == nil; {
				_, err = file.Write(make([]byte, size))
			}
		}
		if err := errors.Join(err, file.Close()); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		var a attempt
		err = nil
		for i := 0; !errors.Is(err, ErrPaused); i++ {
			a = attempt{stream: "s-1", after: after, records: p.records(2, 300_000)}
			if err = s.Append(t.Context(), a.stream, a.after, a.records...); err == nil {
				after += 2
			} else if !errors.Is(err, ErrPaused) || i == 200 {
				t.Fatalf("append %d to a full disk: %v, want %v", i, err, ErrPaused)
			}
		}
		must(t, os.Remove(filler))
		appendUntilResumed(t, s, a)
		after += 2
	}
	if got := len(all(t, s)); got != int(after) {
		t.Errorf("%d records are there, want %d", got, after)
	}
	must(t, s.Close())
	if _, err := integrity.Check(t.Context(), filepath.Join(dir, "store"), func(f integrity.Finding) { t.Error(f) }, integrity.Options{}); err != nil {
		t.Error(err)
	}
}
