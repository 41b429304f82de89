package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// flatSize is how many bytes a flat file of events has. It is written over from
// the beginning when its end is reached.
const flatSize = 32 << 20

// A plainFile is a file of events. One that grows is a log as anyone writes it;
// one that is flat has all its bytes on the disk before and keeps nothing, and
// is the least that a disk takes.
type plainFile struct {
	file    *os.File
	at      int64
	size    int64         // of one that is flat; 0: it grows
	syncing time.Duration // in write since it was last asked for
}

// openGrowing opens a file that has no bytes.
func openGrowing(g *Ground) (*plainFile, error) {
	f, err := os.Create(filepath.Join(g.Dir, "events"))
	if err != nil {
		return nil, err
	}
	return &plainFile{file: f}, nil
}

// openFlat opens a file that has all its bytes on the disk and is written over.
func openFlat(g *Ground) (*plainFile, error) {
	f, err := os.Create(filepath.Join(g.Dir, "events"))
	if err != nil {
		return nil, err
	}
	p := &plainFile{file: f, size: max(g.Bytes(flatSize), 1<<20)}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < p.size && err == nil; at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros, at)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

// write puts bytes on the disk.
func (p *plainFile) write(b []byte) error {
	if p.size > 0 && p.at+int64(len(b)) > p.size {
		p.at = 0
	}
	begun := time.Now()
	n, err := p.file.WriteAt(b, p.at)
	if err == nil {
		err = syncData(p.file)
	}
	p.at += int64(n)
	p.syncing += time.Since(begun)
	return err
}

func (p *plainFile) takeSyncing() time.Duration {
	defer func() { p.syncing = 0 }()
	return p.syncing
}

// openPerEvent opens the floor of one writer: a write and an fdatasync for each
// event.
func openPerEvent(_ context.Context, g *Ground, _ int) (Appender, error) {
	f, err := openGrowing(g)
	if err != nil {
		return nil, err
	}
	return &perEvent{plainFile: f}, nil
}

type perEvent struct {
	sync.Mutex
	*plainFile
}

func (p *perEvent) Append(_ context.Context, _, _ int, event []byte) error {
	p.Lock()
	defer p.Unlock()
	return p.write(event)
}

func (p *perEvent) Close() error { return p.file.Close() }

// A Pending event waits for a Group to keep it.
type Pending struct {
	Writer, N int
	Event     []byte
}

// A Group makes of what many writers append at the same time one batch, by a
// goroutine of its own: group commit at its best, for floors and for peers that
// have none.
type Group struct {
	commit  func([]Pending) error
	wake    chan struct{}
	answers []chan error // one for each writer
	joined  sync.WaitGroup
	mu      struct {
		sync.Mutex
		waiting []Pending
	}
}

// NewGroup returns a Group of writers. Commit is called by one goroutine with
// all events that wait.
func NewGroup(writers int, commit func([]Pending) error) *Group {
	g := &Group{commit: commit, wake: make(chan struct{}, 1), answers: make([]chan error, writers)}
	for i := range g.answers {
		g.answers[i] = make(chan error, 1)
	}
	g.joined.Go(g.commitAll)
	return g
}

// Append hands an event to the committer and waits for its answer.
func (g *Group) Append(_ context.Context, writer, n int, event []byte) error {
	g.mu.Lock()
	g.mu.waiting = append(g.mu.waiting, Pending{writer, n, event})
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return <-g.answers[writer]
}

// Close ends the committer. Nobody appends any more.
func (g *Group) Close() error {
	close(g.wake)
	g.joined.Wait()
	return nil
}

func (g *Group) commitAll() {
	var batch []Pending
	for range g.wake {
		g.yield()
		g.mu.Lock()
		batch, g.mu.waiting = g.mu.waiting, batch[:0]
		g.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		err := g.commit(batch)
		for _, p := range batch {
			g.answers[p.Writer] <- err
		}
	}
}

// yield lets writers that the last group woke come along, for as long as more
// come.
func (g *Group) yield() {
	for seen := 0; ; {
		runtime.Gosched()
		g.mu.Lock()
		waiting := len(g.mu.waiting)
		g.mu.Unlock()
		if waiting == seen || waiting == len(g.answers) {
			return
		}
		seen = waiting
	}
}

// openGrouped returns what opens the floor of many writers: one write to a file
// and one fdatasync for all that wait.
func openGrouped(open func(*Ground) (*plainFile, error)) func(context.Context, *Ground, int) (Appender, error) {
	return func(_ context.Context, g *Ground, writers int) (Appender, error) {
		f, err := open(g)
		if err != nil {
			return nil, err
		}
		return newGrouped(f, writers), nil
	}
}

func newGrouped(f *plainFile, writers int) *grouped {
	var events []byte
	return &grouped{NewGroup(writers, func(batch []Pending) error {
		events = events[:0]
		for _, p := range batch {
			events = append(events, p.Event...)
		}
		return f.write(events)
	}), f}
}

type grouped struct {
	*Group
	file *plainFile
}

func (g *grouped) Close() error {
	return errors.Join(g.Group.Close(), g.file.file.Close())
}

func (g *grouped) takeSyncing() time.Duration { return g.file.takeSyncing() }
