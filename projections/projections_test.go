package projections_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
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

// titles is the state of the projections of these tests: the texts of all prompts, in
// order.
type titles struct {
	Texts []string `json:"texts"`
}

// prompts returns the projection to titles, in a version. It reads every kind.
func prompts(version int) projections.Projection[*titles] {
	return projections.Projection[*titles]{
		Name: "prompts", Version: version,
		Init: func() *titles { return &titles{} },
		Apply: func(s *titles, v events.Envelope) *titles {
			if e, ok := v.Event.(events.PromptAdmitted); ok {
				s.Texts = append(s.Texts, e.Text)
			}
			return s
		},
	}
}

// counted returns p with an Apply that counts its calls in n.
func counted(p projections.Projection[*titles], n *int) projections.Projection[*titles] {
	apply := p.Apply
	p.Apply = func(s *titles, v events.Envelope) *titles {
		*n++
		return apply(s, v)
	}
	return p
}

// A memory is a Checkpoints in a map. It is safe for concurrent use.
type memory struct {
	mu struct {
		sync.Mutex
		kept map[string][]byte
	}
}

// SaveCheckpoint stores a copy of data.
func (m *memory) SaveCheckpoint(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.kept == nil {
		m.mu.kept = map[string][]byte{}
	}
	m.mu.kept[name] = slices.Clone(data)
	return nil
}

// LoadCheckpoint returns a copy of the data under a name, or nil.
func (m *memory) LoadCheckpoint(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mu.kept[name]), nil
}

// A full is a Checkpoints whose saves fail with errFull.
type full struct{ memory }

// errFull is the error of every save of a full.
var errFull = errors.New("disk is full")

func (*full) SaveCheckpoint(context.Context, string, []byte) error { return errFull }

// A desk is a ledger over a slice, with the stream of one session of n events.
type desk struct {
	ledger  *events.Ledger
	store   *eventstest.Slice
	session domain.SessionID
	n       int
}

// newDesk returns an empty desk. Equal seeds give equal IDs.
func newDesk(seed uint64) *desk {
	log, store := projectionstest.NewLog(seed), eventstest.NewSlice()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &desk{ledger: events.NewLedger(store, log.Mint, func() time.Time { return at }), store: store, session: log.Mint.Session()}
}

// stream returns the session's stream.
func (d *desk) stream() events.Stream { return events.SessionStream(d.session) }

// prompt appends n prompts, whose texts are their numbers from 0.
func (d *desk) prompt(t *testing.T, n int) {
	t.Helper()
	for range n {
		draft := d.ledger.Draft(events.PromptAdmitted{Message: d.ledger.Mint().Message(), Text: fmt.Sprint(d.n)}, domain.EventID{})
		if _, err := d.ledger.Append(t.Context(), d.stream(), events.Revision(d.n), draft); err != nil {
			t.Fatal(err)
		}
		d.n++
	}
}

// texts returns a copy of the texts in the state of v.
func texts(v *projections.View[*titles]) (texts []string) {
	v.Read(func(s *titles) { texts = slices.Clone(s.Texts) })
	return texts
}

// want returns the texts of the first n prompts of a desk.
func want(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// Fold returns the error of its sequence and the state of the events before it.
func TestFoldEndsAtAnErrorWithTheAnswerUntilThen(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(1, 40)
	broken := errors.New("broken")
	got, err := projections.Fold(kinds(), map[string]int{}, func(yield func(events.Envelope, error) bool) {
		for _, v := range history {
			if !yield(v, nil) {
				return
			}
		}
		yield(events.Envelope{}, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("Fold = %v, want the error of the sequence", err)
	}
	want := map[string]int{}
	for _, v := range history {
		want[v.Event.Kind()]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("Fold = %v, want %v", got, want)
	}
}

// kinds counts events by kind.
func kinds() projections.Projection[map[string]int] {
	return projections.Projection[map[string]int]{
		Name: "kinds", Version: 1,
		Init: func() map[string]int { return map[string]int{} },
		Apply: func(s map[string]int, v events.Envelope) map[string]int {
			s[v.Event.Kind()]++
			return s
		},
	}
}

// Refresh folds to the end that the log has when it is called.
func TestRefreshFoldsToThePresentEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	v := projections.NewView(prompts(1), d.ledger, nil)
	for n := range 3 {
		d.prompt(t, n)
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := texts(v), want(d.n); !slices.Equal(got, want) {
			t.Errorf("after %d prompts the answer is %v, want %v", d.n, got, want)
		}
	}
}

// Await returns at once for an event that the view has folded, and for revision 0.
func TestAwaitReturnsWhatWasFoldedBefore(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	d.prompt(t, 3)
	v := projections.NewView(prompts(1), d.ledger, nil)
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for revision := range events.Revision(4) {
		if err := v.Await(t.Context(), d.stream(), revision); err != nil {
			t.Errorf("Await(%d) = %v", revision, err)
		}
	}
}

// Await returns after its event is folded and not before, and Read then sees the
// event.
func TestAwaitReturnsOnceTheEventIsFolded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1)
		d.prompt(t, 1)
		v := projections.NewView(prompts(1), d.ledger, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if err := v.Run(ctx); !errors.Is(err, errDone) {
				t.Errorf("Run = %v, want the cause", err)
			}
		})
		returned := false
		group.Go(func() {
			if err := v.Await(ctx, d.stream(), 3); err != nil {
				t.Errorf("Await = %v", err)
			}
			returned = true
			if got, want := texts(v), want(3); !slices.Equal(got[:3], want) {
				t.Errorf("after Await(3) the answer is %v, want %v", got, want)
			}
		})
		d.prompt(t, 1)
		synctest.Wait()
		if returned {
			t.Error("Await(3) returned after the second event")
		}
		d.prompt(t, 1)
		synctest.Wait()
		if !returned {
			t.Error("Await(3) waits after the third event was folded")
		}
		cancel(errDone)
		group.Wait()
	})
}

