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

// A sharedClient is an official client with a count of the calls that use it. The
// official client panics if it is closed during a call. If it searches for a node in
// vain, it ends, and a later request for its connection blocks forever. So a
// sharedClient that is about to search is retired: no further call acquires it, and
// the last call closes it.
//
// States: in use; retired, with calls in progress; closed. A dead client has ended by
// itself and is closed although calls are in progress.
type sharedClient struct {
	inner *esdb.Client
	// version is the server version of the node that the client found first.
	version esdb.ServerVersion

	// handleMu is held during a request for the connection of the client: if several
	// calls request it while the client ends, the client responds to only one of
	// them, and the others block. Lock it before mu.
	handleMu sync.Mutex
	// versionUnchecked is set when the client moved to a node of unknown version. The
	// next call checks it.
	versionUnchecked atomic.Bool
	mu               struct {
		sync.Mutex
		// retired is set when no further call may acquire the client.
		retired bool
		// dead is set when the official client has ended by itself.
		dead bool
		// calls is the number of calls in progress.
		calls int
		// closed is set when the official client was closed.
		closed bool
	}
}

// acquire counts a call, locks handleMu and returns true. For a retired client it
// neither counts nor locks, and returns false. It waits while another call requests the
// connection. The caller unlocks handleMu through its handleLock, and calls release at
// the end of the call.
func (c *sharedClient) acquire() bool {
	if c.isRetired() {
		return false // the holder of handleMu may be blocked
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

// release stops counting a call that acquire counted. After the last call it closes a
// retired client.
func (c *sharedClient) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.calls--
	c.closeLocked()
}

// retire prevents further calls. If a call is requesting the connection of the client,
// retire waits until the call has the connection or an error.
func (c *sharedClient) retire() {
	c.handleMu.Lock()
	defer c.handleMu.Unlock()
	c.retireNow()
}

// retireNow retires the client as retire does, but does not wait. The log handler of
// the client uses it, because a request for the connection may itself wait for the log
// handler to return.
func (c *sharedClient) retireNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.retired = true
	c.closeLocked()
}

// markDead retires a client that has ended by itself, and closes it at once, even if
// calls are in progress. Without the close, those calls would block forever. With it,
// they panic in the client, and recoverPanic returns ErrBroken.
func (c *sharedClient) markDead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.retired, c.mu.dead = true, true
	c.closeLocked()
}

// isRetired reports whether the client accepts no further call.
func (c *sharedClient) isRetired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.retired
}

// isDead reports whether the client has ended by itself.
func (c *sharedClient) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.dead
}

// closeLocked closes a retired client without calls, or a dead one. The caller holds
// mu.
func (c *sharedClient) closeLocked() {
	if c.mu.retired && (c.mu.calls == 0 || c.mu.dead) && !c.mu.closed {
		c.mu.closed = true
		_ = c.inner.Close() // Close returns nil
	}
}

// checkMovedVersion checks the server version if the client moved to another node. It
// returns ErrTooOld, or an error that wraps errNoNode if the node does not report its
// version. The caller holds handleMu.
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

// A handleLock is the lock that one call has on handleMu: the exclusive right to
// request the connection of the client. It is released when the client first reads the
// deadline of the call's context, or else at the end of the call. A second release has
// no effect.
type handleLock struct {
	client   *sharedClient
	released atomic.Bool
	// movedAway is set if the client moved to an unchecked node before the call.
	movedAway atomic.Bool
}

// release unlocks handleMu. It returns true for the first call, and false if the lock
// was already released.
func (t *handleLock) release() bool {
	if t.released.Swap(true) {
		return false
	}
	t.client.handleMu.Unlock()
	return true
}

// A handleContext releases the handleLock of a call when the client reads the deadline.
// The client reads the deadline as soon as it has the connection, so the request for
// the connection is over at that time. If the client has moved to another node in the
// meantime, the context cancels the call, and the next call checks the version of the
// new node.
type handleContext struct {
	context.Context
	lock   *handleLock
	cancel context.CancelFunc
}

// Deadline returns the deadline of the embedded context, after the effects that
// handleContext describes.
func (e handleContext) Deadline() (time.Time, bool) {
	moved := e.lock.client.versionUnchecked.Load()
	if e.lock.release() && moved {
		e.lock.movedAway.Store(true)
		e.cancel()
	}
	return e.Context.Deadline()
}

// translateError returns the error for the caller of a call, and retires a client that
// cannot be used again. If the call never got the connection, no record was sent and
// the client is dead; the returned error then wraps errNoNode.
func (c *sharedClient) translateError(ctx context.Context, lock *handleLock, err error) error {
	switch {
	case err == nil:
		return nil
	case lock.movedAway.Load():
		// The context ended before the client began the call, so no request was sent.
		return fmt.Errorf("%w: the leader moved to a node that the client does not know yet", errNoNode)
	case errors.Is(err, ErrTooOld):
		lock.release()
		c.retire()
	case lock.release(): // the call never got the connection
		c.markDead()
		if !errors.Is(err, errNoNode) {
			return fmt.Errorf("%w: %w", errNoNode, err)
		}
	case errors.Is(err, ErrBroken) && c.isDead():
		return fmt.Errorf("%w: the connection ended while the leader moved", errLost)
	case connectionLost(err) && ctx.Err() == nil:
		c.retire()
	}
	return err
}

// errLost is the error of a call during which the client ended.
var errLost = errors.New("connection was lost")
