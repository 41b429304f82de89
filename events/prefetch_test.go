package events_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

// ledgerWithPrompts returns a ledger with n prompts in two streams, some of them large.
func ledgerWithPrompts(t *testing.T, n int) (*events.Ledger, *eventstest.Slice) {
	t.Helper()
	store := eventstest.NewSlice()
	l := newLedger(store)
	streams := []events.Stream{events.SessionStream(l.Mint().Session()), events.SessionStream(l.Mint().Session())}
	for i := range n {
		text := fmt.Sprint("prompt ", i)
		if i%500 == 7 {
			text += strings.Repeat(" and a long one", 72<<10)
		}
		d := l.Draft(events.PromptAdmitted{Message: l.Mint().Message(), Text: text}, domain.EventID{})
		if _, err := l.Append(t.Context(), streams[i%2], events.Revision(i/2), d); err != nil {
			t.Fatal(err)
		}
	}
	return l, store
}

func TestScanAndScanAheadYieldTheEventsOfReadAll(t *testing.T) {
	t.Parallel()
	l, _ := ledgerWithPrompts(t, 1100)
	var want []events.Envelope
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, v)
	}
	for name, scan := range map[string]func(events.Query) ([]events.Envelope, error){
		"Scan":      func(q events.Query) ([]events.Envelope, error) { return collectEvents(l.Scan(t.Context(), q)) },
		"ScanAhead": func(q events.Query) ([]events.Envelope, error) { return collectEvents(l.ScanAhead(t.Context(), q)) },
	} {
		for _, from := range []int{0, 1, 300, 1099} {
			q := events.Query{}
			if from > 0 {
				q.After = want[from-1].Position
			}
			if got, err := scan(q); err != nil || !reflect.DeepEqual(got, want[from:]) {
				t.Errorf("%s from %d yields %d events, %v, want %d, the same", name, from, len(got), err, len(want)-from)
			}
		}
		if got, err := scan(events.Query{Filter: events.Filter{Kinds: []string{"SessionOpened"}}}); err != nil || len(got) > 0 {
			t.Errorf("%s of another kind yields %d events, %v", name, len(got), err)
		}
		if got, err := scan(events.Query{Filter: events.Filter{Kinds: []string{""}}}); !errors.Is(err, events.ErrBadQuery) || len(got) > 0 {
			t.Errorf("%s of what is no query yields %d events, %v, want ErrBadQuery", name, len(got), err)
		}
	}
}

// collectEvents returns the events that a sequence yields.
func collectEvents(seq func(func(events.Envelope, error) bool)) (all []events.Envelope, err error) {
	for v, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

func TestScanAheadYieldsTheEventsBeforeADamagedRecord(t *testing.T) {
	t.Parallel()
	l, store := ledgerWithPrompts(t, 700)
	s := events.SessionStream(l.Mint().Session())
	bad := events.Record{ID: l.Mint().Event(), Kind: "PromptAdmitted", Version: 1, Time: l.Now(), Data: []byte(`{"message":7}`)}
	if err := store.Append(t.Context(), s, 0, bad); err != nil {
		t.Fatal(err)
	}
	d := l.Draft(events.PromptAdmitted{Text: "behind"}, domain.EventID{})
	if _, err := l.Append(t.Context(), s, 1, d); err != nil {
		t.Fatal(err)
	}
	got, err := collectEvents(l.ScanAhead(t.Context(), events.Query{}))
	if len(got) != 700 || !errors.Is(err, events.ErrDamaged) {
		t.Errorf("it yields %d events and %v, want 700 and ErrDamaged", len(got), err)
	}
}

func TestScanAheadStopsWithItsContextAndItsLoop(t *testing.T) {
	t.Parallel()
	l, _ := ledgerWithPrompts(t, 1100)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	n, failed := 0, error(nil)
	for _, err := range l.ScanAhead(ctx, events.Query{}) {
		if n++; n == 10 {
			cancel(enough)
		}
		failed = err
	}
	if !errors.Is(failed, enough) || n >= 1100 {
		t.Errorf("after %d events it ends with %v, want the cause at once", n, failed)
	}
	for range l.ScanAhead(t.Context(), events.Query{}) {
		break
	}
}

// A halting store has its reader's context end after some entries.
type halting struct {
	events.Store
	halt func()
}

func (h halting) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		n := 0
		for e, err := range h.Store.ReadAll(ctx, after) {
			if n++; n == 8 {
				h.halt()
				yield(events.Entry{}, context.Cause(ctx))
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func TestCancelledScanAheadNeverEndsWithoutAnError(t *testing.T) {
	t.Parallel()
	l, store := ledgerWithPrompts(t, 20)
	enough := errors.New("enough")
	for range 64 { // as the goroutines may notice it in any order
		ctx, cancel := context.WithCancelCause(t.Context())
		halting := events.NewLedger(halting{store, func() { cancel(enough) }}, l.Mint(), time.Now)
		if got, err := collectEvents(halting.ScanAhead(ctx, events.Query{})); !errors.Is(err, enough) {
			t.Fatalf("after %d events it ends with %v, want the cause", len(got), err)
		}
	}
}

func TestHeadOfAStoreWithoutScannerIsEmpty(t *testing.T) {
	t.Parallel()
	l, _ := ledgerWithPrompts(t, 3)
	if h, ok, err := l.Head(t.Context()); ok || err != nil {
		t.Errorf("Head of a store that is no Scanner = %v, %v, %v, want none", h, ok, err)
	}
}
