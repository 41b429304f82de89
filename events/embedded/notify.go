package embedded

import (
	"context"

	"github.com/settlement-ledger/ledger/events"
)

// A waiter is one subscription to the next advance of the watermark, in a list with
// the subscriptions before it. Each has a channel of its own, because a thousand
// goroutines on one channel contend for its lock.
type subscription struct {
	ch    chan<- struct{} // of capacity 1
	count int             // waiters in the list from this one on
	next  *subscription
}

// subscribe adds a channel to those that are notified when the watermark advances. The
// caller then checks superseded: if it is true, the notification may have been sent
// already and the caller must not wait.
func (at *watermarkState) subscribe(ch chan<- struct{}) {
	w := &subscription{ch: ch}
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

// maxAbandoned bounds the waiters that have given up and stay in the list.
const maxAbandoned = 1 << 10

// unsubscribe records that a waiter has given up. After maxAbandoned of them it
// notifies the whole list, and the waiters that remain subscribe again.
func (at *watermarkState) unsubscribe() {
	if at.abandoned.Add(1)%maxAbandoned == 0 {
		at.waiters.Swap(nil).notify()
	}
}

// superseded reports whether the watermark has advanced since a state, or the notifier
// has ended.
func (m *watermark) superseded(at *watermarkState) bool {
	return m.notifierGone.Load() || m.current.Load() != at
}

// notify sends to every channel of the list, without waiting.
func (w *subscription) notify() {
	for ; w != nil; w = w.next {
		select {
		case w.ch <- struct{}{}:
		default: // it has a notification that was not received yet
		}
	}
}

// notifyInline is the largest number of waiters that the committing goroutine notifies
// itself, which is faster. It leaves longer lists to the notifier, so that appends do
// not wait for them.
const notifyInline = 4

// wake notifies a list of waiters, or gives it to the notifier.
func (m *watermark) wake(w *subscription) {
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
	if m.notifierGone.Load() { // and may have ended before it received the list
		m.drainNotifications()
	}
}

// drainNotifications notifies the lists that the notifier has not received.
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

// notifyLoop is the notifier: it notifies followers when the watermark advances, and a
// last time when the store closes or stops for good.
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

// await returns nil when the watermark is past a sequence, and otherwise the cause of
// the context or the terminal error of the store. The caller also notifies ch when the
// context ends.
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

// terminalError returns ErrClosed, or the failure that stopped the store for good, and
// nil while more records may become durable.
func (s *Store) terminalError() error {
	if isClosed(s.closing) {
		return events.ErrClosed
	}
	if isClosed(s.failStop.Lost()) {
		return s.failure()
	}
	return nil
}

// isClosed reports whether a channel that carries no values is closed. While it is
// open the check takes no lock, which a select with two channels would.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
