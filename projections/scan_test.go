package projections_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A lender is a Scanner over a slice. Like a store that reuses buffers, it overwrites
// the bytes of a lent entry when the body of the loop has ended.
type lender struct {
	*eventstest.Slice
	mu sync.Mutex
	// lent counts the entries that Lend yielded.
	lent int
}

// Scan, Headers and Split evaluate a query on the slice.
func (l *lender) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return events.Scan(ctx, l.Slice, q)
}

// Lend yields the entries of a query and overwrites their bytes after each step of
// the loop.
func (l *lender) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range events.Scan(ctx, l.Slice, q) {
			e.Data, e.Metadata = bytes.Clone(e.Data), bytes.Clone(e.Metadata)
			l.mu.Lock()
			l.lent++
			l.mu.Unlock()
			more := yield(e, err)
			for _, b := range [][]byte{e.Data, e.Metadata} {
				for i := range b {
					b[i] = '#'
				}
			}
			if !more {
				return
			}
		}
	}
}

func (l *lender) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	return events.Headers(ctx, l.Slice, q)
}

func (l *lender) Split(ctx context.Context, q events.Query, parts int) ([]events.Query, error) {
	return events.Split(ctx, l.Slice, q, parts)
}

// lenderOf returns a ledger over the store of a desk that can scan, and the lender
// beneath it.
func lenderOf(d *desk) (*events.Ledger, *lender) {
	l := &lender{Slice: d.store}
	return events.NewLedger(l, d.ledger.Mint(), d.ledger.Now), l
}

// reading is the projection prompts with a filter of the kind that it reads.
func reading() projections.Projection[*titles] {
	p := prompts(1)
	p.Reads = events.Filter{Kinds: []string{"PromptAdmitted"}}
	return p
}

// pass appends n events that reading skips to the desk's stream.
func (d *desk) pass(t *testing.T, n int) {
	t.Helper()
	for range n {
		draft := d.ledger.Draft(events.SessionInterrupted{Reason: domain.ByUser}, domain.EventID{})
		if _, err := d.ledger.Append(t.Context(), d.stream(), d.length(t), draft); err != nil {
			t.Fatal(err)
		}
	}
}

// length returns the number of records in the desk's stream.
func (d *desk) length(t *testing.T) (n events.Revision) {
	t.Helper()
	for _, err := range d.store.Read(t.Context(), d.stream(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// say appends a prompt with a text to the end of the desk's stream.
func (d *desk) say(t *testing.T, text string) {
	t.Helper()
	draft := d.ledger.Draft(events.PromptAdmitted{Message: d.ledger.Mint().Message(), Text: text}, domain.EventID{})
	if _, err := d.ledger.Append(t.Context(), d.stream(), d.length(t), draft); err != nil {
		t.Fatal(err)
	}
}

// The position of a view and Await include the events that the projection skips, on a
// store that scans and on one that does not.
func TestAViewReachesTheEndOverEventsThatItDoesNotRead(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	d.say(t, "one")
	d.pass(t, 3)
	d.say(t, "two")
	d.pass(t, 2)
	lending, _ := lenderOf(d)
	for name, ledger := range map[string]*events.Ledger{"a store that scans": lending, "one that does not": d.ledger} {
		v := projections.NewView(reading(), ledger, nil)
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := texts(v), []string{"one", "two"}; !slices.Equal(got, want) {
			t.Errorf("%s: the answer is %v, want %v", name, got, want)
		}
		for revision := range events.Revision(8) {
			if err := v.Await(t.Context(), d.stream(), revision); err != nil {
				t.Errorf("%s: Await(%d) = %v", name, revision, err)
			}
		}
		if got, want := v.Position(), events.NewPosition(7, 7); got != want {
			t.Errorf("%s: the view is at %s, want the end, %s", name, got, want)
		}
	}
}

// While a view runs, Await returns for each event as it is appended, folded or
// skipped.
func TestAwaitReturnsForAnEventThatIsSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1)
		d.say(t, "one")
		v := projections.NewView(reading(), d.ledger, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = v.Run(ctx) })
		returned := make([]bool, 5)
		for revision := range returned {
			group.Go(func() {
				if err := v.Await(ctx, d.stream(), events.Revision(revision)); err != nil {
					t.Errorf("Await(%d) = %v", revision, err)
				}
				returned[revision] = true
			})
		}
		for length := 1; length <= 4; length++ {
			synctest.Wait()
			for revision, is := range returned {
				if is != (revision <= length) {
					t.Errorf("with %d events, Await(%d) returned: %v", length, revision, is)
				}
			}
			d.pass(t, 1)
		}
		group.Go(func() { cancel(errDone) })
		group.Wait()
	})
}