// errDone is the cause with which the tests end a view.
var errDone = errors.New("done")

// Loading a checkpoint wakes the waiters for events that it holds.
func TestAwaitReturnsWhenACheckpointHoldsTheEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, kept := newDesk(1), &memory{}
		d.prompt(t, 5)
		runOnce(t, projections.NewView(prompts(1), d.ledger, kept), d)
		applied := 0
		v := projections.NewView(counted(prompts(1), &applied), d.ledger, kept)
		var group sync.WaitGroup
		group.Go(func() {
			if err := v.Await(t.Context(), d.stream(), 5); err != nil {
				t.Errorf("Await = %v", err)
			}
		})
		synctest.Wait()
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		group.Wait()
		if applied != 0 {
			t.Errorf("%d events were folded, though the checkpoint holds all", applied)
		}
	})
}

// Await returns the cause of its context when that ends.
func TestAwaitEndsWithTheCauseOfItsContext(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	v := projections.NewView(prompts(1), d.ledger, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDone)
	if err := v.Await(ctx, d.stream(), 1); !errors.Is(err, errDone) {
		t.Errorf("Await = %v, want the cause", err)
	}
}

// runOnce runs a view until it has folded every prompt of d. Run then ends and saves
// a checkpoint.
func runOnce(t *testing.T, v *projections.View[*titles], d *desk) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := v.Run(ctx); !errors.Is(err, errDone) {
			t.Errorf("Run = %v, want the cause", err)
		}
	})
	if err := v.Await(t.Context(), d.stream(), events.Revision(d.n)); err != nil {
		t.Error(err)
	}
	cancel(errDone)
	group.Wait()
}

// A new view folds only the events after the checkpoint.
func TestRunContinuesFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	d, kept := newDesk(1), &memory{}
	d.prompt(t, 5)
	runOnce(t, projections.NewView(prompts(1), d.ledger, kept), d)
	d.prompt(t, 2)
	applied := 0
	v := projections.NewView(counted(prompts(1), &applied), d.ledger, kept)
	runOnce(t, v, d)
	if got, want := texts(v), want(7); !slices.Equal(got, want) || applied != 2 {
		t.Errorf("the answer is %v after folding %d events, want %v after 2", got, applied, want)
	}
}

// Refresh saves a checkpoint after 1,000 events, so that the next view folds the
// events after it alone.
func TestRefreshSavesOnceEnoughWasFolded(t *testing.T) {
	t.Parallel()
	d, kept := newDesk(1), &memory{}
	d.prompt(t, 999)
	refresh := func() (applied int) {
		v := projections.NewView(counted(prompts(1), &applied), d.ledger, kept)
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := texts(v), want(d.n); !slices.Equal(got, want) {
			t.Errorf("the answer is %v, want %v", got, want)
		}
		return applied
	}
	for _, step := range []struct{ more, applied int }{{0, 999}, {0, 999}, {6, 1005}, {0, 0}, {1, 1}, {2, 3}} {
		d.prompt(t, step.more)
		if got := refresh(); got != step.applied {
			t.Errorf("of %d events Refresh folded %d, want %d", d.n, got, step.applied)
		}
	}
}

