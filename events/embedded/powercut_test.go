package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles/filestest"
)

// cutsVariable is an environment variable with the number of power cuts of each kind
// in TestPowerCuts. A full run has 10000.
const cutsVariable = "LEDGER_TEST_POWER_CUTS"

// cutsPerHistory is the number of power cuts in one history.
const cutsPerHistory = 20

// A promises is the model of a history of several writers: their appends, and the
// ones that the store has promised to keep. It is safe for concurrent use.
type promises struct {
	mu       sync.Mutex
	attempts map[domain.EventID]attempt // by the first record of the append
	kept     promised
}

// promised is one state of the promises of a store.
type promised struct {
	acked   map[domain.EventID]bool // acknowledged appends, by their first record
	durable uint64                  // the highest result of Durable
}

func newPromises() *promises {
	return &promises{attempts: map[domain.EventID]attempt{}, kept: promised{acked: map[domain.EventID]bool{}}}
}

func (p *promises) begin(a attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts[a.records[0].ID] = a
}

func (p *promises) acknowledge(a attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept.acked[a.records[0].ID] = true
}

func (p *promises) sync(durable uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept.durable = max(p.kept.durable, durable)
}

func (p *promises) copy() promised {
	p.mu.Lock()
	defer p.mu.Unlock()
	return promised{maps.Clone(p.kept.acked), p.kept.durable}
}

// newPowerCutter returns a cutter that cuts the power before one operation in oneIn, at
// most cutsPerHistory times.
func newPowerCutter(storage *vfs.MemFS, rng *rand.Rand, oneIn int, p *promises) *filestest.PowerCutter[promised] {
	made := 0
	due := func(errorfs.Op) bool {
		if made == cutsPerHistory || rng.IntN(oneIn) > 0 {
			return false
		}
		made++
		return true
	}
	return filestest.NewPowerCutter(storage, rng, due, func() int { return rng.IntN(101) }, p.copy)
}

// The power of random histories of several writers is cut before random operations of
// the file system, under each durability and on a disk that ignores syncs. The
// survivors are a beginning of the history: whole appends, with revisions and an
// index that agree, and all promised ones.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	cuts, err := strconv.Atoi(cmp.Or(os.Getenv(cutsVariable), strconv.Itoa(repeats(10, 500))))
	must(t, err)
	for _, kind := range []struct {
		name       string
		durability Durability
		lies       bool
	}{{"sync", Sync(), false}, {"interval", Interval(200 * time.Microsecond), false}, {"a lying disk", Sync(), true}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			made, kept := 0, 0
			for seed := uint64(0); made < cuts; seed++ {
				cutter, attempts, log := live(t, seed, kind.durability, kind.lies)
				cutter.Check(t, fmt.Sprintf("seed %d", seed), func(c filestest.Cut[promised]) {
					kept += survives(t, c, attempts, log, kind.durability, kind.lies)
					made++
				})
				if t.Failed() {
					return
				}
			}
			t.Logf("%d cuts, after which %d records were there", made, kept)
		})
	}
}

// live lets several writers append to a store. It returns the cutter with its cuts,
// the appends by their first record, and all records in order.
func live(t *testing.T, seed uint64, durability Durability, lies bool) (*filestest.PowerCutter[promised], map[domain.EventID]attempt, []events.Entry) {
	model, disk := newPromises(), vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(seed, 7))
	cutter := newPowerCutter(disk, rng, 1+rng.IntN(12), model)
	storage := cutter.FS()
	if lies {
		storage = cutter.Wrap(filestest.NewLyingSyncFS(disk, rand.New(rand.NewPCG(seed, 8)), 3))
	}
	s, err := Open(t.Context(), "store", Config{FS: storage, Durability: durability})
	must(t, err)
	var writing sync.WaitGroup
	for w := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		p := newRecordWriter(byte(seed*4 + uint64(w)))
		writing.Go(func() { model.write(t, s, rng, p, w) })
	}
	writing.Wait()
	log := all(t, s)
	must(t, s.Close())
	return cutter, model.attempts, log
}

