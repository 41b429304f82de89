package index

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// After a power cut that takes the log back behind its index, and after other events in
// place of the lost ones, CatchUp gives the rows of an index that was filled in one pass.
func TestAPowerCutTakesTheLogBehindItsIndex(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	back := 0
	for range rounds(length(12), 300) {
		seed := random.Uint64()
		history := projectionstest.History(seed, 30)
		disk := vfs.NewCrashableMem()
		// An acknowledged append is not on the disk before an hour has passed.
		store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: disk, Durability: embedded.Interval(time.Hour)})
		noError(t, err)
		l := events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now)
		x := New(filepath.Join(t.TempDir(), "index"))
		n := 1 + random.IntN(len(history))
		noError(t, projectionstest.Append(t.Context(), store, history[:n/2]))
		if random.IntN(2) == 0 {
			noError(t, x.CatchUp(t.Context(), l, nil))
		}
		noError(t, projectionstest.Append(t.Context(), store, history[n/2:n]))
		noError(t, x.CatchUp(t.Context(), l, nil))
		left := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: rand.New(rand.NewPCG(seed, 0))})
		noError(t, store.Close())

		store, err = embedded.Open(t.Context(), "store", embedded.Config{FS: left})
		noError(t, err)
		l = events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now)
		if head, _ := store.Head().Parts(); int(head) < n {
			back++
			s, err := x.Status(t.Context(), l)
			noError(t, err)
			if s.State != Unfit {
				t.Errorf("Status with a log of %d of %d events = %s, want unfit", head, n, s.State)
			}
		}
		if random.IntN(2) == 0 {
			noError(t, projectionstest.Append(t.Context(), store, projectionstest.History(seed+1, 30)))
		}
		noError(t, x.CatchUp(t.Context(), l, nil))
		same(t, "after the power cut", dump(t, x), dump(t, newIndex(t, l)))
		noError(t, store.Close())
	}
	if back == 0 {
		t.Error("no power cut took the log back")
	}
	t.Logf("%d power cuts took the log behind its index", back)
}

// A log that went back to an older backup and has grown past the last event of the index is
// not the log of the index, although it has as many events.
func TestALogThatWentBackAndGrewIsAnotherLog(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(length(10), 300) {
		history := projectionstest.History(random.Uint64(), 40)
		n := random.IntN(len(history))
		l, _ := newLedger(t, history)
		x := newIndex(t, l)
		l, store := newLedger(t, history[:n])
		noError(t, projectionstest.Append(t.Context(), store, projectionstest.History(random.Uint64(), 60)))
		noError(t, x.CatchUp(t.Context(), l, nil))
		same(t, "of the other log", dump(t, x), dump(t, newIndex(t, l)))
	}
}

// A log whose events between the first and the last one of the index differ has other events
// under equal IDs, which no append writes. CatchUp does not see that, and Compare does.
func TestCompareFindsAnEarlierDivergence(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(44)
	session := log.Mint.Session()
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	log.Add(stream, events.PromptAdmitted{Message: log.Mint.Message(), Text: "one"})
	log.Add(stream, events.PromptAdmitted{Message: log.Mint.Message(), Text: "last"})
	history := log.Envelopes()
	l, _ := newLedger(t, history)
	x := newIndex(t, l)
	other := slices.Clone(history)
	other[1].Event = events.PromptAdmitted{Message: log.Mint.Message(), Text: "two"}
	l, _ = newLedger(t, other)
	noError(t, x.CatchUp(t.Context(), l, nil))
	found, err := Compare(t.Context(), l, x, nil)
	if err != nil || found == nil || found.Table != "sessions" {
		t.Errorf("Compare = %v, %v, want a difference in sessions", found, err)
	}
}

// An index that skipped events of a kind which the program now knows is filled anew, also
// those after the skipped one.
func TestALearnedKindIsReadAgain(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(46, 100)
	l, _ := newLedger(t, history)
	x := newIndex(t, l)
	want := dump(t, x)
	// What an older program would have stored: the start of a call as an unknown event.
	i := slices.IndexFunc(history, func(v events.Envelope) bool { _, ok := v.Event.(events.CallStarted); return ok })
	older := slices.Clone(history)
	older[i].Event = events.Unknown{Name: "CallStartedInTheFuture", Version: 1, Data: []byte("{}")}
	old, _ := newLedger(t, older)
	y := newIndex(t, old)
	path, err := y.current()
	noError(t, err)
	d, err := connect(path, writing, writerPragmas)
	noError(t, err)
	noError(t, errors.Join(d.script("UPDATE unknown_events SET kind = 'CallStarted' WHERE kind = 'CallStartedInTheFuture'"), d.close()))
	reason := ""
	noError(t, y.CatchUp(t.Context(), l, func(p Progress) { reason = p.Reason }))
	if !strings.Contains(reason, "it skipped CallStarted of version 1") {
		t.Errorf("the reason of the rebuild is %q", reason)
	}
	same(t, "after the rebuild", dump(t, y), want)
}
