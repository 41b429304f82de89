package auth

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
)

// The bounds of a passwordChecker.
const (
	maxChecks       = 256  // waiting checks
	maxOriginChecks = 64   // waiting checks of one network
	maxCallers      = 2048 // calls that wait for checks
	maxWrong        = 4096 // wrong passwords in one generation of the cache
)

// A passwordChecker compares passwords with bcrypt hashes in a bounded worker
// pool, because one comparison takes about 0.1 s of CPU time.
//
// It serves networks in turn. Within a network, the connections that have had
// no wrong password come first, and among them the latest check: in a flood of
// wrong passwords the oldest checks wait longest, and the oldest is rejected
// when too many wait. Calls with the same name and password share one check.
// Wrong passwords are cached.
//
// A passwordChecker does not know which users exist, so a check of an unknown
// name takes as long as one of a known name. It is safe for concurrent use.
type passwordChecker struct {
	mu struct {
		sync.Mutex
		workers  int // running workers
		callers  int // calls that wait for a check
		waiting  int // checks in queues
		open     map[digest]*passwordCheck
		queues   map[netip.Prefix]*checkQueue // one for each network with waiting checks
		rotation []*checkQueue                // the order of the next checks
		wrong    [2]map[digest]struct{}       // wrong passwords in two generations, the younger first
	}
	limit int // of workers
}

// A checkQueue holds the waiting checks of one network.
type checkQueue struct {
	origin netip.Prefix
	fresh  []*passwordCheck // of connections without a wrong password, oldest first
	failed []*passwordCheck
}

// A passwordCheck is the comparison of one password with one hash, for one or more
// calls. The checker's mutex guards its fields.
type passwordCheck struct {
	key      digest
	hash     []byte
	password string
	origin   netip.Prefix
	fresh    bool
	started  bool
	callers  int
	done     chan struct{} // closed when err is set
	err      error
}

// newPasswordChecker returns a checker that uses up to half of the processors.
func newPasswordChecker() *passwordChecker {
	c := &passwordChecker{limit: max(runtime.GOMAXPROCS(0)/2, 1)}
	c.mu.open, c.mu.queues = map[digest]*passwordCheck{}, map[netip.Prefix]*checkQueue{}
	c.mu.wrong = [2]map[digest]struct{}{{}, {}}
	return c
}

// check returns nil if hash is the bcrypt hash of the password. It returns
// ErrNotAuthenticated for another password, ErrBusy if too many checks wait,
// and the cause of ctx if ctx ends first. key is the digest of the user's name
// and the password. If the password is wrong, check calls Failed of the
// connection.
func (c *passwordChecker) check(ctx context.Context, from *conns.Conn, key digest, hash []byte, password string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	k, err := c.enter(from, key, hash, password)
	if err != nil {
		if err == ErrNotAuthenticated {
			from.Failed()
		}
		return err
	}
	select {
	case <-k.done:
	case <-ctx.Done():
	}
	return c.leave(ctx, from, k)
}

// enter returns the passwordCheck that a call waits for: the open one with the
// same name and password, or a new one. It starts a worker if the pool has
// room. It returns ErrNotAuthenticated for a cached wrong password, and ErrBusy
// if too many calls wait.
func (c *passwordChecker) enter(from *conns.Conn, key digest, hash []byte, password string) (*passwordCheck, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isWrongLocked(key) {
		return nil, ErrNotAuthenticated
	}
	if c.mu.callers >= maxCallers {
		return nil, ErrBusy
	}
	k := c.mu.open[key]
	if k == nil {
		k = &passwordCheck{key: key, hash: hash, password: password, done: make(chan struct{})}
		if from != nil {
			k.origin = from.Origin()
		}
		k.fresh = !from.HasFailed()
		c.mu.open[key] = k
		c.enqueueLocked(k)
	} else if !k.started && !k.fresh && !from.HasFailed() {
		c.dequeueLocked(k)
		k.fresh = true
		c.enqueueLocked(k)
	}
	k.callers++
	c.mu.callers++
	if c.mu.workers < c.limit && c.mu.waiting > 0 {
		c.mu.workers++
		go c.work()
	}
	return k, nil
}

// leave returns the result of the check that a call waited for, or the cause of
// ctx if the check is not done. If no other call waits for the check and no
// worker has started it, leave removes it from the queue.
func (c *passwordChecker) leave(ctx context.Context, from *conns.Conn, k *passwordCheck) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.callers--
	k.callers--
	select {
	case <-k.done:
		if k.err == ErrNotAuthenticated {
			from.Failed()
		}
		return k.err
	default:
	}
	if k.callers == 0 && !k.started {
		c.dequeueLocked(k)
		delete(c.mu.open, k.key)
	}
	return context.Cause(ctx)
}

