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

// flatSize is the size of a flat file at scale 1, in bytes.
const flatSize = 32 << 20

// A plainFile is a file of events. A store is compared with it. A growing file is a log
// without an index. A flat file is allocated first and then overwritten in a circle, and
// keeps no history: a sync of it has no metadata to write, so it costs the least that a
// disk allows.
type plainFile struct {
	file    *os.File
	at      int64         // offset of the next write
	size    int64         // of a flat file; 0: the file grows
	syncing time.Duration // in writes and syncs since the last takeSyncing
}

// openGrowing creates an empty file that grows.
func openGrowing(g *Ground) (*plainFile, error) {
	f, err := os.Create(filepath.Join(g.Dir, "events"))
	if err != nil {
		return nil, err
	}
	return &plainFile{file: f}, nil
}

// openFlat creates a flat file, filled with zeros and synced.
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

// write writes b at the current offset and syncs the data.
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

// takeSyncing returns the time spent in writes and syncs since the previous call of
// takeSyncing.
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

// A perEvent is a plainFile as an Appender without group commit. The mutex guards
// the file.
type perEvent struct {
	sync.Mutex
	*plainFile
}

// Append writes and syncs one event.
func (p *perEvent) Append(_ context.Context, _, _ int, event []byte) error {
	p.Lock()
	defer p.Unlock()
	return p.write(event)
}

// Close closes the file.
func (p *perEvent) Close() error { return p.file.Close() }

// A PendingEvent is an event that waits for the committer of a GroupCommitter.
type PendingEvent struct {
	Writer, N int
	Event     []byte
}

// A GroupCommitter implements group commit: its committer goroutine commits all waiting
// events as one batch. The plain files that the store is compared with use it, and so do
// databases that have no group commit of their own.
type GroupCommitter struct {
	commit  func([]PendingEvent) error
	wake    chan struct{} // capacity 1: signals the committer that events wait
	answers []chan error  // one for each writer, capacity 1: the result of its append
	joined  sync.WaitGroup
	mu      struct {
		sync.Mutex
		waiting []PendingEvent // the next batch
	}
}

// NewGroupCommitter returns a GroupCommitter and starts its committer, which Close
// joins. The committer calls commit with all waiting events; commit must not retain the slice.
func NewGroupCommitter(writers int, commit func([]PendingEvent) error) *GroupCommitter {
	g := &GroupCommitter{commit: commit, wake: make(chan struct{}, 1), answers: make([]chan error, writers)}
	for i := range g.answers {
		g.answers[i] = make(chan error, 1)
	}
	g.joined.Go(g.commitAll)
	return g
}

// Append hands an event to the committer and waits for the result of its batch. It
// does not observe the context.
func (g *GroupCommitter) Append(_ context.Context, writer, n int, event []byte) error {
	g.mu.Lock()
	g.mu.waiting = append(g.mu.waiting, PendingEvent{writer, n, event})
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return <-g.answers[writer]
}

// Close stops the committer and joins it. It must not run concurrently with Append.
func (g *GroupCommitter) Close() error {
	close(g.wake)
	g.joined.Wait()
	return nil
}

// commitAll commits batches until g.wake is closed. New events are collected in the
// slice of the previous batch, so it does not allocate.
func (g *GroupCommitter) commitAll() {
	var batch []PendingEvent
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

// yield yields the processor while more events arrive, so that the writers that the
// last batch woke can join the next one.
func (g *GroupCommitter) yield() {
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

// openGrouped returns the open function of the floor of many writers: one write and
// one fdatasync for each batch of waiting events.
func openGrouped(open func(*Ground) (*plainFile, error)) func(context.Context, *Ground, int) (Appender, error) {
	return func(_ context.Context, g *Ground, writers int) (Appender, error) {
		f, err := open(g)
		if err != nil {
			return nil, err
		}
		return newGrouped(f, writers), nil
	}
}

// newGrouped returns a GroupCommitter that writes its batches to f and closes f at the
// end.
func newGrouped(f *plainFile, writers int) *grouped {
	var events []byte
	return &grouped{NewGroupCommitter(writers, func(batch []PendingEvent) error {
		events = events[:0]
		for _, p := range batch {
			events = append(events, p.Event...)
		}
		return f.write(events)
	}), f}
}

// A grouped is a plainFile as an Appender with group commit.
type grouped struct {
	*GroupCommitter
	file *plainFile
}

// Close stops the committer and closes the file.
func (g *grouped) Close() error {
	return errors.Join(g.GroupCommitter.Close(), g.file.file.Close())
}

// takeSyncing returns the time spent in writes and syncs since the previous call of
// takeSyncing.
func (g *grouped) takeSyncing() time.Duration { return g.file.takeSyncing() }