// Run saves a checkpoint when it has caught up and has folded 1,000 events.
func TestRunSavesOnceItHasCaughtUpWithEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, kept := newDesk(1), &memory{}
		ctx, cancel := context.WithCancelCause(t.Context())
		v := projections.NewView(prompts(1), d.ledger, kept)
		var group sync.WaitGroup
		group.Go(func() { _ = v.Run(ctx) })
		for _, step := range []struct {
			more  int
			saved bool
		}{{999, false}, {1, true}} {
			d.prompt(t, step.more)
			synctest.Wait()
			if data, _ := kept.LoadCheckpoint(ctx, "prompts"); (data != nil) != step.saved {
				t.Errorf("after %d events there is a checkpoint: %v, want %v", d.n, data != nil, step.saved)
			}
		}
		cancel(errDone)
		group.Wait()
	})
}

// A view ignores a checkpoint of another version, log or set of kinds, and an invalid
// one, and folds the whole log.
func TestACheckpointThatDoesNotMatchIsIgnored(t *testing.T) {
	t.Parallel()
	d, good := newDesk(1), &memory{}
	d.prompt(t, 5)
	runOnce(t, projections.NewView(prompts(1), d.ledger, good), d)
	data, err := good.LoadCheckpoint(t.Context(), "prompts")
	if err != nil || len(data) == 0 {
		t.Fatalf("the checkpoint is %q, %v", data, err)
	}
	other := newDesk(2)
	other.prompt(t, 5)
	shorter := newDesk(1)
	shorter.prompt(t, 4)
	for name, c := range map[string]struct {
		d       *desk
		version int
		data    []byte
	}{
		"another version": {d, 2, data},
		"another log":     {other, 1, data},
		"ahead":           {shorter, 1, data},
		"other kinds":     {d, 1, regexp.MustCompile(`"kinds":\d+`).ReplaceAll(data, []byte(`"kinds":7`))},
		"kinds unsaid":    {d, 1, regexp.MustCompile(`"kinds":\d+,`).ReplaceAll(data, nil)},
		"torn":            {d, 1, data[:len(data)/2]},
		"null":            {d, 1, []byte("null")},
		"no state":        {d, 1, []byte(`{"projection":"prompts","version":1,"position":"5","state":null}`)},
		"not JSON":        {d, 1, []byte("?")},
	} {
		kept, applied := &memory{}, 0
		if err := kept.SaveCheckpoint(t.Context(), "prompts", c.data); err != nil {
			t.Fatal(err)
		}
		v := projections.NewView(counted(prompts(c.version), &applied), c.d.ledger, kept)
		if err := v.Refresh(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := texts(v), want(c.d.n); !slices.Equal(got, want) || applied != c.d.n {
			t.Errorf("%s: the answer is %v after folding %d events, want %v after all", name, got, applied, want)
		}
	}
}

// A view with a checkpoint of which one bit is flipped has the state of the log.
func TestADamagedCheckpointNeverChangesTheAnswer(t *testing.T) {
	t.Parallel()
	d, good := newDesk(1), &memory{}
	d.prompt(t, 5)
	runOnce(t, projections.NewView(prompts(1), d.ledger, good), d)
	data, err := good.LoadCheckpoint(t.Context(), "prompts")
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		kept := &memory{}
		damaged := slices.Clone(data)
		damaged[i] ^= 1
		if err := kept.SaveCheckpoint(t.Context(), "prompts", damaged); err != nil {
			t.Fatal(err)
		}
		v := projections.NewView(prompts(1), d.ledger, kept)
		if err := v.Refresh(t.Context()); err != nil {
			t.Errorf("bit 0 of byte %d: %v", i, err)
		}
		if got, want := texts(v), want(5); !slices.Equal(got, want) {
			t.Errorf("bit 0 of byte %d: the answer is %v, want %v, from %s", i, got, want, damaged)
		}
	}
}

// A failed save is an ErrCheckpoint, and the state is current in spite of it.
func TestACheckpointThatIsNotSavedCostsNoAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	d.prompt(t, 1001)
	v := projections.NewView(prompts(1), d.ledger, &full{})
	err := v.Refresh(t.Context())
	if !errors.Is(err, projections.ErrCheckpoint) || !errors.Is(err, errFull) {
		t.Errorf("Refresh = %v, want ErrCheckpoint and its cause", err)
	}
	if got, want := texts(v), want(1001); !slices.Equal(got, want) {
		t.Errorf("the answer holds %d prompts, want %d", len(got), len(want))
	}
}

// A breakingStore is a store whose reads of all records fail after the first n.
type breakingStore struct {
	events.Store
	n int
}