// work is a worker: it runs checks until the queues are empty.
func (c *passwordChecker) work() {
	for {
		c.mu.Lock()
		k := c.nextLocked()
		if k == nil {
			c.mu.workers--
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.compare(k)
	}
}

// compare compares a password with its hash, and finishes the check.
func (c *passwordChecker) compare(k *passwordCheck) {
	err := bcrypt.CompareHashAndPassword(k.hash, []byte(k.password))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		err = ErrNotAuthenticated
		c.rememberLocked(k.key)
	}
	c.finishLocked(k, err)
}

// finishLocked sets the result of a check and wakes its callers.
func (c *passwordChecker) finishLocked(k *passwordCheck, err error) {
	k.err = err
	delete(c.mu.open, k.key)
	close(k.done)
}

// nextLocked removes the next check from its queue and moves the queue to the
// end of the rotation. It returns nil if no check waits.
func (c *passwordChecker) nextLocked() *passwordCheck {
	if len(c.mu.rotation) == 0 {
		return nil
	}
	q := c.mu.rotation[0]
	checks := q.fresh
	if len(checks) == 0 {
		checks = q.failed
	}
	k := checks[len(checks)-1]
	c.dequeueLocked(k)
	k.started = true
	if len(c.mu.rotation) > 0 && c.mu.rotation[0] == q { // the queue is not empty
		c.mu.rotation = append(c.mu.rotation[1:], q)
	}
	return k
}

// enqueueLocked adds a check to the queue of its network. If too many checks
// wait, it first rejects one with ErrBusy: the oldest of the same queue if that
// queue is full, and otherwise the oldest of the longest queue.
func (c *passwordChecker) enqueueLocked(k *passwordCheck) {
	if q := c.mu.queues[k.origin]; q != nil && q.len() >= maxOriginChecks {
		c.rejectOldestLocked(q)
	} else if c.mu.waiting >= maxChecks {
		c.rejectOldestLocked(slices.MaxFunc(c.mu.rotation, func(a, b *checkQueue) int { return a.len() - b.len() }))
	}
	q := c.mu.queues[k.origin] // looked up again: rejecting its last check removes a queue
	if q == nil {
		q = &checkQueue{origin: k.origin}
		c.mu.queues[k.origin] = q
		c.mu.rotation = append(c.mu.rotation, q)
	}
	if k.fresh {
		q.fresh = append(q.fresh, k)
	} else {
		q.failed = append(q.failed, k)
	}
	c.mu.waiting++
}

// len returns the number of waiting checks.
func (q *checkQueue) len() int { return len(q.fresh) + len(q.failed) }

// rejectOldestLocked ends the oldest check of a queue with ErrBusy. It prefers
// checks of connections that have had a wrong password.
func (c *passwordChecker) rejectOldestLocked(q *checkQueue) {
	checks := q.failed
	if len(checks) == 0 {
		checks = q.fresh
	}
	k := checks[0]
	c.dequeueLocked(k)
	c.finishLocked(k, ErrBusy)
}

// dequeueLocked removes a check from its queue, and an empty queue from the
// rotation.
func (c *passwordChecker) dequeueLocked(k *passwordCheck) {
	q := c.mu.queues[k.origin]
	same := func(other *passwordCheck) bool { return other == k }
	q.fresh, q.failed = slices.DeleteFunc(q.fresh, same), slices.DeleteFunc(q.failed, same)
	c.mu.waiting--
	if q.len() == 0 {
		delete(c.mu.queues, q.origin)
		c.mu.rotation = slices.DeleteFunc(c.mu.rotation, func(other *checkQueue) bool { return other == q })
	}
}

// isWrongLocked reports whether a password is in the cache of wrong passwords.
func (c *passwordChecker) isWrongLocked(key digest) bool {
	_, young := c.mu.wrong[0][key]
	_, old := c.mu.wrong[1][key]
	return young || old
}

// rememberLocked caches a wrong password. When the younger generation is full,
// it evicts the older one.
func (c *passwordChecker) rememberLocked(key digest) {
	if len(c.mu.wrong[0]) >= maxWrong {
		c.mu.wrong = [2]map[digest]struct{}{{}, c.mu.wrong[0]}
	}
	c.mu.wrong[0][key] = struct{}{}
}
