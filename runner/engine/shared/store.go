package shared

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// DefaultTimeout is how long a Store waits for an unresponsive holder. It is shorter
// than runner.DefaultLease, so that the error names the holder before the lease of this
// process expires.
const DefaultTimeout = 20 * time.Second

// A Config configures how a process opens a shared folder.
type Config struct {
	// Command is the name of this process in the endpoint, as in "ledger run".
	Command string
	// Process is the ID that this process has or will have in the log. Zero: it has no
	// ID. The endpoint has the ID. If this process is killed while it is the holder,
	// the next holder knows by the ID that this process is dead.
	Process domain.ProcessID
	// Timeout is how long the Store waits for an unresponsive holder. 0: DefaultTimeout.
	Timeout time.Duration
	// Waiting is called when an operation has waited some seconds for a holder that
	// does not respond, once in each such period, on a goroutine of the Store. May be
	// nil.
	Waiting func(LockWait)
	// TookOver is called after a takeover has made this process the holder. It runs on
	// its own goroutine, which Close joins. Its context ends when the Store closes. May
	// be nil.
	TookOver func(ctx context.Context)
	// ReadOnly opens the folder in a process that only reads, while no process serves
	// the folder. It returns an events.ErrInUse if another process has become the
	// holder meanwhile. If ReadOnly is nil, this process also writes, and becomes the
	// holder if there is none.
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
	// running counts the goroutines of the Store. Goroutines are added while mu is
	// held, so that Close does not miss one.
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

// Open opens the store in a folder. If there is a holder, the process that has the lock
// of the folder, Open connects to it. Otherwise this process becomes the holder, unless
// it only reads. The holder creates a missing folder, and serves the folder until
// Close. The caller closes the Store.
//
// Besides the errors of [embedded.Open] and [engine.OpenOutputs], Open returns two
// errors about the holder: an events.ErrInUse with its name if the holder does not
// share the folder or runs on another machine, and an [UnresponsiveError] if it does
// not answer.
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

// backend returns the current backend. If the current backend is lost, the method
// backend waits for the search for the next one, and starts the search if none is
// running. It returns events.ErrClosed after Close, the cause of ctx, or the error of
// the search.
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

// errOtherHost reports that the holder runs on another machine with the same network
// folder. Its loopback ports cannot be reached from here.
var errOtherHost = errors.New("the process is on another machine: run this there, or serve the folder to other machines with ledger serve")

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
