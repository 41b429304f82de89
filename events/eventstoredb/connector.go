package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/metadata"
)

// A connector lends clients to calls. At most one client is lent at a time; one
// whose connection broke is retired, and closed when the last call on it has
// ended. A client is lent only after its first discovery succeeded, which one
// goroutine waits for and all calls share.
type connector struct {
	config       esdb.Configuration
	log          *slog.Logger
	closed       context.Context // ends when the store closes, with events.ErrClosed
	tasks        *sync.WaitGroup // what runs for the store
	retryTimeout time.Duration   // with a server that does not answer
	mu           struct {
		sync.Mutex
		client  *sharedClient
		attempt *connectAttempt
		closed  bool               // the last client was retired, and there will be none
		version esdb.ServerVersion // of the last client
	}
}

// An connectAttempt is a discovery under way.
type connectAttempt struct {
	done chan struct{} // closed when it has ended
	err  error         // why there is no client; set before done is closed
}

// acquire returns a client that a call may enter, and was entered. What waits
// for one waits until its context ends.
func (g *connector) acquire(ctx context.Context) (*sharedClient, error) {
	for {
		c, attempt := g.tryAcquire()
		if c != nil {
			return c, nil
		}
		if attempt == nil {
			return nil, context.Cause(g.closed)
		}
		select {
		case <-attempt.done:
			if attempt.err != nil {
				return nil, attempt.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryAcquire returns the client, entered, or else the discovery of one. It returns
// neither when the store is closed.
func (g *connector) tryAcquire() (*sharedClient, *connectAttempt) {
	g.mu.Lock()
	current := g.mu.client
	g.mu.Unlock()
	if current != nil && current.acquire() {
		return current, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.client == current {
		g.mu.client = nil
	}
	switch {
	case g.mu.closed:
		return nil, nil
	case g.mu.client != nil: // found by another meanwhile
		return nil, &connectAttempt{done: closedChan}
	case g.mu.attempt == nil:
		g.mu.attempt = &connectAttempt{done: make(chan struct{})}
		g.tasks.Add(1)
		go g.connect(g.mu.attempt)
	}
	return nil, g.mu.attempt
}

// closedChan is a channel that is closed.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// connect discovers a node. The client ends by itself if it finds none, and
// nobody else waits for it then.
func (g *connector) connect(attempt *connectAttempt) {
	defer g.tasks.Done()
	c, err := g.discover()
	g.mu.Lock()
	g.mu.attempt, attempt.err = nil, err
	closed := err == nil && g.mu.closed
	if err == nil && !closed {
		g.mu.client, g.mu.version = c, c.version
	}
	g.mu.Unlock()
	if closed {
		c.retire()
	}
	close(attempt.done)
}

func (g *connector) discover() (*sharedClient, error) {
	c := &sharedClient{}
	config := g.config
	// One attempt, because a client that gives up for ever makes every other
	// call on it wait for ever: whoever needs a client asks for another.
	config.MaxDiscoverAttempts = 1
	config.Logger = func(level esdb.LogLevel, format string, args ...any) {
		g.forwardLog(level, format, args)
		g.handleClientLog(c, format, args)
	}
	var version *esdb.ServerVersion
	err := recoverPanic(func() (err error) {
		if c.inner, err = esdb.NewClient(&config); err != nil {
			return err
		}
		version, err = c.inner.GetServerVersion()
		return err
	})
	if err != nil {
		if syntax, ok := errors.AsType[*strconv.NumError](err); ok {
			err = fmt.Errorf("%w: %w; the official client of its time can", ErrPreRelease, syntax)
		}
		return nil, err
	}
	if err := checkVersion(*version); err != nil {
		c.retire()
		return nil, err
	}
	c.version = *version
	return c, nil
}

// checkVersion returns an ErrTooOld for a version with a known fault that loses
// events or their places.
func checkVersion(v esdb.ServerVersion) error {
	line, patch := v.Major*100+v.Minor, v.Patch
	switch {
	case line > 2500, line == 2500 && patch >= 1, line == 2410 && patch >= 5, line == 2310 && patch >= 8:
		return nil
	case v == esdb.ServerVersion{}:
		return fmt.Errorf("%w: it does not tell its version; use 23.10.8, 24.10.5, 25.0.1 or one that follows these", ErrTooOld)
	}
	return fmt.Errorf("%w: it is %d.%d.%d; use 23.10.8, 24.10.5, 25.0.1 or one that follows these", ErrTooOld, v.Major, v.Minor, v.Patch)
}

// acceptsLargeAppends reports whether the server is of a version that takes more at once
// than 1 MiB: one from 25.1 on.
func (g *connector) acceptsLargeAppends() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.version.Major*100+g.mu.version.Minor > 2500
}

// close retires the client, and lends no other.
func (g *connector) close() {
	g.mu.Lock()
	c := g.mu.client
	g.mu.client, g.mu.closed = nil, true
	g.mu.Unlock()
	if c != nil {
		c.retire()
	}
}

// A callContext is the context of a call on the wire. It does not end with the
// context of the call at once, but when that has and the call is settled, or a
// moment after: the client reads, when a call that it opens or sends to breaks
// off, what its transport writes when a context ends.
type callContext struct {
	context.Context
	opened func() // says that the call is open, and only receives from now on
}

// cancelDelay is far longer than it takes to send what does not wait for the server.
const cancelDelay = 250 * time.Millisecond

// newCallContext returns a line, and what frees it.
func newCallContext(ctx context.Context) (callContext, func()) {
	wire, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	opened := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(cancelDelay)
		defer timer.Stop()
		select {
		case <-opened:
		case <-timer.C:
		case <-wire.Done():
		}
		cancel(context.Cause(ctx))
	})
	return callContext{wire, sync.OnceFunc(func() { close(opened) })}, func() { stop(); cancel(nil) }
}

// errNoNode says that a call had no node to go to, and was not made.
var errNoNode = errors.New("no node was found")

// call lets do use a client that was entered, and has it leave when do has
// returned and what do opened was closed. The context ends the wait for a
// client at once, and do by its line.
func (g *connector) call(ctx context.Context, do func(callContext, *esdb.Client) error) error {
	c, err := g.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.release()
	lock := &handleLock{client: c}
	defer lock.release()
	wire, release := newCallContext(ctx)
	defer release()
	wire.Context = handleContext{metadata.AppendToOutgoingContext(wire.Context, "requires-leader", "true"), lock, release}
	err = recoverPanic(func() error {
		if err := c.checkMovedVersion(); err != nil {
			return err
		}
		return do(wire, c.inner)
	})
	return c.translateError(ctx, lock, err)
}
