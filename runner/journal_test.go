package runner

import (
	"context"
	"crypto/rand"
	"errors"
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
