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

// A connector supplies calls with the current client. It is safe for concurrent use.
//
// Failover. A client that searched for a node in vain has ended, and blocks or panics
// later calls. So no client should search a second time: at the first sign of a
// broken connection the client is retired (see sharedClient), and the next call
// starts one goroutine with a new client, which searches. All calls wait for that
// search and share its result, a client or an error. The last call on the old client
// closes it.
type connector struct {
	// config is the configuration of every client. It does not change.
	config esdb.Configuration
	// log receives the messages of the clients.
	log *slog.Logger
	// closed ends with events.ErrClosed when the store closes.
	closed context.Context
	// tasks counts the goroutines of the store.
	tasks *sync.WaitGroup
	// retryTimeout is the limit of awaitReconnect.
	retryTimeout time.Duration
	mu           struct {
		sync.Mutex
		// client is the current client. Nil: the next call starts a search.
		client *sharedClient
		// attempt is the search in progress. Nil: no search runs.
		attempt *connectAttempt

		closed bool
		// version is the server version when the last client connected.
		version esdb.ServerVersion
	}
}

// A connectAttempt is a search for a node in progress. Its waiters share its result.
type connectAttempt struct {
	// done is closed at the end of the search.
	done chan struct{}
	// err is nil if the search found a node. It is set before done is closed.
	err error
}

// acquire returns the current client for one call. The client counts the call, and the
// caller holds the client's handleMu. If a search for a node is in progress, acquire
// waits for it without a timeout. It returns the error of the search, the cause of ctx,
// or ErrClosed.
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

// tryAcquire acquires the current client and returns it. If there is none, it returns
// the search for a node instead, and starts that search unless one is in progress.
// After close it returns nil for both. It holds mu only briefly, since acquiring a
// client may wait for another call's request for the connection.
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

// closedChan is a closed channel: the field done of a search that is over.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// connect runs a search for a node, and passes the found client or the error to the
// calls that wait. If the connector was closed meanwhile, connect retires the client.
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
// version. It returns ErrTooOld, ErrPreRelease, ErrBroken for a panic of the client,
// or the error of the search. It blocks for up to twice gossipTimeout for each node.
// It takes no context, because the client's search has no context.
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

// checkVersion returns ErrTooOld for a version with a known fault that loses events
// or their positions, and for a server without a version.
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
// does from version 25.1. It is false before the first connection.
func (g *connector) acceptsLargeAppends() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.version.Major*100+g.mu.version.Minor > 2500
}

// close retires the client. Afterwards the connector supplies no client. A search for a
// node that is in progress ends by itself.
func (g *connector) close() {
	g.mu.Lock()
	c := g.mu.client
	g.mu.client, g.mu.closed = nil, true
	g.mu.Unlock()
	if c != nil {
		c.retire()
	}
}

// A callContext is the context of one call on the connection. When the context of the
// caller ends, the callContext lasts until the call is open, but at most for
// cancelDelay. If it ended while the client opens the call or sends, the client would
// read variables that its transport writes at the same moment.
type callContext struct {
	context.Context
	// opened reports that the call is open and only receives from now on. It may be
	// called more than once.
	opened func()
}

// cancelDelay bounds the time for which a call outlives its context. It is much longer
// than the client takes to send a message if sending does not wait for the server.
const cancelDelay = 250 * time.Millisecond

// newCallContext returns a callContext that ends after ctx, at the latest cancelDelay
// later, and a function that releases it at the end of the call.
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

// call acquires a client, calls do with it, and releases the client when do returns. If
// ctx ends while call waits for a client, call returns at once. If ctx ends during do,
// the callContext of do ends at the latest cancelDelay later. If the client panics,
// call returns ErrBroken. If no request was sent, the error wraps errNoNode.
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
