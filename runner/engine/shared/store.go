package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// DefaultPatience is how long a holder that does not answer is waited for. It is
// shorter than runner.DefaultLease, so that the error names the holder before the
// lease of this process runs out.
const DefaultTimeout = 20 * time.Second

// A Config says how a process opens a folder that it shares.
type Config struct {
	// Command names this process to the others, as in "ledger run".
	Command string
	// Process is the ID under which this process is on record or will be. Zero: it
	// is not on record. Endpoints name it, so that the next holder knows at once
	// that this process is dead if it is killed while it holds the folder.
	Process domain.ProcessID
	// Patience is how long a holder that does not answer is waited for. 0:
	// DefaultPatience.
	Timeout time.Duration
	// Waiting is called, on a goroutine of the Store, once for each time that a holder
	// has not answered for some seconds while an operation waits for it. Nil: nothing
	// is called.
	Waiting func(LockWait)
	// TookOver is called, on a goroutine of its own which Close joins, when this
	// process has taken the folder over from another one and serves it. Its context
	// ends with the Store. Nil: nothing is called.
	TookOver func(ctx context.Context)
	// ReadOnly opens the folder for a process that only reads, where no process
	// serves it. It returns an events.ErrInUse if a process has begun to hold the
	// folder. Nil: this process writes, and holds the folder if no other does.
	ReadOnly func(context.Context) (Backend, error)
	// Logger gets the warnings of the log and of the outputs. Nil: they are discarded.
	Logger *slog.Logger
}

// A Store is an events.Scanner in a folder that several processes share, with its
// outputs and checkpoints. It is open in this process or reached through the
// process that holds the folder, and outlives that one. Open makes one. It is safe
// for concurrent use.
type Store struct {
	cfg     Config
	dir     string
	life    context.Context // ends with events.ErrClosed
	end     context.CancelCauseFunc
	running sync.WaitGroup // of goroutines; added to under mu
	mu      struct {
		sync.Mutex
		closed  bool
		yielded time.Time // when this process gave the folder up to one that asked for it
		current *backend
		search  *backendSearch // nil: none is under way
	}
}

// A search for the next backend is shared by all operations that wait for one.
type backendSearch struct {
	done chan struct{}
	err  error // set before done is closed
}

// Open opens the store in a folder. If no process holds the folder this one does,
// unless it only reads; it makes the folder if there is none, and serves it to the
// others until Close. Otherwise it connects to the holder. The caller closes the
// Store.
//
// Besides the errors of [embedded.Open] and [engine.OpenOutputs], Open returns an
// events.ErrInUse that names the process if that does not share the folder or is on
// another machine, and a [Silent] if it does not answer.
func Open(ctx context.Context, dir string, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, dir: dir}
	s.life, s.end = context.WithCancelCause(context.Background())
	b, err := s.findBackend(ctx, true)
	if err != nil {
		s.end(events.ErrClosed)
		return nil, err
	}
	s.setCurrent(b)
	return s, nil
}

func (s *Store) timeout() time.Duration { return cmp.Or(s.cfg.Timeout, DefaultTimeout) }

func (s *Store) process() domain.ProcessID { return s.cfg.Process }

func (s *Store) waiting(w LockWait) {
	if s.cfg.Waiting != nil {
		s.cfg.Waiting(w)
	}
}

// use makes a backend the current one. A process that writes looks for the next one
// as soon as it is gone, so that the others need not wait until this one has
// something to do.
func (s *Store) setCurrent(b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.current = b
	if s.cfg.ReadOnly != nil || s.mu.closed {
		return
	}
	s.running.Go(func() {
		<-b.gone.Done()
		_, _ = s.backend(s.life) // operations get the error
	})
}

// backend returns the current backend, and waits for one where that is gone.
func (s *Store) backend(ctx context.Context) (*backend, error) {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil, events.ErrClosed
	}
	if b := s.mu.current; b.gone.Err() == nil {
		s.mu.Unlock()
		return b, nil
	}
	found := s.mu.search
	if found == nil {
		found = &backendSearch{done: make(chan struct{})}
		s.mu.search = found
		s.running.Go(func() { s.replace(found) })
	}
	s.mu.Unlock()
	select {
	case <-found.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if found.err != nil {
		return nil, found.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, events.ErrClosed
	}
	return s.mu.current, nil
}

