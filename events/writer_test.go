package events_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

var errNoResponse = errors.New("the line went dead")

// A lossyStore is a store behind a connection that fails. For each append, next
// decides whether the connection fails before the append reaches the store, after the
// store has handled it, or not at all.
type lossyStore struct {
	events.Store
	next func() (before, after bool)
}

func (w lossyStore) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	lost, unanswered := w.next()
	if lost {
		return errNoResponse
	}
	if err := w.Store.Append(ctx, s, after, records...); err != nil {
		return err
	}
	if unanswered {
		return errNoResponse
	}
	return nil
}

// losingResponse returns a lossyStore that fails only at the first append. stored
// decides whether the store has handled that append.
func losingResponse(store events.Store, stored bool) lossyStore {
	first := true
	return lossyStore{store, func() (bool, bool) {
		dies := first
		first = false
		return dies && !stored, dies && stored
	}}
}

func TestConcurrentAppendsOfOneWriterComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(store)
	w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
	const goroutines, each = 8, 10
	ends := make([][]events.Revision, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				got, err := w.Append(t.Context(), prompts(l, 2)...)
				if err != nil || len(got) != 2 || got[1].Revision != got[0].Revision+1 {
					t.Errorf("Append = %v, %v", got, err)
					return
				}
				ends[g] = append(ends[g], got[1].Revision)
			}
		})
	}
	wg.Wait()
	all := slices.Concat(ends...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != goroutines*each || w.Revision() != goroutines*each*2 {
		t.Errorf("%d appends ended at different revisions, the last at %d, want %d and %d", len(all), w.Revision(), goroutines*each, goroutines*each*2)
	}
	if got := storedIDs(t, store, w.Stream()); len(got) != goroutines*each*2 {
		t.Errorf("%d records, want %d", len(got), goroutines*each*2)
	}
}

func TestForeignAppendConflictsUntilTheWriterAdvances(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(store)
	w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
	if _, err := l.Append(t.Context(), w.Stream(), 0, prompts(l, 2)...); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := w.Append(t.Context(), prompts(l, 1)...)
		if c, ok := errors.AsType[*events.Conflict](err); !ok || c.Stream != w.Stream() || c.After != 0 {
			t.Fatalf("Append = %v, want a Conflict after 0", err)
		}
	}
	w.Advance(2)
	w.Advance(1)
	if got := w.Revision(); got != 2 {
		t.Errorf("Revision() = %d, want the greatest length it was told of", got)
	}
	if got, err := w.Append(t.Context(), prompts(l, 1)...); err != nil || got[0].Revision != 3 {
		t.Errorf("Append = %v, %v, want revision 3", got, err)
	}
	if got := storedIDs(t, store, w.Stream()); len(got) != 3 {
		t.Errorf("%d records, want 3: what conflicted was dropped", len(got))
	}
}

func TestUnacknowledgedAppendIsStoredOnceBeforeLaterDrafts(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"lost on the way": false, "stored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := eventstest.NewSlice()
			l := newLedger(losingResponse(store, stored))
			w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
			drafts := prompts(l, 5)
			if got, err := w.Append(t.Context(), drafts[:2]...); !errors.Is(err, errNoResponse) || got != nil || w.Revision() != 0 {
				t.Fatalf("Append = %v, %v at revision %d, want the error and 0", got, err, w.Revision())
			}
			got, err := w.Append(t.Context(), drafts[2:]...)
			if err != nil || len(got) != 3 || got[0].ID != drafts[2].ID || got[0].Revision != 3 || w.Revision() != 5 {
				t.Errorf("Append = %v, %v at revision %d", got, err, w.Revision())
			}
			if got, want := storedIDs(t, store, w.Stream()), idsOf(drafts); !slices.Equal(got, want) {
				t.Errorf("on record %v, want %v", got, want)
			}
		})
	}
}

func TestFlushResolvesAnOpenAppend(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"lost on the way": false, "stored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := eventstest.NewSlice()
			l := newLedger(losingResponse(store, stored))
			w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
			drafts := prompts(l, 2)
			want := slices.Clone(idsOf(drafts))
			if _, err := w.Append(t.Context(), drafts...); !errors.Is(err, errNoResponse) {
				t.Fatal(err)
			}
			drafts[0], drafts[1] = drafts[1], drafts[0] // the caller's to use again
			for range 2 {
				if err := w.Flush(t.Context()); err != nil || w.Revision() != 2 {
					t.Errorf("Flush = %v at revision %d, want 2", err, w.Revision())
				}
			}
			if got := storedIDs(t, store, w.Stream()); !slices.Equal(got, want) {
				t.Errorf("on record %v, want %v", got, want)
			}
		})
	}
}

func TestRetriedAppendIsStoredOnce(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"lost on the way": false, "stored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := eventstest.NewSlice()
			l := newLedger(losingResponse(store, stored))
			w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
			drafts := prompts(l, 2)
			if _, err := w.Append(t.Context(), drafts...); !errors.Is(err, errNoResponse) {
				t.Fatal(err)
			}
			got, err := w.Append(t.Context(), drafts...)
			if err != nil || len(got) != 2 || got[1].ID != drafts[1].ID || got[1].Revision != 2 || w.Revision() != 2 {
				t.Errorf("Append again = %v, %v at revision %d", got, err, w.Revision())
			}
			if got, want := storedIDs(t, store, w.Stream()), idsOf(drafts); !slices.Equal(got, want) {
				t.Errorf("on record %v, want %v", got, want)
			}
		})
	}
}

