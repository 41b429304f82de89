package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
	"github.com/settlement-ledger/ledger/events/pebblefiles/filestest"
)

// killedStore caches the files that killed copies.
var killedStore struct {
	sync.Once
	files   map[string]string
	entries []events.Entry
}

// killed returns the files of a store whose process was killed, and the records that
// it had acknowledged. Some records are in tables and the last ones in a recycled
// log. Some were appended together.
func killed(t testing.TB) (map[string]string, []events.Entry) {
	t.Helper()
	killedStore.Do(func() { killedStore.files, killedStore.entries = makeKilled(t) })
	if killedStore.files == nil {
		t.Fatal("the store was not made")
	}
	return maps.Clone(killedStore.files), slices.Clone(killedStore.entries)
}

func makeKilled(t testing.TB) (map[string]string, []events.Entry) {
	t.Helper()
	storage := vfs.NewCrashableMem()
	s, err := Open(t.Context(), "store", Config{FS: storage})
	must(t, err)
	must(t, s.Close()) // which leaves a seal
	s, err = Open(t.Context(), "store", Config{FS: storage})
	must(t, err)
	lengths := map[events.Stream]events.Revision{}
	p := newRecordWriter(7)
	add := func(n, size int) {
		for i := range n {
			stream := events.Stream(fmt.Sprintf("session-%d", i%7))
			must(t, s.Append(t.Context(), stream, lengths[stream], p.records(1, size+i)...))
			lengths[stream]++
		}
		must(t, s.SaveCheckpoint(t.Context(), "calls", fmt.Appendf(nil, `{"n":%d}`, n)))
	}
	add(300, 300)
	must(t, s.db.Flush())
	add(100, 100)
	must(t, s.db.Flush())
	add(60, 100)
	add(2, 70_000)
	var writing sync.WaitGroup
	for w := range 4 {
		p := newRecordWriter(byte(100 + w))
		writing.Go(func() {
			for i := range 5 {
				if err := s.Append(t.Context(), events.Stream(fmt.Sprintf("busy-%d", w)), events.Revision(i), p.records(1, 500)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	add(10, 100)
	truth := all(t, s)
	died := storage.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	must(t, s.Close())
	return contents(t, died, "store"), truth
}

// withFlip returns a store of files in which one bit is flipped.
func withFlip(t testing.TB, whole map[string]string, name string, at, bit int) vfs.FS {
	t.Helper()
	clone := vfs.NewMem()
	if name != "" {
		changed := []byte(whole[name])
		changed[at] ^= 1 << bit
		whole = maps.Clone(whole)
		whole[name] = string(changed)
	}
	writeFiles(t, clone, whole)
	return clone
}

// logBuffer returns a logger and the buffer that it writes to.
func logBuffer() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// A flipped bit in a file of a killed store is reported by the opening or by a read
// of the affected records, or has no effect. No acknowledged record is lost without a
// report, not even the last one. Half of the bits are flipped in logs.
func TestFlippedBitInAKilledStoreIsNoSilentLoss(t *testing.T) {
	t.Parallel()
	whole, truth := killed(t)
	kinds := map[string][]string{} // names of files
	for name, text := range whole {
		if len(text) > 0 {
			kind, _, _ := strings.Cut(filestest.Describe(name, []byte(text), 0), ",")
			kinds[kind] = append(kinds[kind], name)
		}
	}
	order := slices.Sorted(maps.Keys(kinds))
	rng := rand.New(rand.NewPCG(3, 4))
	table := map[string][2]int{} // by place: reported, without effect
	for i := range bitFlips(t) {
		kind := order[i/2%len(order)]
		if i%2 == 0 {
			kind = string(pebblefiles.Log)
		}
		names := slices.Sorted(slices.Values(kinds[kind]))
		name := names[rng.IntN(len(names))]
		at, bit := rng.IntN(len(whole[name])), rng.IntN(8)
		if i%8 == 0 { // where the last record is
			end := sort.Search(len(whole[name]), func(at int) bool {
				return strings.HasSuffix(filestest.Describe(name, []byte(whole[name]), at), "behind the end")
			})
			at = max(0, end-1-rng.IntN(700))
		}
		place := filestest.Describe(name, []byte(whole[name]), at) + " (" + vfs.Default.PathBase(name) + ")"
		row := table[place]
		told, err := afterKill(t, withFlip(t, whole, name, at, bit), truth)
		switch {
		case err != nil:
			t.Errorf("%s, byte %d, bit %d (%s): %v", name, at, bit, place, err)
		case told:
			row[0]++
		default:
			row[1]++
		}
		table[place] = row
	}
	for _, place := range slices.Sorted(maps.Keys(table)) {
		t.Logf("%-60s %4d reported, %4d without effect", place, table[place][0], table[place][1])
	}
}

// afterKill opens a store and reads all acknowledged records. It reports whether
// damage was reported. A missing record without a report is an error.
func afterKill(t *testing.T, storage vfs.FS, truth []events.Entry) (reported bool, err error) {
	t.Helper()
	logger, told := logBuffer()
	s, err := Open(t.Context(), "store", Config{FS: storage, Logger: logger})
	if err != nil {
		return true, nil
	}
	defer func() { _ = s.Close() }()
	n := 0
	for e, err := range s.ReadAll(t.Context(), events.Position{}) {
		if errors.Is(err, events.ErrDamaged) {
			return true, nil
		}
		if err != nil || n == len(truth) || digestOfEntries(e) != digestOfEntries(truth[n]) {
			return false, fmt.Errorf("entry %d is wrong: %w", n+1, err)
		}
		n++
	}
	if n < len(truth) {
		if strings.Contains(told.String(), "log/") {
			return true, nil
		}
		return false, fmt.Errorf("%d records are there of %d, and nothing was said", n, len(truth))
	}
	streams := map[events.Stream][]events.Entry{}
	for _, e := range truth {
		streams[e.Stream] = append(streams[e.Stream], e)
	}
	for stream, want := range streams {
		n := 0
		for got, err := range s.Read(t.Context(), stream, 0) {
			if errors.Is(err, events.ErrDamaged) {
				return true, nil
			}
			if err != nil || n == len(want) || digestOfEntries(got) != digestOfEntries(want[n]) {
				return false, fmt.Errorf("revision %d of %s is wrong: %w", n+1, stream, err)
			}
			n++
		}
		if n != len(want) {
			return false, fmt.Errorf("%s has %d entries of %d, and nothing was said", stream, n, len(want))
		}
	}
	return false, nil
}

// A damaged FORMAT file does not remove records, even if FORMAT.new still exists.
func TestADamagedFormatRemovesNoRecords(t *testing.T) {
	t.Parallel()
	whole, truth := killed(t)
	whole["store/"+storedir.FormatDraftName] = whole["store/"+storedir.FormatName]
	for at := 0; at < len(whole["store/"+storedir.FormatName]); at += repeats(15, 1) {
		if _, err := afterKill(t, withFlip(t, whole, "store/"+storedir.FormatName, at, at%8), truth); err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}

// A range of a log that was overwritten with zeros is more than one flipped bit. The
// acknowledged records after it show that no power cut caused it.
func TestAHoleInTheLogOfAKilledStoreIsReported(t *testing.T) {
	t.Parallel()
	whole, truth := killed(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for name, text := range whole {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		for range repeats(2, 20) {
			from := rng.IntN(len(text))
			holed := maps.Clone(whole)
			holed[name] = text[:from] + strings.Repeat("\x00", min(512, len(text)-from)) + text[min(from+512, len(text)):]
			place := filestest.Describe(name, []byte(text), from)
			if _, err := afterKill(t, withFlip(t, holed, "", 0, 0), truth); err != nil && !strings.HasSuffix(place, filestest.LastRecord) {
				t.Errorf("%s, 512 bytes from %d on (%s): %v", name, from, place, err)
			}
		}
	}
}
