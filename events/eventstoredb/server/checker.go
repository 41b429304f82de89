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
type checker struct {
	mu struct {
		sync.Mutex
		workers int // at work
		callers int // that wait
		waiting int // checks that no worker has
		open    map[digest]*check
		lines   map[netip.Prefix]*line // none is empty
		turns   []*line                // the next first
		wrong   [2]map[digest]struct{} // two generations, the younger first
	}
	limit int // of workers
}

// A line has the checks of a network that wait for a worker.
type line struct {
	origin netip.Prefix
	fresh  []*check // of connections without a wrong password, the newest last
	failed []*check
}

// A check is a password that is compared with a hash, once. The checker's mutex
// guards it.
type check struct {
	given    digest
	hash     []byte
	password string
	origin   netip.Prefix
	fresh    bool
	begun    bool
	callers  int
	done     chan struct{} // closed when err is set
	err      error
}

func newChecker() *checker {
	c := &checker{limit: max(runtime.GOMAXPROCS(0)/2, 1)}
	c.mu.open, c.mu.lines = map[digest]*check{}, map[netip.Prefix]*line{}
	c.mu.wrong = [2]map[digest]struct{}{{}, {}}
	return c
}

// check returns nil if the password has the hash, ErrNotAuthenticated if not,
// ErrBusy if it was not compared because too many wait, or the cause of a
// context that ended. The digest is that of the user's name and the password.
func (c *checker) check(ctx context.Context, from *conns.Conn, given digest, hash []byte, password string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	k, err := c.enter(from, given, hash, password)
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
func (c *checker) enter(from *conns.Conn, given digest, hash []byte, password string) (*check, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrongLocked(given) {
		return nil, ErrNotAuthenticated
	}
	if c.mu.callers >= maxCallers {
		return nil, ErrBusy
	}
	k := c.mu.open[given]
	if k == nil {
		k = &check{given: given, hash: hash, password: password, done: make(chan struct{})}
		if from != nil {
			k.origin = from.Origin()
		}
		k.fresh = !from.HasFailed()
		c.mu.open[given] = k
		c.putLocked(k)
	} else if !k.begun && !k.fresh && !from.HasFailed() {
		c.takeLocked(k)
		k.fresh = true
		c.putLocked(k)
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
func (c *checker) leave(ctx context.Context, from *conns.Conn, k *check) error {
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
	if k.callers == 0 && !k.begun {
		c.takeLocked(k)
		delete(c.mu.open, k.given)
	}
	return context.Cause(ctx)
}

// work makes checks until none waits.
func (c *checker) work() {
	for {
		c.mu.Lock()
		k := c.nextLocked()
		if k == nil {
			c.mu.workers--
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.make(k)
	}
}

// make makes a check and answers the calls that wait for it.
func (c *checker) make(k *check) {
	err := bcrypt.CompareHashAndPassword(k.hash, []byte(k.password))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		err = ErrNotAuthenticated
		c.rememberLocked(k.given)
	}
	c.endLocked(k, err)
}

// endLocked answers the calls that wait for a check.
func (c *checker) endLocked(k *check, err error) {
	k.err = err
	delete(c.mu.open, k.given)
	close(k.done)
}

// nextLocked takes the check that is made next out of its line for a worker, and
// returns nil if none waits.
func (c *checker) nextLocked() *check {
	if len(c.mu.turns) == 0 {
		return nil
	}
	l := c.mu.turns[0]
	of := l.fresh
	if len(of) == 0 {
		of = l.failed
	}
	k := of[len(of)-1]
	c.takeLocked(k)
	k.begun = true
	if len(c.mu.turns) > 0 && c.mu.turns[0] == l { // it has more
		c.mu.turns = append(c.mu.turns[1:], l)
	}
	return k
}

// putLocked puts a check at the end of its line. If there are too many, the
// oldest check ends with ErrBusy: of the line, or of the longest of all.
func (c *checker) putLocked(k *check) {
	if l := c.mu.lines[k.origin]; l != nil && l.len() >= maxOriginChecks {
		c.refuseLocked(l)
	} else if c.mu.waiting >= maxChecks {
		c.refuseLocked(slices.MaxFunc(c.mu.turns, func(a, b *line) int { return a.len() - b.len() }))
	}
	l := c.mu.lines[k.origin] // only now, as a line whose last check was refused is gone
	if l == nil {
		l = &line{origin: k.origin}
		c.mu.lines[k.origin] = l
		c.mu.turns = append(c.mu.turns, l)
	}
	if k.fresh {
		l.fresh = append(l.fresh, k)
	} else {
		l.failed = append(l.failed, k)
	}
	c.mu.waiting++
}

func (l *line) len() int { return len(l.fresh) + len(l.failed) }

// refuseLocked ends the check of a line that waits longest, of a connection that
// had a wrong password if there is one.
func (c *checker) refuseLocked(l *line) {
	of := l.failed
	if len(of) == 0 {
		of = l.fresh
	}
	k := of[0]
	c.takeLocked(k)
	c.endLocked(k, ErrBusy)
}

// takeLocked takes a check out of its line, and a line that is then empty out of
// the turns.
func (c *checker) takeLocked(k *check) {
	l := c.mu.lines[k.origin]
	same := func(other *check) bool { return other == k }
	l.fresh, l.failed = slices.DeleteFunc(l.fresh, same), slices.DeleteFunc(l.failed, same)
	c.mu.waiting--
	if l.len() == 0 {
		delete(c.mu.lines, l.origin)
		c.mu.turns = slices.DeleteFunc(c.mu.turns, func(other *line) bool { return other == l })
	}
}

// wrongLocked reports whether a password is known to be wrong.
func (c *checker) wrongLocked(given digest) bool {
	_, young := c.mu.wrong[0][given]
	_, old := c.mu.wrong[1][given]
	return young || old
}

// rememberLocked remembers a wrong password, and forgets the older generation
// when the younger is full.
func (c *checker) rememberLocked(given digest) {
	if len(c.mu.wrong[0]) >= maxWrong {
		c.mu.wrong = [2]map[digest]struct{}{{}, c.mu.wrong[0]}
	}
	c.mu.wrong[0][given] = struct{}{}
}
