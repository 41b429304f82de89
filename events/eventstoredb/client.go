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

// A client is one of the official ones, which panics when it is closed while
// calls run. When it looks for a node and finds none it ends, and whoever asks
// it for its connection then, or tells it to move, waits for ever. So a client
// that is about to look for a node is retired, after which no call enters it,
// and is closed when the last one has left, or when it has ended.
type client struct {
	inner   *esdb.Client
	version esdb.ServerVersion // of the node that was found first

	// asking is held while a call asks the client for its connection. Of
	// several that ask at once, one would be told that there is none and the
	// others nothing. It comes before mu.
	asking sync.Mutex
	moved  atomic.Bool // to a node whose version was not looked at
	mu     struct {
		sync.Mutex
		retired bool
		dead    bool // it has ended by itself
		calls   int
		closed  bool
	}
}

// enter counts a call in, unless the client is retired. The call holds asking
// until its turn is over, and calls leave when it ends.
func (c *client) enter() bool {
	if c.isRetired() {
		return false // who asks it may be waiting
	}
	c.asking.Lock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.retired {
		c.asking.Unlock()
		return false
	}
	c.mu.calls++
	return true
}

// leave counts a call out.
func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.calls--
	c.closeLocked()
}

// retire lets no further call in. It returns when no call asks the client for
// its connection any more.
func (c *client) retire() {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.condemn()
}

// condemn lets no further call in, though one may be asking.
func (c *client) condemn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.retired = true
	c.closeLocked()
}

// die condemns a client that has ended by itself. A call that tells it to move
// would wait for ever, and panics instead.
func (c *client) die() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.retired, c.mu.dead = true, true
	c.closeLocked()
}

func (c *client) isRetired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.retired
}

func (c *client) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.dead
}

// closeLocked closes the client once nobody is to use it any more.
func (c *client) closeLocked() {
	if c.mu.retired && (c.mu.calls == 0 || c.mu.dead) && !c.mu.closed {
		c.mu.closed = true
		_ = c.inner.Close() // it returns nil
	}
}

// fits returns an error if the client moved to a node that cannot keep the
// promises of a store. Its caller holds asking.
func (c *client) fits() error {
	if !c.moved.Swap(false) {
		return nil
	}
	version, err := c.inner.GetServerVersion()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoNode, err)
	}
	return fitting(*version)
}

// A turn is that of a call to ask the client for its connection.
type turn struct {
	client *client
	over   atomic.Bool
	astray atomic.Bool // the connection is to a node whose version was not looked at
}

// end ends the turn, and reports whether it had not ended before.
func (t *turn) end() bool {
	if t.over.Swap(true) {
		return false
	}
	t.client.asking.Unlock()
	return true
}

// An entering context ends the turn of its call when the client asks for its
// deadline, which it does as soon as it has its connection. A call whose client
// has moved by then goes no further: the next one looks at the node.
type entering struct {
	context.Context
	turn *turn
	stop context.CancelFunc
}

// Deadline is the context's.
func (e entering) Deadline() (time.Time, bool) {
	moved := e.turn.client.moved.Load()
	if e.turn.end() && moved {
		e.turn.astray.Store(true)
		e.stop()
	}
	return e.Context.Deadline()
}

// judged returns what the error of a call is for whoever made it, and retires
// a client that is of no further use.
func (c *client) judged(ctx context.Context, turn *turn, err error) error {
	switch {
	case err == nil:
		return nil
	case turn.astray.Load():
		// Its context ended before the client began the call, so it was not made.
		return fmt.Errorf("%w: the leader moved to a node that is not known yet", errNoNode)
	case errors.Is(err, ErrTooOld):
		turn.end()
		c.retire()
	case turn.end(): // it was never given the connection
		c.die()
		if !errors.Is(err, errNoNode) {
			return fmt.Errorf("%w: %w", errNoNode, err)
		}
	case errors.Is(err, ErrBroken) && c.isDead():
		return fmt.Errorf("%w: it ended while the leader moved", errLost)
	case gone(err) && ctx.Err() == nil:
		c.retire()
	}
	return err
}

// errLost says that the client ended under a call.
var errLost = errors.New("connection was lost")
