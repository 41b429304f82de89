package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// A sharedClient is one of the official ones, which panics when it is closed while
// calls run. When it looks for a node and finds none it ends, and whoever asks
// it for its connection then, or tells it to move, waits for ever. So a client
// that is about to look for a node is retired, after which no call enters it,
// and is closed when the last one has left, or when it has ended.
type sharedClient struct {
	inner   *esdb.Client
	version esdb.ServerVersion // of the node that was found first

	// asking is held while a call asks the client for its connection. Of
	// several that ask at once, one would be told that there is none and the
	// others nothing. It comes before mu.
	handleMu         sync.Mutex
	versionUnchecked atomic.Bool // to a node whose version was not looked at
	mu               struct {
		sync.Mutex
		retired bool
		dead    bool // it has ended by itself
		calls   int
		closed  bool
	}
}

// acquire counts a call in, unless the client is retired. The call holds asking
// until its turn is over, and calls leave when it ends.
func (c *sharedClient) acquire() bool {
	if c.isRetired() {
		return false // who asks it may be waiting
	}
	c.handleMu.Lock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.retired {
		c.handleMu.Unlock()
		return false
	}
	c.mu.calls++
	return true
}

// release counts a call out.
func (c *sharedClient) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.calls--
	c.closeLocked()
}

// retire lets no further call in. It returns when no call asks the client for
// its connection any more.
func (c *sharedClient) retire() {
	c.handleMu.Lock()
	defer c.handleMu.Unlock()
	c.retireNow()
}

// retireNow lets no further call in, though one may be asking.
func (c *sharedClient) retireNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.retired = true
	c.closeLocked()
}

// markDead condemns a client that has ended by itself. A call that tells it to move
// would wait for ever, and panics instead.
func (c *sharedClient) markDead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.retired, c.mu.dead = true, true
	c.closeLocked()
}

func (c *sharedClient) isRetired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.retired
}

func (c *sharedClient) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.dead
}

// closeLocked closes the client once nobody is to use it any more.
func (c *sharedClient) closeLocked() {
	if c.mu.retired && (c.mu.calls == 0 || c.mu.dead) && !c.mu.closed {
		c.mu.closed = true
		_ = c.inner.Close() // it returns nil
	}
}

// checkMovedVersion returns an error if the client moved to a node that cannot keep the
// promises of a store. Its caller holds asking.
func (c *sharedClient) checkMovedVersion() error {
	if !c.versionUnchecked.Swap(false) {
		return nil
	}
	version, err := c.inner.GetServerVersion()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoNode, err)
	}
	return checkVersion(*version)
}

// A handleLock is that of a call to ask the client for its connection.
type handleLock struct {
	client    *sharedClient
	released  atomic.Bool
	movedAway atomic.Bool // the connection is to a node whose version was not looked at
}

// release ends the turn, and reports whether it had not ended before.
func (t *handleLock) release() bool {
	if t.released.Swap(true) {
		return false
	}
	t.client.handleMu.Unlock()
	return true
}

// An handleContext context ends the turn of its call when the client asks for its
// deadline, which it does as soon as it has its connection. A call whose client
// has moved by then goes no further: the next one looks at the node.
type handleContext struct {
	context.Context
	lock   *handleLock
	cancel context.CancelFunc
}

// Deadline is the context's.
func (e handleContext) Deadline() (time.Time, bool) {
	moved := e.lock.client.versionUnchecked.Load()
	if e.lock.release() && moved {
		e.lock.movedAway.Store(true)
		e.cancel()
	}
	return e.Context.Deadline()
}

// translateError returns what the error of a call is for whoever made it, and retires
// a client that is of no further use.
func (c *sharedClient) translateError(ctx context.Context, lock *handleLock, err error) error {
	switch {
	case err == nil:
		return nil
	case lock.movedAway.Load():
		// Its context ended before the client began the call, so it was not made.
		return fmt.Errorf("%w: the leader moved to a node that is not known yet", errNoNode)
	case errors.Is(err, ErrTooOld):
		lock.release()
		c.retire()
	case lock.release(): // it was never given the connection
		c.markDead()
		if !errors.Is(err, errNoNode) {
			return fmt.Errorf("%w: %w", errNoNode, err)
		}
	case errors.Is(err, ErrBroken) && c.isDead():
		return fmt.Errorf("%w: it ended while the leader moved", errLost)
	case connectionLost(err) && ctx.Err() == nil:
		c.retire()
	}
	return err
}

// errLost says that the client ended under a call.
var errLost = errors.New("connection was lost")