// In a store that scans, a damaged event of a kind that the projection does not read
// is no error.
func TestADamagedEventThatIsNotReadIsSkipped(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	d.say(t, "one")
	bad := events.Record{ID: d.ledger.Mint().Event(), Kind: "SessionInterrupted", Version: 1, Time: d.ledger.Now(), Data: []byte(`{"reason":7}`)}
	if err := d.store.Append(t.Context(), d.stream(), 1, bad); err != nil {
		t.Fatal(err)
	}
	d.say(t, "two")
	ledger, _ := lenderOf(d)
	v := projections.NewView(reading(), ledger, nil)
	if err := v.Refresh(t.Context()); err != nil || len(texts(v)) != 2 {
		t.Errorf("Refresh = %v and the answer %v, want both prompts", err, texts(v))
	}
}

// A view that loads a checkpoint does not read the events again that the earlier view
// skipped.
func TestACheckpointCoversSkippedEvents(t *testing.T) {
	t.Parallel()
	d, kept := newDesk(1), &memory{}
	d.say(t, "one")
	d.pass(t, 50)
	ledger, store := lenderOf(d)
	v := projections.NewView(reading(), ledger, kept)
	if err := v.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	store.lent = 0
	again := projections.NewView(reading(), ledger, kept)
	if err := again.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := texts(again); !slices.Equal(got, []string{"one"}) || store.lent > 0 || again.Position() != v.Position() {
		t.Errorf("the answer is %v at %s after %d entries, want [one] at %s after none", got, again.Position(), store.lent, v.Position())
	}
}

// A view ignores the checkpoint of a log that has another event at its position, even
// if the logs begin alike.
func TestACheckpointOfALogWithAnotherEndIsIgnored(t *testing.T) {
	t.Parallel()
	kept := &memory{}
	one, other := newDesk(1), newDesk(1)
	for _, d := range []*desk{one, other} {
		d.say(t, "first")
	}
	one.pass(t, 2)
	other.say(t, "second")
	other.pass(t, 1)
	ledger, _ := lenderOf(one)
	if err := projections.NewView(reading(), ledger, kept).Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	ledger, _ = lenderOf(other)
	v := projections.NewView(reading(), ledger, kept)
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := texts(v), []string{"first", "second"}; !slices.Equal(got, want) {
		t.Errorf("the answer is %v, want %v", got, want)
	}
}

// Rebuild, which decodes events in parallel, gives the state of folding the log in
// order.
func TestARebuildIsTheFold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(1, 4)) {
		d := newDesk(seed)
		if err := projectionstest.Append(t.Context(), d.store, projectionstest.History(seed, 1500)); err != nil {
			t.Fatal(err)
		}
		ledger, _ := lenderOf(d)
		want, err := projections.Fold(everything(), nil, d.ledger.ReadAll(t.Context(), events.Position{}))
		if err != nil {
			t.Fatal(err)
		}
		for name, l := range map[string]*events.Ledger{"a store that scans": ledger, "one that does not": d.ledger} {
			v := projections.NewView(everything(), l, nil)
			for range 2 {
				if err := v.Rebuild(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				v.Read(func(got []events.Envelope) {
					if !reflect.DeepEqual(got, want) {
						t.Errorf("seed %d: a rebuild from %s folds %d events, want the %d of the log", seed, name, len(got), len(want))
					}
				})
			}
		}
	}
}