// write runs one of the writers, which has its own streams.
func (p *promises) write(t *testing.T, s *Store, rng *rand.Rand, writer recordWriter, w int) {
	lengths := map[events.Stream]events.Revision{}
	for range 12 {
		stream := events.Stream(fmt.Sprintf("s-%d%d", w, rng.IntN(2)))
		size := rng.IntN(200)
		if rng.IntN(20) == 0 {
			size = 100_000
		}
		a := attempt{stream: stream, after: lengths[stream], records: writer.records(1+rng.IntN(4), size)}
		p.begin(a)
		if err := s.Append(t.Context(), a.stream, a.after, a.records...); err != nil {
			t.Error(err)
			return
		}
		p.acknowledge(a)
		lengths[stream] += events.Revision(len(a.records))
		var err error
		switch rng.IntN(12) {
		case 0:
			err = s.SaveCheckpoint(t.Context(), "head", []byte(s.Head().String()))
		case 1:
			err = s.db.Flush()
		case 2:
			err = s.Sync(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
		durable, _ := s.Durable().Parts()
		p.sync(durable)
	}
}

// survives checks the files that a power cut left, and returns the number of their
// records.
func survives(t *testing.T, c filestest.Cut[promised], attempts map[domain.EventID]attempt, log []events.Entry, durability Durability, lies bool) int {
	t.Helper()
	s, err := Open(t.Context(), "store", Config{FS: c.FS})
	if err != nil {
		if !lies || !errors.Is(err, events.ErrDamaged) {
			t.Errorf("%v: %v", c, err)
		}
		return 0
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}()
	entries, err := readAll(t.Context(), s)
	if err != nil && (!lies || !errors.Is(err, events.ErrDamaged)) {
		t.Errorf("%v: %v", c, err)
	}
	found := map[domain.EventID]bool{}
	streams := map[events.Stream][]events.Entry{}
	for i, e := range entries {
		if want := log[i]; e.ID != want.ID || e.Position != want.Position || e.Stream != want.Stream || e.Revision != want.Revision || string(e.Data) != string(want.Data) {
			t.Errorf("%v: entry %d is %s, want %s", c, i+1, e.ID, want.ID)
			return 0
		}
		found[e.ID] = true
		streams[e.Stream] = append(streams[e.Stream], e)
	}
	if err != nil {
		return len(entries) // it was told
	}
	for id, a := range attempts {
		there := 0
		for _, r := range a.records {
			if found[r.ID] {
				there++
			}
		}
		if there != 0 && there != len(a.records) {
			t.Errorf("%v: %d of %d records of an append are there", c, there, len(a.records))
		}
		if c.Model.acked[id] && there == 0 && durability == Sync() && !lies {
			t.Errorf("%v: an append that was acknowledged is lost", c)
		}
	}
	if !lies && uint64(len(entries)) < c.Model.durable {
		t.Errorf("%v: %d records are there, and %d were durable", c, len(entries), c.Model.durable)
	}
	if !lies {
		// A disk that lies can lose records that stand before a checkpoint in an
		// older log. A view then finds that its event is not there.
		checkpointIsBehind(t, s)
	}
	goesOn(t, c.String(), s, streams)
	return len(entries)
}

func readAll(ctx context.Context, s *Store) (entries []events.Entry, err error) {
	for e, err := range s.ReadAll(ctx, events.Position{}) {
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// goesOn checks that the streams agree with the log, and that the store takes more
// appends.
func goesOn(t *testing.T, name string, s *Store, streams map[events.Stream][]events.Entry) {
	t.Helper()
	for w := range 4 {
		for i := range 2 {
			stream := events.Stream(fmt.Sprintf("s-%d%d", w, i))
			want, n := streams[stream], 0
			for e, err := range s.Read(t.Context(), stream, 0) {
				if err != nil || n == len(want) || e.ID != want[n].ID || e.Revision != events.Revision(n+1) {
					t.Errorf("%s: entry %d of %s is %s, %v", name, n+1, stream, e.ID, err)
					return
				}
				n++
			}
			if n != len(want) {
				t.Errorf("%s: %s has %d entries, want %d", name, stream, n, len(want))
			}
			if err := s.Append(t.Context(), stream, events.Revision(len(want)), newRecordWriter(255).records(1, 10)...); err != nil {
				t.Errorf("%s: append to what survived: %v", name, err)
			}
		}
	}
}

// longVariable is an environment variable that selects the large numbers of power
// cuts, flips and other repetitions.
const longVariable = "LEDGER_TEST_LONG"

// repeats returns the number of repetitions of a test: short, or long if longVariable
// is set.
func repeats(short, long int) int {
	if os.Getenv(longVariable) != "" {
		return long
	}
	return short
}
