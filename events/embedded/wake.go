package embedded

import (
	"context"

	"github.com/settlement-ledger/ledger/events"
)

// A waiter is one who waits for the mark to move, and those who did so before
// it. Each has a bell of its own, as a thousand that stand in line for one
// channel are in each other's way.
type waiter struct {
	bell  chan<- struct{} // with room for one
	depth int             // how many they are
	next  *waiter
}

// enlist adds a bell to those that ring when the mark moves on. Who finds after
// the call that the moment has passed is not to wait.
func (at *moment) enlist(bell chan<- struct{}) {
	w := &waiter{bell: bell}
	for {
		w.next, w.depth = at.waiters.Load(), 1
		if w.next != nil {
			w.depth += w.next.depth
		}
		if at.waiters.CompareAndSwap(w.next, w) {
			return
		}
	}
}

// patience is how many waiters that wait no more are kept for the others'
// sake.
const patience = 1 << 10

// leave says that someone who was enlisted waits no more. Now and then it wakes
// all, and who still waits enlists again.
func (at *moment) leave() {
	if at.left.Add(1)%patience == 0 {
		at.waiters.Swap(nil).ring()
	}
}

// passed reports whether the mark has moved since a moment, or will not tell if
// it does.
func (m *mark) passed(at *moment) bool { return m.over.Load() || m.at.Load() != at }

func (w *waiter) ring() {
	for ; w != nil; w = w.next {
		select {
		case w.bell <- struct{}{}:
		default: // it was rung and not heard yet
		}
	}
}

// few is how many the committer wakes itself, as that is sooner. More are the
// herald's, so that appends do not wait for it.
const few = 4

func (m *mark) wake(w *waiter) {
	if w == nil {
		return
	}
	if w.depth <= few {
		w.ring()
		return
	}
	select {
	case m.calls <- w:
	default:
		w.ring()
	}
	if m.over.Load() { // and may have been before the call could be heard
		m.ringCalls()
	}
}

func (m *mark) ringCalls() {
	for {
		select {
		case w := <-m.calls:
			w.ring()
		default:
			return
		}
	}
}

// proclaim is the herald: it wakes the followers when the mark moves, and for
// the last time when the store closes or stops for good.
func (s *Store) proclaim() {
	for {
		select {
		case w := <-s.mark.calls:
			w.ring()
			continue
		case <-s.closing:
		case <-s.failStop.Lost():
		}
		s.mark.over.Store(true)
		s.mark.ringCalls()
		s.mark.at.Load().waiters.Swap(nil).ring()
		return
	}
}

// await returns nil when there is a durable record behind a sequence. The bell
// rings as well when the context ends.
func (s *Store) await(ctx context.Context, after uint64, bell chan struct{}) error {
	for {
		end, at := s.mark.now()
		if end > after {
			return nil
		}
		if err := s.ended(); err != nil {
			return err
		}
		at.enlist(bell)
		if s.mark.passed(at) {
			continue
		}
		if ctx.Err() == nil {
			<-bell
		}
		if err := context.Cause(ctx); err != nil {
			at.leave()
			return err
		}
	}
}

// ended returns why no more becomes durable, and nil if more may.
func (s *Store) ended() error {
	if isClosed(s.closing) {
		return events.ErrClosed
	}
	if isClosed(s.failStop.Lost()) {
		return s.failure()
	}
	return nil
}

// isClosed reports whether a channel that carries nothing is closed. It takes
// no lock while it is not, and a select of two channels would.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