func TestAdvancePastAnUnacknowledgedAppendDoesNotRepeatIt(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(losingResponse(store, true))
	w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
	drafts := prompts(l, 3)
	if _, err := w.Append(t.Context(), drafts[:2]...); !errors.Is(err, errNoResponse) {
		t.Fatal(err)
	}
	w.Advance(events.Revision(len(storedIDs(t, store, w.Stream()))))
	if _, err := w.Append(t.Context(), drafts[2]); err != nil || w.Revision() != 3 {
		t.Errorf("Append = %v at revision %d, want 3", err, w.Revision())
	}
	if got, want := storedIDs(t, store, w.Stream()), idsOf(drafts); !slices.Equal(got, want) {
		t.Errorf("on record %v, want %v", got, want)
	}
}

func TestAdvancePastForeignRecordsIsAConflict(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(losingResponse(store, false))
	w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
	mine, theirs := prompts(l, 2), prompts(l, 3)
	if _, err := w.Append(t.Context(), mine...); !errors.Is(err, errNoResponse) {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), w.Stream(), 0, theirs...); err != nil {
		t.Fatal(err)
	}
	w.Advance(3)
	if err := w.Flush(t.Context()); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Flush = %v, want ErrConflict: what was open is not on record", err)
	}
	if err := w.Flush(t.Context()); err != nil || w.Revision() != 3 {
		t.Errorf("Flush = %v at revision %d, want nothing open and 3", err, w.Revision())
	}
	if got, want := storedIDs(t, store, w.Stream()), idsOf(theirs); !slices.Equal(got, want) {
		t.Errorf("on record %v, want %v", got, want)
	}
}

func TestEventThatCannotBeWrittenDoesNotBlockTheWriter(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(store)
	w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
	if _, err := w.Append(t.Context(), l.Draft(events.CallStarted{Input: []byte(`{`)}, domain.EventID{})); !errors.Is(err, events.ErrBadRecord) {
		t.Errorf("Append = %v, want ErrBadRecord", err)
	}
	if got, err := w.Append(t.Context(), prompts(l, 1)...); err != nil || got[0].Revision != 1 {
		t.Errorf("the next Append = %v, %v", got, err)
	}
}

func TestRandomFailuresStoreEveryDraftOnceInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(events.Rounds(50, 200)) {
		random := rand.New(rand.NewPCG(seed, 0))
		store := eventstest.NewSlice()
		l := newLedger(lossyStore{store, func() (bool, bool) { return random.IntN(4) == 0, random.IntN(4) == 0 }})
		w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
		var tried []domain.EventID // all drafts of the seed, in the order of their first Append
		for range 20 {
			drafts := prompts(l, 1+random.IntN(3))
			tried = append(tried, idsOf(drafts)...)
			for again := true; again; {
				_, err := w.Append(t.Context(), drafts...)
				if err != nil && !errors.Is(err, errNoResponse) {
					t.Fatalf("seed %d: Append = %v", seed, err)
				}
				again = err != nil
				if random.IntN(3) == 0 {
					w.Advance(events.Revision(len(storedIDs(t, store, w.Stream()))))
				}
			}
		}
		for w.Flush(t.Context()) != nil {
		}
		if got := storedIDs(t, store, w.Stream()); !slices.Equal(got, tried) || int(w.Revision()) != len(tried) {
			t.Fatalf("seed %d: %d on record at revision %d, want these %d once and in order", seed, len(got), w.Revision(), len(tried))
		}
	}
}

// Several goroutines share a writer, so the append of unknown outcome is often the
// append of another caller.
func TestDraftsBehindAnOpenAppendAreNotTriedAndSaySo(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"lost on the way": false, "stored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := eventstest.NewSlice()
			tries := 0
			l := newLedger(lossyStore{store, func() (bool, bool) {
				tries++
				return tries <= 2 && !stored, tries <= 2 && stored
			}})
			w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
			theirs, mine, later := prompts(l, 2), prompts(l, 1), prompts(l, 1)
			if _, err := w.Append(t.Context(), theirs...); !errors.Is(err, errNoResponse) || events.Refused(err) {
				t.Fatalf("Append = %v, want an open outcome", err)
			}
			got, err := w.Append(t.Context(), mine...)
			if !errors.Is(err, events.ErrNotTried) || !errors.Is(err, errNoResponse) || !events.Refused(err) || got != nil {
				t.Fatalf("Append behind it = %v, %v, want ErrNotTried with the cause", got, err)
			}
			if _, err := w.Append(t.Context(), later...); err != nil {
				t.Fatal(err)
			}
			if got, want := storedIDs(t, store, w.Stream()), idsOf(append(theirs, later...)); !slices.Equal(got, want) {
				t.Errorf("on record %v, want %v: what was not tried is not kept", got, want)
			}
		})
	}
}

func TestAppendInAContextThatEndedIsNotTried(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	tries := 0
	l := newLedger(lossyStore{store, func() (bool, bool) { tries++; return tries == 1, false }})
	w := l.Writer(events.SessionStream(l.Mint().Session()), 0)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	open := prompts(l, 1)
	if _, err := w.Append(ctx, open...); !errors.Is(err, errNoResponse) {
		t.Fatal(err)
	}
	cancel(gone)
	if _, err := w.Append(ctx, prompts(l, 1)...); !errors.Is(err, events.ErrNotTried) || !errors.Is(err, gone) || tries != 1 {
		t.Fatalf("Append = %v after %d tries, want ErrNotTried with the cause after 1", err, tries)
	}
	// The drafts may be stored, so the error must leave their outcome unknown.
	if _, err := w.Append(ctx, open...); err == nil || events.Refused(err) {
		t.Fatalf("Append of the open drafts = %v, want an open outcome", err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := storedIDs(t, store, w.Stream()); !slices.Equal(got, idsOf(open)) {
		t.Errorf("on record %v, want %v", got, idsOf(open))
	}
}
