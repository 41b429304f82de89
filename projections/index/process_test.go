package index

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// childVariable has the folder of the index that the test binary fills as a process of
// its own.
const childVariable = "LEDGER_INDEX_TEST_FOLDER"

// childSeed is the seed of the history that the process fills the index from.
const childSeed = 11

// childEvents returns the length of that history.
func childEvents() int { return length(3000) }

// TestMain fills an index, or runs the tests.
func TestMain(m *testing.M) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	store := eventstest.NewSlice()
	ctx := context.Background()
	if err := projectionstest.Append(ctx, store, projectionstest.History(childSeed, childEvents())); err != nil {
		panic(err)
	}
	x := New(dir)
	x.batch = 1 // of a fill in place: each event is a transaction
	l := events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now)
	if err := x.CatchUp(ctx, l, nil); err != nil {
		panic(err)
	}
	if os.Getenv(childVariable+"_REBUILD") != "" {
		for {
			if err := x.Rebuild(ctx, l, nil); err != nil {
				panic(err)
			}
		}
	}
}

// After a SIGKILL at any instant of a first fill, of a rebuild with its swap, or of a fill in
// place, the next CatchUp gives the rows of an index that was filled in one pass, and the
// folder has one database.
func TestAKilledFillGoesOn(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	history := projectionstest.History(childSeed, childEvents())
	l, _ := newLedger(t, history)
	part, _ := newLedger(t, history[:len(history)/10])
	want := dump(t, newIndex(t, l))
	dir := filepath.Join(t.TempDir(), "index")
	databases := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, filePrefix+"*"+fileSuffix))
		noError(t, err)
		return found
	}
	behind, incomplete := 0, 0
	for round := range rounds(3+length(10)/2, 300) {
		waits := random.IntN(200)
		after := func(reached bool) bool { // a random time after it was reached first
			if reached {
				waits--
			}
			return waits < 0
		}
		switch round % 3 {
		case 0: // a first fill
			noError(t, os.RemoveAll(dir))
			kill(t, dir, false, func() bool { return after(len(databases()) > 0) })
		case 1: // rebuilds
			kill(t, dir, true, func() bool { return after(len(databases()) > 1) })
		case 2: // a fill in place
			noError(t, os.RemoveAll(dir))
			noError(t, New(dir).CatchUp(t.Context(), part, nil))
			most := int64(len(history)/10 + random.IntN(len(history)/4))
			kill(t, dir, false, func() bool {
				s, err := New(dir).Status(t.Context(), l)
				return err == nil && s.Events >= most
			})
		}
		x := New(dir)
		s, err := x.Status(t.Context(), l)
		noError(t, err)
		if s.State == Behind {
			behind++
		}
		if left := len(databases()); left > 1 || left == 1 && s.State == Absent {
			incomplete++
		}
		noError(t, x.CatchUp(t.Context(), l, nil))
		same(t, "after the kill of round "+strconv.Itoa(round), dump(t, x), want)
		if left := databases(); len(left) != 1 {
			t.Errorf("round %d: the folder has the databases %v, want one", round, left)
		}
	}
	t.Logf("%d kills left a part of the events, and %d an incomplete database", behind, incomplete)
}

// Several processes that index one store at once wait for each other, and leave one index
// with every event.
func TestProcessesIndexOneStore(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(childSeed, childEvents())
	l, _ := newLedger(t, history)
	part, _ := newLedger(t, history[:len(history)-100])
	dir := filepath.Join(t.TempDir(), "index")
	for _, start := range []func() error{
		func() error { return nil }, // no index
		func() error { return errors.Join(os.RemoveAll(dir), New(dir).CatchUp(t.Context(), part, nil)) },
	} {
		noError(t, start())
		var children []*exec.Cmd
		for range 3 {
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), childVariable+"="+dir)
			child.Stderr = os.Stderr
			noError(t, child.Start())
			children = append(children, child)
		}
		for _, child := range children {
			if err := child.Wait(); err != nil {
				t.Error(err)
			}
		}
		s, err := New(dir).Status(t.Context(), l)
		if err != nil || s.State != Current {
			t.Errorf("Status = %s %q, %v, want current", s.State, s.Reason, err)
		}
		same(t, "of three processes", dump(t, New(dir)), dump(t, newIndex(t, l)))
	}
}

// kill starts a process that fills the index in a folder, and that then rebuilds it again
// and again if rebuilds is set. It kills the process once reached returns true.
func kill(t *testing.T, dir string, rebuilds bool, reached func() bool) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+dir)
	if rebuilds {
		child.Env = append(child.Env, childVariable+"_REBUILD=1")
	}
	noError(t, child.Start())
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for !reached() {
		select {
		case <-ended:
			return // it was done before it reached the place
		default:
		}
	}
	_ = child.Process.Kill() // it may have ended
	<-ended
}

// Readers see the rows of whole batches while several writers fill and replace the index,
// which exclude each other.
func TestReadersSeeWholeBatches(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(12, length(600))
	l, store := newLedger(t, nil)
	x := New(filepath.Join(t.TempDir(), "index"))
	noError(t, x.CatchUp(t.Context(), l, nil))
	steps := 2 + length(4)
	for step := range steps {
		noError(t, projectionstest.Append(t.Context(), store, history[step*len(history)/steps:(step+1)*len(history)/steps]))
		var group sync.WaitGroup
		for writer := range 3 {
			group.Go(func() {
				w := New(x.dir)
				w.batch = 9
				err := w.CatchUp(t.Context(), l, nil)
				if writer == 2 {
					err = w.Rebuild(t.Context(), l, nil)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range 2 {
			group.Go(func() {
				for range length(20) {
					got := table(t, x, `SELECT (SELECT coalesce(sum(prompts), 0) FROM sessions) - (SELECT count(*) FROM messages WHERE kind = 'prompt'),
						(SELECT coalesce(sum(calls), 0) FROM sessions) - (SELECT count(*) FROM calls WHERE asked_time IS NOT NULL),
						(SELECT count(*) FROM turns) - (SELECT coalesce(sum(turns), 0) FROM sessions)`)
					if len(got) != 1 || got[0] != "0|0|0" {
						t.Errorf("a reader sees %v, want equal counts", got)
						return
					}
				}
			})
		}
		group.Wait()
	}
	same(t, "at the end", dump(t, x), dump(t, newIndex(t, l)))
}

// A loop over rows that began before a rebuild ends with the rows of the index before it.
func TestAReaderOutlivesARebuild(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(13, length(600)))
	x := newIndex(t, l)
	want := table(t, x, "SELECT id FROM texts ORDER BY id")
	rows, err := x.Query(t.Context(), "SELECT id FROM texts ORDER BY id")
	noError(t, err)
	defer rows.Close()
	n := 0
	for _, err := range rows.All() {
		noError(t, err)
		if n++; n == 1 {
			noError(t, x.Rebuild(t.Context(), l, nil))
		}
	}
	if n != len(want) || n < 10 {
		t.Errorf("the loop had %d rows, want %d", n, len(want))
	}
}

// A fill whose context ends leaves an index that continues, and returns the cause.
func TestACancelledFillGoesOn(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(14, length(600)))
	cause := errors.New("the user left")
	x := New(t.TempDir())
	x.batch = 10
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := x.CatchUp(ctx, l, nil); !errors.Is(err, cause) {
		t.Errorf("CatchUp with an ended context = %v, want %v", err, cause)
	}
	noError(t, x.CatchUp(t.Context(), l, nil))
	same(t, "continued", dump(t, x), dump(t, newIndex(t, l)))
}
