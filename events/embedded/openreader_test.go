package embedded

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

func openReader(t testing.TB, dir string, cfg Config) *Store {
	t.Helper()
	s, err := OpenReader(t.Context(), dir, cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, events.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// onDisk puts the files of a store into a folder of the disk.
func onDisk(t testing.TB, whole map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range whole {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return filepath.Join(dir, "store")
}

// A reader of a killed store reads the records that the next writer reads, with each
// method, and changes no file.
func TestReaderOfAKilledStoreReadsWhatAWriterReadsAndChangesNothing(t *testing.T) {
	t.Parallel()
	whole, truth := killed(t)
	dir := onDisk(t, whole)
	before := contents(t, vfs.Default, dir)
	r := openReader(t, dir, Config{})
	if got := all(t, r); digestOfEntries(got...) != digestOfEntries(truth...) {
		t.Errorf("a reader reads %d entries, want the %d acknowledged ones", len(got), len(truth))
	}
	if got := contents(t, vfs.Default, dir); !maps.Equal(got, before) {
		t.Errorf("a reader changed the files: %d there, %d before", len(got), len(before))
	}
	w, err := Open(t.Context(), dir, Config{})
	must(t, err)
	defer w.Close()
	sameAnswers(t, r, w)
}

// sameAnswers compares two stores by random queries.
func sameAnswers(t *testing.T, left, right *Store) {
	t.Helper()
	if left.Head() != right.Head() {
		t.Errorf("Head = %v and %v", left.Head(), right.Head())
	}
	rng := rand.New(rand.NewPCG(5, 6))
	end, _ := right.Head().Parts()
	for range 50 {
		from, to := rng.Uint64N(end), rng.Uint64N(end)+1
		q := events.Query{After: events.NewPosition(from, from), Through: events.NewPosition(to, to), Backward: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			q.Stream = events.Stream([]string{"session-1", "session-6", "busy-0", "none-1"}[rng.IntN(4)])
		}
		if rng.IntN(4) == 0 {
			q.Prefixes = []string{"busy"}
		}
		if l, r := answer(t, left, q), answer(t, right, q); l != r {
			t.Errorf("%+v is answered differently", q)
		}
	}
	for _, name := range []string{"calls", "none"} {
		l, err := left.LoadCheckpoint(t.Context(), name)
		must(t, err)
		r, err := right.LoadCheckpoint(t.Context(), name)
		must(t, err)
		if string(l) != string(r) {
			t.Errorf("checkpoint %s is %q and %q", name, l, r)
		}
	}
}

// answer returns the digest of the entries that a query yields. Scan, Lend and the
// parts of Split must yield the same.
func answer(t *testing.T, s *Store, q events.Query) string {
	t.Helper()
	scan, lend, split, headers := events.NewDigest(), events.NewDigest(), events.NewDigest(), 0
	for e, err := range s.Scan(t.Context(), q) {
		must(t, err)
		scan.Add(e)
	}
	for e, err := range s.Lend(t.Context(), q) {
		must(t, err)
		lend.Add(e)
	}
	for _, err := range s.Headers(t.Context(), q) {
		must(t, err)
		headers++
	}
	parts, err := s.Split(t.Context(), q, 3)
	must(t, err)
	for _, part := range parts {
		for e, err := range s.Scan(t.Context(), part) {
			must(t, err)
			split.Add(e)
		}
	}
	if scan.String() != lend.String() || scan.String() != split.String() || uint64(headers) != scan.Count() {
		t.Errorf("%+v: Scan, Lend, Split and Headers differ", q)
	}
	return scan.String()
}

// A reader reports the damage that a writer reports, and otherwise reads the same
// records. A writer may open a store that a reader refuses: it has written the last
// records to another table, and finds the damage when it reads.
func TestReaderJudgesDamageAsAWriterDoes(t *testing.T) {
	t.Parallel()
	whole, _ := killed(t)
	names := slices.Sorted(maps.Keys(whole))
	names = slices.DeleteFunc(names, func(name string) bool { return whole[name] == "" })
	rng := rand.New(rand.NewPCG(7, 8))
	refused := 0
	for range bitFlips(t) / 2 {
		name := names[rng.IntN(len(names))]
		at, bit := rng.IntN(len(whole[name])), rng.IntN(8)
		storage := withFlip(t, whole, name, at, bit)
		before := contents(t, storage, "store")
		asReader, readerErr := judgement(t, func() (*Store, error) { return OpenReader(t.Context(), "store", Config{FS: storage}) })
		if !maps.Equal(contents(t, storage, "store"), before) {
			t.Errorf("%s, byte %d, bit %d: a reader changed the files", name, at, bit)
		}
		asWriter, writerErr := judgement(t, func() (*Store, error) { return Open(t.Context(), "store", Config{FS: storage}) })
		if (readerErr == nil) != (writerErr == nil) || asReader != asWriter && readerErr == nil {
			t.Errorf("%s, byte %d, bit %d: a reader reads %s, %v; a writer %s, %v", name, at, bit, asReader, readerErr, asWriter, writerErr)
		}
		if readerErr != nil {
			refused++
		}
	}
	t.Logf("%d of %d refused", refused, bitFlips(t)/2)
}

// judgement opens a store, and returns the digest of the readable records and the
// first error.
func judgement(t *testing.T, open func() (*Store, error)) (string, error) {
	s, err := open()
	if err != nil {
		return "", err
	}
	digest := events.NewDigest()
	for e, err := range s.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			return digest.String(), errors.Join(err, s.Close())
		}
		digest.Add(e)
	}
	return digest.String(), s.Close()
}

// A later writer does not wait for an open reader. Its appends, compactions and
// removals do not change the reader's view.
func TestReaderSeesNoLaterWrites(t *testing.T) {
	t.Parallel()
	whole, truth := killed(t)
	dir := onDisk(t, whole)
	r := openReader(t, dir, Config{})
	w, err := Open(t.Context(), dir, Config{})
	must(t, err)
	p := newRecordWriter(55)
	for i := range 20 {
		must(t, w.Append(t.Context(), "session-new", events.Revision(i), p.records(1, 2000)...))
		must(t, w.SaveCheckpoint(t.Context(), "calls", []byte("{}")))
		must(t, w.db.Flush())
	}
	must(t, w.Compact(t.Context()))
	must(t, w.Close())
	must(t, os.RemoveAll(dir)) // whatever tables the compaction kept
	if got := all(t, r); digestOfEntries(got...) != digestOfEntries(truth...) {
		t.Errorf("a reader reads %d entries beside a writer, want the %d from before", len(got), len(truth))
	}
	if got, err := r.LoadCheckpoint(t.Context(), "calls"); err != nil || string(got) == "{}" {
		t.Errorf("LoadCheckpoint = %q, %v; want the one from before", got, err)
	}
}

// While a writer has the store, OpenReader returns an error that names the writer.
// The writer keeps its lock, although the same process has closed the lock file.
func TestReaderOfAStoreInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := Open(t.Context(), dir, Config{Owner: storedir.Owner{Command: "ledger run"}})
	must(t, err)
	for range 2 {
		if _, err := OpenReader(t.Context(), dir, Config{}); !errors.Is(err, events.ErrInUse) || !strings.Contains(err.Error(), "ledger run") {
			t.Errorf("OpenReader beside a writer = %v, want ErrInUse by ledger run", err)
		}
	}
	if _, err := Open(t.Context(), dir, Config{}); !errors.Is(err, events.ErrInUse) {
		t.Errorf("Open beside a writer = %v, want ErrInUse", err)
	}
	must(t, w.Close())
	openReader(t, dir, Config{})
	openReader(t, dir, Config{})
}

