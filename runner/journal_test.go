package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

var errLine = errors.New("the connection is lost")

// A failingStore fails its next append with an error, before or after the append was
// added.
type failingStore struct {
	*eventstest.Slice
	err   error
	added bool
}

func (s *failingStore) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	err := s.err
	if s.err = nil; err == nil || s.added {
		err = errors.Join(s.Slice.Append(ctx, stream, after, records...), err)
	}
	return err
}

// A call whose start may be on record counts as begun, and its end is caused by that
// start. A call whose start was refused did not begin.
func TestStartCountsUnlessItsAppendWasRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		added bool
		began bool
	}{
		"recorded":              {nil, true, true},
		"lost before the store": {errLine, false, true},
		"lost behind the store": {errLine, true, true},
		"too large":             {events.ErrTooLarge, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &failingStore{Slice: eventstest.NewSlice()}
			l := events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now)
			j := newJournal(l, l.Writer(events.SessionStream(l.Mint().Session()), 0))
			message, reply := l.Mint().Message(), l.Mint().Event()
			a := openCall{message: message, reply: reply}
			a.ID = "c1"
			j.track(a)
			store.err, store.added = c.err, c.added
			start := l.Draft(events.CallStarted{Message: message, Call: "c1"}, domain.EventID{})
			if err := j.Begin(t.Context(), start); !errors.Is(err, c.err) {
				t.Fatalf("Begin = %v, want %v", err, c.err)
			}
			recorded, err := j.Recorded(t.Context(), message, "c1")
			if err != nil || recorded.Began != c.began {
				t.Errorf("Recorded = %+v, %v, want began %t", recorded, err, c.began)
			}
			end := l.Draft(events.CallSettled{Message: message, Call: "c1"}, domain.EventID{})
			if err := j.Settle(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			cause := reply
			if c.began {
				cause = start.ID
			}
			var kinds []string
			for v, err := range l.Read(t.Context(), j.writer.Stream(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				if kinds = append(kinds, v.Event.Kind()); v.ID == end.ID && v.Causation != cause {
					t.Errorf("the end comes of %s, want %s", v.Causation, cause)
				}
			}
			if started := len(kinds) == 2; started != c.began {
				t.Errorf("on record %v, want a start: %t", kinds, c.began)
			}
		})
	}
}

// A hookedStore calls a function within its next append.
type hookedStore struct {
	*eventstest.Slice
	within func()
}

func (s *hookedStore) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if within := s.within; within != nil {
		s.within = nil
		within()
	}
	return s.Slice.Append(ctx, stream, after, records...)
}

// A call whose end is being recorded adds no calls: they would follow its end in the log.
func TestACallWhoseEndIsBeingRecordedAddsNoCalls(t *testing.T) {
	t.Parallel()
	store := &hookedStore{Slice: eventstest.NewSlice()}
	l := events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now)
	j := newJournal(l, l.Writer(events.SessionStream(l.Mint().Session()), 0))
	key := messageCall{l.Mint().Message(), "c1"}
	a := openCall{message: key.message, reply: l.Mint().Event()}
	a.ID = key.call
	j.track(a)
	add := func() error {
		_, err := j.add(t.Context(), key, []domain.Call{{Name: "echo", Input: []byte("{}")}})
		return err
	}
	if err := j.Begin(t.Context(), l.Draft(events.CallStarted{Message: key.message, Call: key.call}, domain.EventID{})); err != nil {
		t.Fatal(err)
	}
	if err := add(); err != nil {
		t.Fatalf("add = %v for a call that runs", err)
	}
	added := make(chan error, 1)
	reserved := func() int {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.mu.reserved)
	}
	store.within = func() {
		before := reserved()
		go func() { added <- add() }()
		for len(added) == 0 && reserved() == before {
			runtime.Gosched() // until the addition is refused, or waits for the writer
		}
	}
	if err := j.Settle(t.Context(), l.Draft(events.CallSettled{Message: key.message, Call: key.call}, domain.EventID{})); err != nil {
		t.Fatal(err)
	}
	if err := <-added; !errors.Is(err, ErrNotRunning) {
		t.Errorf("add = %v while the end is recorded, want %v", err, ErrNotRunning)
	}
}
