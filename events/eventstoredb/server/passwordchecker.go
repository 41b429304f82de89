package server

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
)

// The bounds of passwords that wait to be checked.
const (
	maxChecks       = 256  // different passwords
	maxOriginChecks = 64   // of these, those of one network
	maxCallers      = 2048 // calls that wait for all of them
	maxWrong        = 4096 // wrong passwords that are remembered, at least
)

// A checker compares passwords with their hashes in a bounded worker pool, as
// each comparison takes a processor for about a tenth of a second. Networks take
// turns. Within a network, connections that had no wrong password go first, and
// the password that came last is checked first: of a flood of wrong passwords the
// oldest wait, and the oldest is refused when too many do. Calls with one name
// and password share one check, and a password that was wrong stays wrong.
//
// A checker does not know which users there are, so an unknown name waits as long
// as a known one. It is safe for concurrent use.
type passwordChecker struct {
	mu struct {
		sync.Mutex
		workers  int // at work
		callers  int // that wait
		waiting  int // checks that no worker has
		open     map[digest]*check
		queues   map[netip.Prefix]*checkQueue // none is empty
		rotation []*checkQueue                // the next first
		wrong    [2]map[digest]struct{}       // two generations, the younger first
	}
	limit int // of workers
}

// A line has the checks of a network that wait for a worker.
type checkQueue struct {
	origin netip.Prefix
	fresh  []*check // of connections without a wrong password, the newest last
	failed []*check
}

// A check is a password that is compared with a hash, once. The checker's mutex
// guards it.
type check struct {
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

func newPasswordChecker() *passwordChecker {
	c := &passwordChecker{limit: max(runtime.GOMAXPROCS(0)/2, 1)}
	c.mu.open, c.mu.queues = map[digest]*check{}, map[netip.Prefix]*checkQueue{}
	c.mu.wrong = [2]map[digest]struct{}{{}, {}}
	return c
}

// check returns nil if the password has the hash, ErrNotAuthenticated if not,
// ErrBusy if it was not compared because too many wait, or the cause of a
// context that ended. The digest is that of the user's name and the password.
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

// enter returns the check that a call waits for.
func (c *passwordChecker) enter(from *conns.Conn, key digest, hash []byte, password string) (*check, error) {
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
		k = &check{key: key, hash: hash, password: password, done: make(chan struct{})}
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

// leave returns how the check of a call ended. A check that no call waits for
// any more is not made.
func (c *passwordChecker) leave(ctx context.Context, from *conns.Conn, k *check) error {
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

// work makes checks until none waits.
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

// compare makes a check and answers the calls that wait for it.
func (c *passwordChecker) compare(k *check) {
	err := bcrypt.CompareHashAndPassword(k.hash, []byte(k.password))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		err = ErrNotAuthenticated
		c.rememberLocked(k.key)
	}
	c.finishLocked(k, err)
}

// endLocked answers the calls that wait for a check.
func (c *passwordChecker) finishLocked(k *check, err error) {
	k.err = err
	delete(c.mu.open, k.key)
	close(k.done)
}

// nextLocked takes the check that is made next out of its line for a worker, and
// returns nil if none waits.
func (c *passwordChecker) nextLocked() *check {
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
	if len(c.mu.rotation) > 0 && c.mu.rotation[0] == q { // it has more
		c.mu.rotation = append(c.mu.rotation[1:], q)
	}
	return k
}

// putLocked puts a check at the end of its line. If there are too many, the
// oldest check ends with ErrBusy: of the line, or of the longest of all.
func (c *passwordChecker) enqueueLocked(k *check) {
	if q := c.mu.queues[k.origin]; q != nil && q.len() >= maxOriginChecks {
		c.rejectOldestLocked(q)
	} else if c.mu.waiting >= maxChecks {
		c.rejectOldestLocked(slices.MaxFunc(c.mu.rotation, func(a, b *checkQueue) int { return a.len() - b.len() }))
	}
	q := c.mu.queues[k.origin] // only now, as a line whose last check was refused is gone
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

func (q *checkQueue) len() int { return len(q.fresh) + len(q.failed) }

// refuseLocked ends the check of a line that waits longest, of a connection that
// had a wrong password if there is one.
func (c *passwordChecker) rejectOldestLocked(q *checkQueue) {
	checks := q.failed
	if len(checks) == 0 {
		checks = q.fresh
	}
	k := checks[0]
	c.dequeueLocked(k)
	c.finishLocked(k, ErrBusy)
}

// takeLocked takes a check out of its line, and a line that is then empty out of
// the turns.
func (c *passwordChecker) dequeueLocked(k *check) {
	q := c.mu.queues[k.origin]
	same := func(other *check) bool { return other == k }
	q.fresh, q.failed = slices.DeleteFunc(q.fresh, same), slices.DeleteFunc(q.failed, same)
	c.mu.waiting--
	if q.len() == 0 {
		delete(c.mu.queues, q.origin)
		c.mu.rotation = slices.DeleteFunc(c.mu.rotation, func(other *checkQueue) bool { return other == q })
	}
}

// wrongLocked reports whether a password is known to be wrong.
func (c *passwordChecker) isWrongLocked(key digest) bool {
	_, young := c.mu.wrong[0][key]
	_, old := c.mu.wrong[1][key]
	return young || old
}

// rememberLocked remembers a wrong password, and forgets the older generation
// when the younger is full.
func (c *passwordChecker) rememberLocked(key digest) {
	if len(c.mu.wrong[0]) >= maxWrong {
		c.mu.wrong = [2]map[digest]struct{}{{}, c.mu.wrong[0]}
	}
	c.mu.wrong[0][key] = struct{}{}
}