// everything is a projection whose state is the list of all events.
func everything() projections.Projection[[]events.Envelope] {
	return projections.Projection[[]events.Envelope]{
		Name: "everything", Version: 1, Init: func() []events.Envelope { return nil },
		Apply: func(s []events.Envelope, v events.Envelope) []events.Envelope { return append(s, v) },
	}
}

// Rebuild folds the whole log each time, reports its counts at the end and saves a
// checkpoint. Rate and Left follow from the counts.
func TestRebuildStartsAtZeroAndReportsProgress(t *testing.T) {
	t.Parallel()
	d, kept := newDesk(1), &memory{}
	d.prompt(t, 30)
	d.pass(t, 3)
	ledger, _ := lenderOf(d)
	applied := 0
	p := counted(reading(), &applied)
	v := projections.NewView(p, ledger, kept)
	for range 2 {
		var last projections.RebuildProgress
		if err := v.Rebuild(t.Context(), func(p projections.RebuildProgress) { last = p }); err != nil {
			t.Fatal(err)
		}
		if last.Events != 30 || last.Total != 30 || last.Bytes == 0 || last.At != v.Position() {
			t.Errorf("the last progress is %+v, want 30 of 30 events at %s", last, v.Position())
		}
	}
	if got, want := texts(v), want(30); !slices.Equal(got, want) || applied != 60 {
		t.Errorf("the answer is %v after %d events, want %v after twice 30", got, applied, want)
	}
	again := projections.NewView(counted(reading(), &applied), ledger, kept)
	if err := again.Refresh(t.Context()); err != nil || applied != 60 {
		t.Errorf("Refresh = %v after folding %d more, want none, as the rebuild left a checkpoint", err, applied-60)
	}
}

// Run saves a checkpoint a minute after the last one, however few events it has
// folded.
func TestRunSavesAMinuteAfterTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, kept := newDesk(1), &memory{}
		ctx, cancel := context.WithCancelCause(t.Context())
		v := projections.NewView(prompts(1), d.ledger, kept)
		var group sync.WaitGroup
		group.Go(func() { _ = v.Run(ctx) })
		for i, saved := range []bool{false, false, true} {
			synctest.Wait()
			time.Sleep(29 * time.Second)
			d.prompt(t, 1)
			synctest.Wait()
			time.Sleep(time.Second)
			if data, _ := kept.LoadCheckpoint(ctx, "prompts"); (data != nil) != saved {
				t.Errorf("after %d events in %d s there is a checkpoint: %v, want %v", i+1, 30*(i+1), data != nil, saved)
			}
		}
		cancel(errDone)
		group.Wait()
	})
}

// A fold that takes longer than a minute saves a checkpoint before it has caught up,
// and a fold after an error continues there.
func TestALongFoldSavesOnTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, kept := newDesk(1), &memory{}
		var records []events.Record
		for i := range 4200 {
			r, err := events.Encode(d.ledger.Draft(events.PromptAdmitted{Text: fmt.Sprint(i)}, domain.EventID{}))
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		records[4199].Data = []byte(`{"message":7}`)
		if err := d.store.Append(t.Context(), d.stream(), 0, records...); err != nil {
			t.Fatal(err)
		}
		applied := 0
		slow := counted(prompts(1), &applied)
		apply := slow.Apply
		slow.Apply = func(s *titles, v events.Envelope) *titles {
			time.Sleep(20 * time.Millisecond)
			return apply(s, v)
		}
		for _, want := range []int{4199, 4199 - 4096} {
			applied = 0
			if err := projections.NewView(slow, d.ledger, kept).Refresh(t.Context()); !errors.Is(err, events.ErrDamaged) {
				t.Errorf("Refresh = %v, want ErrDamaged", err)
			}
			if applied != want {
				t.Errorf("%d events were folded, want %d", applied, want)
			}
		}
	})
}

// repeats returns how often a test repeats: short, or long if the environment sets
// LEDGER_TEST_LONG.
func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}
