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

// DefaultTimeout is how long a Store waits for an unresponsive holder. It is shorter
// than runner.DefaultLease, so that the error names the holder before the lease of this
// process expires.
const DefaultTimeout = 20 * time.Second

// A Config configures how a process opens a shared folder.
type Config struct {
	// Command is the name of this process in the endpoint, as in "ledger run".
	Command string
	// Process is the ID of this process in the log, now or later. Zero: it has no ID.
	// The endpoint has the ID. If this process is killed while it is the holder, the
	// next holder thus knows at once that it is dead.
	Process domain.ProcessID
	// Timeout is how long the Store waits for an unresponsive holder. 0: DefaultTimeout.
	Timeout time.Duration
	// Waiting is called, on a goroutine of the Store, once in each period in which an
	// operation has waited some seconds for an unresponsive holder. May be nil.
	Waiting func(LockWait)
	// TookOver is called after this process has become the holder by a takeover, on a
	// goroutine of its own that Close joins. Its context ends with the Store. May be nil.
	TookOver func(ctx context.Context)
	// ReadOnly opens the folder for a process that only reads, while no process serves
	// it. It returns an events.ErrInUse if another process has become the holder
	// meanwhile. Nil: this process also writes, and becomes the holder if there is
	// none.
	ReadOnly func(context.Context) (Backend, error)
	// Logger gets the warnings of the log and of the outputs. Nil: they are discarded.
	Logger *slog.Logger
}

// A Store is an events.Scanner in a folder that several processes share, with the blob
// store of outputs and the checkpoints. It has the folder open itself or connects to
// the holder. Open makes one, and the caller closes it. It is safe for concurrent use.
//
// Takeover. The Store has one current backend. When the backend is lost, the Store
// closes it, and one goroutine searches for the next one: it tries to take the lock of
// the folder and, if another process has the lock, connects to that process. All
// operations wait for this search, and then repeat with the new backend. The lock, and
// not the endpoint file, decides which process is the holder, so two processes never
// write.
type Store struct {
	cfg Config
	dir string
	// life ends with events.ErrClosed, by end, when the Store closes.
	life context.Context
	end  context.CancelCauseFunc
	// running counts the goroutines of the Store. It is added to under mu, so that
	// Close does not miss one.
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		// closed is set by Close.
		closed bool
		// yielded is when this process last gave the folder up on request. Zero:
		// never.
		yielded time.Time
		// current is the latest backend, which may be lost.
		current *backend
		// search is the search for the next backend. Nil: no search is running.
		search *backendSearch
	}
}

// A backendSearch is a search for the next backend in progress. All operations that
// need a backend wait until done is closed.
type backendSearch struct {
	done chan struct{}
	// err is nil if the search set a new current backend. It is set before done is
	// closed.
	err error
}

// Open opens the store in a folder. If there is no holder, this process becomes the
// holder, unless it only reads. The holder creates a missing folder, and serves the
// folder until Close. Otherwise Open connects to the holder. The caller closes the
// Store.
//
// Besides the errors of [embedded.Open] and [engine.OpenOutputs], Open returns two
// errors about the holder: an events.ErrInUse that names it if it does not share the
// folder or runs on another machine, and an [UnresponsiveError] if it does not
// answer.
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

// timeout returns the configured timeout or the default.
func (s *Store) timeout() time.Duration { return cmp.Or(s.cfg.Timeout, DefaultTimeout) }

// process returns the ID of this process in the log, or zero.
func (s *Store) process() domain.ProcessID { return s.cfg.Process }

// waiting calls Config.Waiting if it is set.
func (s *Store) waiting(w LockWait) {
	if s.cfg.Waiting != nil {
		s.cfg.Waiting(w)
	}
}

// setCurrent makes a backend the current one. When it is lost, a Store that writes
// starts the search for the next backend at once, and not only with its next
// operation, so that the other processes soon have a holder again.
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

// backend returns the current backend. If that is lost, it waits for the search for the
// next one, and starts the search unless it is running. It returns events.ErrClosed after
// Close, the cause of ctx, or the error of the search.
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

// replace closes the lost backend, finds the next one and ends the search. The old
// backend is closed on a goroutine of its own: its running calls may take until
// drainTimeout, and the lock is free only then.
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

// goUnlessClosed starts a goroutine that Close joins. It has no effect if the store is
// closed.
func (s *Store) goUnlessClosed(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		s.running.Go(do)
	}
}

// The pauses between two attempts grow from the first to the last.
const (
	// firstPause is the pause after the first attempt.
	firstPause = 5 * time.Millisecond
	// lastPause is the greatest pause.
	lastPause = 100 * time.Millisecond
	// exclusiveWait is how long Open waits for a process that does not share the folder
	// and that may end soon, such as a check.
	exclusiveWait = time.Second
	// noticeAfter is how long findBackend tries before it calls Config.Waiting.
	noticeAfter = 2 * time.Second
)

// findBackend takes the lock of the folder or connects to the holder. While another
// process begins to serve, ends or does not respond, it repeats the attempt with
// growing pauses. After Config.Timeout it returns an UnresponsiveError.
//
// It returns an error at once if another attempt cannot change it. Open sets first:
// then findBackend also returns an error after exclusiveWait if a process has the lock
// that does not share the folder.
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

// errOtherHost reports that the holder runs on another machine with the same network
// folder. Its loopback ports cannot be reached from here.
var errOtherHost = errors.New("the process is on another machine: run this there, or serve the folder to other machines with ledger serve")

// inUse reports whether another process has the lock of a store.
func inUse(err error) bool {
	return errors.Is(err, events.ErrInUse) || errors.Is(err, outputs.ErrInUse)
}

// tryBackend makes one attempt to get a backend: it takes the lock or, if another
// process has it, connects to that process. alone reports that the process with the
// lock does not share the folder. After an events.ErrInUse, an outputs.ErrInUse or an
// ErrNoResponse another attempt may succeed.
func (s *Store) tryBackend(ctx context.Context) (b *backend, alone bool, err error) {
	// The lock decides and not the endpoint file: a copy of a folder has the endpoint of
	// the original's holder, and a killed process leaves its endpoint.
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

// readOnly opens the folder in a process that only reads, by Config.ReadOnly.
func (s *Store) readOnly(ctx context.Context) (*backend, error) {
	opened, err := s.cfg.ReadOnly(ctx)
	if err != nil {
		return nil, err
	}
	return s.newBackend(opened), nil
}

// Close closes the store and joins its goroutines. If this process is the holder, the
// connections of its clients end, and one of the clients takes over. Operations after
// Close, and a second Close, return an events.ErrClosed. The end of ctx does not
// shorten Close.
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