// A writer waits for readers that are opening the store, and logs that.
func TestWriterWaitsForReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := Open(t.Context(), dir, Config{})
	must(t, err)
	must(t, w.Close())
	p, err := pebblefiles.Pin(pebblefiles.Disk, filepath.Join(dir, storedir.LockName), filepath.Join(dir, storedir.LogName))
	must(t, err)
	told := make(chan struct{})
	opened := make(chan error, 1)
	go func() {
		w, err := Open(t.Context(), dir, Config{Logger: slog.New(telling{slog.DiscardHandler, told})})
		if err == nil {
			err = w.Close()
		}
		opened <- err
	}()
	<-told
	must(t, p.Close())
	must(t, <-opened)
}

// A telling is a log handler that closes a channel at the first record.
type telling struct {
	slog.Handler
	told chan struct{}
}

func (h telling) Handle(context.Context, slog.Record) error {
	close(h.told)
	return nil
}

func (telling) Enabled(context.Context, slog.Level) bool { return true }

func TestReaderRefusesToWrite(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	writeSampleStore(t, storage)
	r := openReader(t, "store", Config{FS: storage})
	for what, err := range map[string]error{
		"Append":         r.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 1)...),
		"SaveCheckpoint": r.SaveCheckpoint(t.Context(), "calls", nil),
		"Compact":        r.Compact(t.Context()),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s of a reader = %v, want %v", what, err, ErrReadOnly)
		}
	}
	must(t, r.Sync(t.Context()))
	must(t, r.Close())
	if err := r.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 1)...); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Append of a closed reader = %v, want ErrClosed", err)
	}
}

// A folder without a lock file, such as a restored backup, can be read, and gets no
// lock file.
func TestReaderNeedsNoLockFile(t *testing.T) {
	t.Parallel()
	whole, truth := killed(t)
	delete(whole, "store/"+storedir.LockName)
	dir := onDisk(t, whole)
	before := contents(t, vfs.Default, dir)
	r := openReader(t, dir, Config{})
	if got := all(t, r); len(got) != len(truth) {
		t.Errorf("a reader reads %d entries, want %d", len(got), len(truth))
	}
	if !maps.Equal(contents(t, vfs.Default, dir), before) {
		t.Error("a reader changed the files of a folder without a lock")
	}
}

// A folder in which a killed process was creating a store has no records. OpenReader
// leaves it unchanged.
func TestReaderOfAnUnfinishedStoreLeavesItAsItIs(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	must(t, storage.MkdirAll("store", 0o700))
	f := storedir.Dir{FS: storage, Path: "store"}
	must(t, f.WriteFormat(storedir.FormatDraftName))
	before := contents(t, storage, "store")
	if _, err := OpenReader(t.Context(), "store", Config{FS: storage}); !errors.Is(err, events.ErrNotAStore) {
		t.Errorf("OpenReader of a store in the making = %v, want ErrNotAStore", err)
	}
	if _, err := OpenReader(t.Context(), "other", Config{FS: storage}); err == nil {
		t.Error("OpenReader of no folder = nil, want an error")
	}
	if _, err := storage.Stat("other"); err == nil || !maps.Equal(contents(t, storage, "store"), before) {
		t.Error("a reader made or changed something")
	}
}

// A reader returns an error if records are missing that the seal counts.
func TestReaderMissesSealedRecords(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	entries := writeSampleStore(t, storage)
	last := uint64(len(entries))
	surgery(t, storage, func(db *pebble.DB) error { return db.Delete(layout.EntryKey(last), pebble.Sync) })
	must(t, pebblefiles.Seal(storage, "store/"+storedir.LogName, last))
	if _, err := OpenReader(t.Context(), "store", Config{FS: storage}); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("OpenReader of a store that lost its last record = %v, want ErrDamaged", err)
	}
}
