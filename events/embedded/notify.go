package embedded

import (
	"context"

	"github.com/settlement-ledger/ledger/events"
)

// A waiter is one who waits for the mark to move, and those who did so before
// it. Each has a ch of its own, as a thousand that stand in line for one
// channel are in each other's way.
type waiter struct {
	ch    chan<- struct{} // with room for one
	count int             // how many they are
	next  *waiter
}

// subscribe adds a ch to those that notify when the mark moves on. Who finds after
// the call that the moment has superseded is not to wait.
func (at *watermarkState) subscribe(ch chan<- struct{}) {
	w := &waiter{ch: ch}
	for {
		w.next, w.count = at.waiters.Load(), 1
		if w.next != nil {
			w.count += w.next.count
		}
		if at.waiters.CompareAndSwap(w.next, w) {
			return
		}
	}
}

// maxAbandoned is how many waiters that wait no more are kept for the others'
// sake.
const maxAbandoned = 1 << 10

// unsubscribe says that someone who was enlisted waits no more. Now and then it wakes
// all, and who still waits enlists again.
func (at *watermarkState) unsubscribe() {
	if at.abandoned.Add(1)%maxAbandoned == 0 {
		at.waiters.Swap(nil).notify()
	}
}

// superseded reports whether the mark has moved since a moment, or will not tell if
// it does.
func (m *watermark) superseded(at *watermarkState) bool {
	return m.notifierGone.Load() || m.current.Load() != at
}

func (w *waiter) notify() {
	for ; w != nil; w = w.next {
		select {
		case w.ch <- struct{}{}:
		default: // it was rung and not heard yet
		}
	}
}

// notifyInline is how many the committer wakes itself, as that is sooner. More are the
// herald's, so that appends do not wait for it.
const notifyInline = 4

func (m *watermark) wake(w *waiter) {
	if w == nil {
		return
	}
	if w.count <= notifyInline {
		w.notify()
		return
	}
	select {
	case m.notifications <- w:
	default:
		w.notify()
	}
	if m.notifierGone.Load() { // and may have been before the call could be heard
		m.drainNotifications()
	}
}

func (m *watermark) drainNotifications() {
	for {
		select {
		case w := <-m.notifications:
			w.notify()
		default:
			return
		}
	}
}

// notifyLoop is the herald: it wakes the followers when the mark moves, and for
// the last time when the store closes or stops for good.
func (s *Store) notifyLoop() {
	for {
		select {
		case w := <-s.watermark.notifications:
			w.notify()
			continue
		case <-s.closing:
		case <-s.failStop.Lost():
		}
		s.watermark.notifierGone.Store(true)
		s.watermark.drainNotifications()
		s.watermark.current.Load().waiters.Swap(nil).notify()
		return
	}
}

// await returns nil when there is a durable record behind a sequence. The ch
// rings as well when the context ends.
func (s *Store) await(ctx context.Context, after uint64, ch chan struct{}) error {
	for {
		end, at := s.watermark.load()
		if end > after {
			return nil
		}
		if err := s.terminalError(); err != nil {
			return err
		}
		at.subscribe(ch)
		if s.watermark.superseded(at) {
			continue
		}
		if ctx.Err() == nil {
			<-ch
		}
		if err := context.Cause(ctx); err != nil {
			at.unsubscribe()
			return err
		}
	}
}

// ended returns why no more becomes durable, and nil if more may.
func (s *Store) terminalError() error {
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
