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
	x.batch = 1
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

// After a SIGKILL at any instant of a fill or a rebuild, the next CatchUp gives the rows
// of an index that was filled in one pass, and the folder has one database.
func TestAKilledFillGoesOn(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	l, _ := newLedger(t, projectionstest.History(childSeed, childEvents()))
	want := dump(t, newIndex(t, l))
	dir := filepath.Join(t.TempDir(), "index")
	partial := 0
	for round := range rounds(1+length(10)/10, 300) {
		rebuilds := round%2 == 1
		if !rebuilds {
			noError(t, os.RemoveAll(dir))
		}
		killed := int64(1 + random.IntN(childEvents()/4))
		kill(t, dir, rebuilds, func() bool {
			if rebuilds {
				found, err := filepath.Glob(filepath.Join(dir, filePrefix+"*"+fileSuffix))
				return err == nil && len(found) > 1
			}
			s, err := New(dir).Status(t.Context(), l)
			return err == nil && s.Events >= killed
		})
		x := New(dir)
		if s, err := x.Status(t.Context(), l); err == nil && s.State == Behind {
			partial++
		}
		noError(t, x.CatchUp(t.Context(), l, nil))
		same(t, "after the kill of round "+strconv.Itoa(round), dump(t, x), want)
		found, err := filepath.Glob(filepath.Join(dir, filePrefix+"*"+fileSuffix))
		noError(t, err)
		if len(found) != 1 {
			t.Errorf("the folder has the databases %v, want one", found)
		}
	}
	t.Logf("%d kills left a part of an index", partial)
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
