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

// A connector supplies calls with the current client. It replaces a client whose
// connection broke, and the last call on the old client closes it. It supplies a
// client only after the client found a node; one goroutine waits for that search, and
// all calls share its result.
type connector struct {
	config       esdb.Configuration
	log          *slog.Logger
	closed       context.Context // ends with events.ErrClosed when the store closes
	tasks        *sync.WaitGroup // goroutines of the store
	retryTimeout time.Duration   // limit of awaitReconnect
	mu           struct {
		sync.Mutex
		client  *sharedClient
		attempt *connectAttempt
		closed  bool               // no client will be supplied again
		version esdb.ServerVersion // of the server, when the last client connected
	}
}

// A connectAttempt is a search for a node in progress.
type connectAttempt struct {
	done chan struct{} // closed at the end of the search
	err  error         // nil if it found a node; set before done is closed
}

// acquire returns a client that counts the calling call and whose handle lock the
// caller holds. It waits for a search in progress, and returns the error of the
// search, the cause of ctx, or ErrClosed.
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

// tryAcquire returns the current client, acquired, or the search for a new one, which
// it starts if none is in progress. It returns nil and nil after close.
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
	case g.mu.client != nil: // another call connected meanwhile: try again
		return nil, &connectAttempt{done: closedChan}
	case g.mu.attempt == nil:
		g.mu.attempt = &connectAttempt{done: make(chan struct{})}
		g.tasks.Add(1)
		go g.connect(g.mu.attempt)
	}
	return nil, g.mu.attempt
}

// closedChan is a closed channel.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// connect searches for a node and publishes the client or the error. It discards a
// client that it found after close.
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

// discover creates a client and waits until it has found a node of a supported
// version.
func (g *connector) discover() (*sharedClient, error) {
	c := &sharedClient{}
	config := g.config
	// One attempt: when a client gives up, every other call on it blocks
	// forever. Calls that need a client start another search instead.
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

// checkVersion returns ErrTooOld for a version with a known fault that loses events or
// their positions.
func checkVersion(v esdb.ServerVersion) error {
	line, patch := v.Major*100+v.Minor, v.Patch
	switch {
	case line > 2500, line == 2500 && patch >= 1, line == 2410 && patch >= 5, line == 2310 && patch >= 8:
		return nil
	case v == esdb.ServerVersion{}:
		return fmt.Errorf("%w: it does not report its version; use 23.10.8, 24.10.5, 25.0.1 or a later release of these lines", ErrTooOld)
	}
	return fmt.Errorf("%w: it is %d.%d.%d; use 23.10.8, 24.10.5, 25.0.1 or a later release of these lines", ErrTooOld, v.Major, v.Minor, v.Patch)
}

// acceptsLargeAppends reports whether the server accepts appends over 1 MiB, which it
// does from version 25.1.
func (g *connector) acceptsLargeAppends() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.version.Major*100+g.mu.version.Minor > 2500
}

// close retires the client. The connector supplies no other.
func (g *connector) close() {
	g.mu.Lock()
	c := g.mu.client
	g.mu.client, g.mu.closed = nil, true
	g.mu.Unlock()
	if c != nil {
		c.retire()
	}
}

// A callContext is the context of one call on the connection. It outlives the context
// of the caller until the call has opened, but for at most cancelDelay: if a call
// breaks off while it opens or sends, the client reads variables that its transport
// writes when the context ends.
type callContext struct {
	context.Context
	opened func() // reports that the call is open and only receives from now on
}

// cancelDelay is much longer than it takes to send a message that the server need not
// answer.
const cancelDelay = 250 * time.Millisecond

// newCallContext returns a callContext that ends after ctx, and a function that
// releases it.
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

// errNoNode is the error of a call that was not sent because no node was found.
var errNoNode = errors.New("no node was found")

// call runs do with an acquired client and releases the client when do returns. A
// context that ends stops the wait for a client at once, and do through its
// callContext. It returns a panic of the client as ErrBroken.
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