// errBroken is the error with which the reads of a breakingStore end.
var errBroken = errors.New("store is broken")

// ReadAll yields the first n records and then errBroken.
func (s breakingStore) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		n := 0
		for e, err := range s.Store.ReadAll(ctx, after) {
			if n++; n > s.n {
				yield(events.Entry{}, errBroken)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// If the log fails after a checkpoint could not be saved, the error is no ErrCheckpoint:
// the view is not current, and Current returns no state of a part of the log.
func TestAFailedFoldIsNoFailedCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1)
		d.prompt(t, 5000)
		slow := prompts(1)
		apply := slow.Apply
		slow.Apply = func(s *titles, v events.Envelope) *titles {
			time.Sleep(time.Second) // so that a checkpoint is due on the way
			return apply(s, v)
		}
		broken := events.NewLedger(breakingStore{d.store, 4500}, nil, time.Now)
		saves := &countedFull{}
		if s, err := projections.Current(t.Context(), slow, broken, saves); !errors.Is(err, errBroken) || s != nil {
			t.Errorf("Current = a state: %t, %v, want errBroken and no state", s != nil, err)
		}
		if saves.n == 0 {
			t.Error("no checkpoint was tried before the log failed")
		}
		for name, fold := range map[string]func(*projections.View[*titles]) error{
			"Refresh": func(v *projections.View[*titles]) error { return v.Refresh(t.Context()) },
			"Rebuild": func(v *projections.View[*titles]) error { return v.Rebuild(t.Context(), nil) },
		} {
			err := fold(projections.NewView(slow, broken, saves))
			if !errors.Is(err, errBroken) || errors.Is(err, projections.ErrCheckpoint) {
				t.Errorf("%s = %v, want errBroken and no ErrCheckpoint", name, err)
			}
		}
	})
}

// A countedFull is a full that counts the saves.
type countedFull struct {
	full
	n int
}

func (c *countedFull) SaveCheckpoint(context.Context, string, []byte) error { c.n++; return errFull }

// Refresh returns ErrRunning during Run, and works after it.
func TestOneGoroutineFoldsAtATime(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	d.prompt(t, 1)
	v := projections.NewView(prompts(1), d.ledger, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = v.Run(ctx) })
	if err := v.Await(t.Context(), d.stream(), 1); err != nil {
		t.Error(err)
	}
	if err := v.Refresh(t.Context()); !errors.Is(err, projections.ErrRunning) {
		t.Errorf("Refresh beside Run = %v, want ErrRunning", err)
	}
	cancel(errDone)
	group.Wait()
	if err := v.Refresh(t.Context()); err != nil {
		t.Errorf("Refresh after Run = %v", err)
	}
}

// A damaged record ends Refresh with ErrDamaged each time, and the state of the
// records before it stays.
func TestADamagedRecordEndsTheFoldAndKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	d.prompt(t, 2)
	record := events.Record{ID: d.ledger.Mint().Event(), Kind: "PromptAdmitted", Version: 1, Time: d.ledger.Now(), Data: []byte(`{"message":7}`)}
	if err := d.store.Append(t.Context(), d.stream(), 2, record); err != nil {
		t.Fatal(err)
	}
	v := projections.NewView(prompts(1), d.ledger, nil)
	for range 2 {
		if err := v.Refresh(t.Context()); !errors.Is(err, events.ErrDamaged) {
			t.Errorf("Refresh = %v, want ErrDamaged", err)
		}
		if got, want := texts(v), want(2); !slices.Equal(got, want) {
			t.Errorf("the answer is %v, want %v", got, want)
		}
	}
}

// Readers that await an event see it, in order, while the view folds later ones.
func TestAnswersAreReadWhileOthersAreFolded(t *testing.T) {
	t.Parallel()
	d := newDesk(1)
	v := projections.NewView(prompts(1), d.ledger, &memory{})
	ctx, cancel := context.WithCancelCause(t.Context())
	var runner, readers sync.WaitGroup
	runner.Go(func() { _ = v.Run(ctx) })
	for range 4 {
		readers.Go(func() {
			for n := range 51 {
				if err := v.Await(t.Context(), d.stream(), events.Revision(n)); err != nil {
					t.Error(err)
					return
				}
				if got := texts(v); len(got) < n || !slices.Equal(got, want(len(got))) {
					t.Errorf("after Await(%d) the answer is %v", n, got)
				}
			}
			if v.Position().IsZero() {
				t.Error("Position is zero after 50 events")
			}
		})
	}
	d.prompt(t, 50)
	readers.Wait()
	cancel(errDone)
	runner.Wait()
}