// replace looks for the backend that follows the current one.
func (s *Store) replace(found *backendSearch) {
	s.mu.Lock()
	old := s.mu.current
	s.mu.Unlock()
	s.running.Go(func() { _ = old.close(s.life) }) // no operation uses it any more
	next, err := s.findBackend(s.life, false)
	if err == nil {
		s.setCurrent(next)
		if next.owned != nil && s.cfg.TookOver != nil {
			s.goUnlessClosed(func() { s.cfg.TookOver(s.life) })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found.err = err
	if s.mu.closed && err != nil {
		found.err = events.ErrClosed
	}
	s.mu.search = nil
	close(found.done)
}

// begin starts a goroutine unless the store is closed.
func (s *Store) goUnlessClosed(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		s.running.Go(do)
	}
}

// The pauses between two looks at a folder that another process has.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
	// aloneTime is how long a process that does not share the folder may have it
	// before Open fails: short work, such as a check, is waited for.
	exclusiveWait = time.Second
	// findTold is how long find tries before it calls Config.Waiting.
	noticeAfter = 2 * time.Second
)

// find returns a backend: the folder, held by this process, or a connection to the
// process that holds it. It waits for one that begins to serve, or ends.
func (s *Store) findBackend(ctx context.Context, first bool) (*backend, error) {
	began, notified := time.Now(), false
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		b, alone, err := s.tryBackend(ctx)
		if err == nil || ctx.Err() != nil || !inUse(err) && !errors.Is(err, ErrNoResponse) {
			return b, err
		}
		wait, since := currentWait(s.dir), time.Since(began)
		switch {
		case errors.Is(err, errOtherHost), alone && first && since > exclusiveWait:
			return nil, err
		case since > s.timeout():
			return nil, &UnresponsiveError{wait, err}
		case !notified && since > noticeAfter:
			notified = true
			s.waiting(wait)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// errOtherHost says that the process that holds a folder is on another machine,
// which has the folder by a network.
var errOtherHost = errors.New("the process is on another machine: run this there, or serve the folder to other machines with ledger serve")

func inUse(err error) bool {
	return errors.Is(err, events.ErrInUse) || errors.Is(err, outputs.ErrInUse)
}

// try makes one attempt at a backend. It also reports whether the folder is held by
// a process that does not share it. An events.ErrInUse or an ErrAway says that another
// attempt may succeed.
func (s *Store) tryBackend(ctx context.Context) (b *backend, alone bool, err error) {
	// The lock decides, and not what a file says: a copy of a folder has the files of
	// the process that held the original, and a process that was killed leaves its own.
	err = events.ErrInUse
	switch {
	case s.cfg.ReadOnly != nil:
		b, err = s.readOnly(ctx)
	case !s.yields():
		b, err = s.acquire(ctx)
	}
	if !inUse(err) {
		return b, false, err
	}
	owner, known := readOwner(s.dir)
	at, failed := ReadEndpoint(s.dir)
	switch {
	case errors.Is(failed, fs.ErrPermission):
		return nil, true, fmt.Errorf("open %s: %w by %s, which serves it to its own user alone: %w", s.dir, events.ErrInUse, describe(owner), failed)
	case failed != nil || !known || !at.of(owner):
		return nil, known && !owner.Shares, err
	}
	b, connecting := s.connect(ctx, at)
	host, _ := os.Hostname()
	switch {
	case connecting == nil:
		return b, false, nil
	case at.Host != host:
		return nil, false, fmt.Errorf("open %s: %w by %s: %w", s.dir, events.ErrInUse, at, errOtherHost)
	}
	return nil, false, errors.Join(err, connecting)
}

// readOnly opens the folder for a process that only reads.
func (s *Store) readOnly(ctx context.Context) (*backend, error) {
	opened, err := s.cfg.ReadOnly(ctx)
	if err != nil {
		return nil, err
	}
	return s.newBackend(opened), nil
}

// Close gives the folder up. If this process holds it, the connections of its clients
// end, and one of them takes over. Operations after Close, and a second Close, return
// an events.ErrClosed. The end of ctx does not shorten Close.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return events.ErrClosed
	}
	s.mu.closed = true
	s.mu.Unlock()
	s.end(events.ErrClosed)
	s.running.Wait()
	s.mu.Lock()
	b := s.mu.current
	s.mu.Unlock()
	return b.close(ctx)
}
