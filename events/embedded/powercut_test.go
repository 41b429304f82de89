package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// cutsVariable says how many power cuts TestPowerCuts makes of each kind. The
// whole of it is 10000.
const cutsVariable = "LEDGER_TEST_POWER_CUTS"

// cutsPerHistory is how often the power of one history is cut.
const cutsPerHistory = 20

// A cut holds the files that survive a power cut, and the appends acknowledged before.
type cut struct {
	storage *vfs.MemFS
	acked   map[domain.EventID]bool // acknowledged before, by the first of an append's records
	durable uint64                  // what Durable had returned before
}

// A powerCutter copies the files that a power cut would leave, before random operations
// of a file system.
type powerCutter struct {
	storage *vfs.MemFS
	mu      struct {
		sync.Mutex
		rng      *rand.Rand
		one      int // cuts in how many operations
		cuts     []cut
		attempts map[domain.EventID]attempt
		acked    map[domain.EventID]bool
		durable  uint64
	}
}

func (b *powerCutter) String() string { return "blackout" }

func (b *powerCutter) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsRead {
		b.cut()
	}
	return nil
}

// cut cuts the power, at random.
func (b *powerCutter) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.cuts) == cutsPerHistory || b.mu.rng.IntN(b.mu.one) > 0 {
		return
	}
	acked := map[domain.EventID]bool{}
	for id := range b.mu.acked {
		acked[id] = true
	}
	b.mu.cuts = append(b.mu.cuts, cut{
		storage: b.storage.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: b.mu.rng.IntN(101), RNG: b.mu.rng}),
		acked:   acked,
		durable: b.mu.durable,
	})
}

// A lyingSyncFS ignores random syncs of logs and reports success.
type lyingSyncFS struct {
	vfs.FS
	lies func() bool
}

func (f lyingSyncFS) wrap(file vfs.File, name string, err error) (vfs.File, error) {
	if err == nil && strings.HasSuffix(name, ".log") {
		return lyingSyncFile{file, f.lies}, nil
	}
	return file, err
}

func (f lyingSyncFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(file, name, err)
}

func (f lyingSyncFS) ReuseForWrite(from, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, name, c)
	return f.wrap(file, name, err)
}

type lyingSyncFile struct {
	vfs.File
	lies func() bool
}

func (f lyingSyncFile) Sync() error {
	if f.lies() {
		return nil
	}
	return f.File.Sync()
}

func (f lyingSyncFile) SyncData() error {
	if f.lies() {
		return nil
	}
	return f.File.SyncData()
}

// TestPowerCuts cuts the power of random histories of several writers, before
// random operations of the file system, under each durability and on a disk
// that lies. What survives is the beginning of the history: whole appends, with
// revisions and an index that agree, and all that was promised.
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
				b, log := live(t, seed, kind.durability, kind.lies)
				for _, c := range b.mu.cuts {
					name := fmt.Sprintf("seed %d, cut %d", seed, made)
					kept += survives(t, name, c, b.mu.attempts, log, kind.durability, kind.lies)
					made++
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("%d cuts, after which %d records were there", made, kept)
		})
	}
}

// live has several writers append to a store, and returns the cuts that were
// made meanwhile and all the records in their order.
func live(t *testing.T, seed uint64, durability Durability, lies bool) (*powerCutter, []events.Entry) {
	b := &powerCutter{storage: vfs.NewCrashableMem()}
	b.mu.rng = rand.New(rand.NewPCG(seed, 7))
	b.mu.one = 1 + b.mu.rng.IntN(12)
	b.mu.attempts, b.mu.acked = map[domain.EventID]attempt{}, map[domain.EventID]bool{}
	storage := vfs.FS(b.storage)
	if lies {
		storage = lyingSyncFS{storage, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.mu.rng.IntN(3) == 0
		}}
	}
	s, err := Open(t.Context(), "store", Config{FS: errorfs.Wrap(storage, b), Durability: durability})
	must(t, err)
	var writing sync.WaitGroup
	for w := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		p := newRecordWriter(byte(seed*4 + uint64(w)))
		writing.Go(func() { b.write(t, s, rng, p, w) })
	}
	writing.Wait()
	log := all(t, s)
	must(t, s.Close())
	return b, log
}

// write is one of the writers, with streams of its own.
func (b *powerCutter) write(t *testing.T, s *Store, rng *rand.Rand, p recordWriter, w int) {
	lengths := map[events.Stream]events.Revision{}
	for range 12 {
		stream := events.Stream(fmt.Sprintf("s-%d%d", w, rng.IntN(2)))
		size := rng.IntN(200)
		if rng.IntN(20) == 0 {
			size = 100_000
		}
		a := attempt{stream: stream, after: lengths[stream], records: p.records(1+rng.IntN(4), size)}
		b.mu.Lock()
		b.mu.attempts[a.records[0].ID] = a
		b.mu.Unlock()
		if err := s.Append(t.Context(), a.stream, a.after, a.records...); err != nil {
			t.Error(err)
			return
		}
		b.mu.Lock()
		b.mu.acked[a.records[0].ID] = true
		b.mu.Unlock()
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
		b.mu.Lock()
		b.mu.durable = max(b.mu.durable, durable)
		b.mu.Unlock()
	}
}

// survives checks what a cut left, and returns how many records that is.
func survives(t *testing.T, name string, c cut, attempts map[domain.EventID]attempt, log []events.Entry, durability Durability, lies bool) int {
	t.Helper()
	s, err := Open(t.Context(), "store", Config{FS: c.storage})
	if err != nil {
		if !lies || !errors.Is(err, events.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		return 0
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	entries, err := readAll(t.Context(), s)
	if err != nil && (!lies || !errors.Is(err, events.ErrDamaged)) {
		t.Errorf("%s: %v", name, err)
	}
	found := map[domain.EventID]bool{}
	streams := map[events.Stream][]events.Entry{}
	for i, e := range entries {
		if want := log[i]; e.ID != want.ID || e.Position != want.Position || e.Stream != want.Stream || e.Revision != want.Revision || string(e.Data) != string(want.Data) {
			t.Errorf("%s: entry %d is %s, want %s", name, i+1, e.ID, want.ID)
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
			t.Errorf("%s: %d of %d records of an append are there", name, there, len(a.records))
		}
		if c.acked[id] && there == 0 && durability == Sync() && !lies {
			t.Errorf("%s: an append that was acknowledged is lost", name)
		}
	}
	if !lies && uint64(len(entries)) < c.durable {
		t.Errorf("%s: %d records are there, and %d were durable", name, len(entries), c.durable)
	}
	if !lies {
		// A disk that lies can lose records that stand before a checkpoint in an
		// older log. A view then finds that its event is not there.
		checkpointIsBehind(t, s)
	}
	goesOn(t, name, s, streams)
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

// goesOn checks that streams read as the log does, and take more.
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

// longVariable asks for the long counts of power cuts, flips and the like.
const longVariable = "LEDGER_TEST_LONG"

// repeats returns how often a test repeats: short, or long if the environment
// asks for it.
func repeats(short, long int) int {
	if os.Getenv(longVariable) != "" {
		return long
	}
	return short
}
