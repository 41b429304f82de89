package embedded

import (
	"context"

	"github.com/settlement-ledger/ledger/events"
)

// A subscription is one waiter for the next advance of the watermark. It is an
// element of a linked list, and next is the subscription that was made before it.
// Each waiter has a channel of its own, because a thousand goroutines on one channel
// contend for its lock.
type subscription struct {
	ch    chan<- struct{} // of capacity 1
	count int             // subscriptions in the list from this one on
	next  *subscription
}

// subscribe adds a channel to the list of this state; the next advance sends to it.
// The caller must then call superseded. If superseded returns true, the list may
// already have been notified without this channel, and the caller must not wait.
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

// maxAbandoned bounds the number of abandoned subscriptions in a list. A waiter
// cannot remove itself from the linked list.
const maxAbandoned = 1 << 10

// unsubscribe marks the subscription of a waiter whose context has ended as abandoned. A
// single entry cannot be removed from the linked list of waiters, so every maxAbandoned
// calls unsubscribe empties the list and notifies all its channels. Waiters whose contexts
// have not ended then find the watermark unchanged and subscribe again.
func (at *watermarkState) unsubscribe() {
	if at.abandoned.Add(1)%maxAbandoned == 0 {
		at.waiters.Swap(nil).notify()
	}
}

// superseded reports whether a channel that was added to the list of a state may never
// be notified. That is so if the watermark has advanced since the caller loaded the
// state, or if the notifier has ended.
func (m *watermark) superseded(at *watermarkState) bool {
	return m.notifierGone.Load() || m.current.Load() != at
}

// notify sends to every channel of the list. It does not block: a channel that is
// full has a notification that its waiter has not received yet.
func (w *subscription) notify() {
	for ; w != nil; w = w.next {
		select {
		case w.ch <- struct{}{}:
		default: // it has a notification that was not received yet
		}
	}
}

// notifyInline is the largest number of waiters that the committing goroutine notifies
// itself, which is faster than the notifier. The notifier takes longer lists, so that
// appends do not wait for them.
const notifyInline = 4

// wake notifies the subscriptions of a list. It notifies a short list itself and
// passes a longer one to the notifier. If the channel to the notifier is full, wake
// notifies the list itself. If the notifier has ended, wake also notifies the lists
// that are still in the channel.
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

// notifyLoop is the notifier. It notifies the lists that wake gives it. When the
// store closes or stops for good, it notifies every waiter once more and ends; the
// waiters then find the terminal error. The first follower starts it, and Close joins
// it.
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

// await waits until the watermark is past a sequence and returns nil. It returns the
// cause of ctx if that ends first, and otherwise the terminal error of the store. The
// caller must send to ch when ctx ends, so that await waits on one channel. It
// subscribes to the state that it has compared with after, so it cannot miss an
// advance in between.
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

// terminalError returns the error after which no record becomes durable: ErrClosed,
// or the failure that stopped the store for good. It returns nil for an open or a
// paused store.
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
