package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/integrity"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// checked returns the result of a check of the folder "store".
func checked(t testing.TB, storage vfs.FS) (integrity.Report, []integrity.Finding) {
	t.Helper()
	var found []integrity.Finding
	c, err := integrity.Check(t.Context(), "store", func(f integrity.Finding) { found = append(found, f) }, integrity.Options{FS: storage})
	must(t, err)
	return c, found
}

// sampleStore caches the files and the entries that writeSampleStore copies.
var sampleStore struct {
	sync.Once
	files   map[string]string
	entries []events.Entry
}

// writeSampleStore puts a closed store with a file of each kind into the folder
// "store": tables in two levels, a log with records, and checkpoints. It returns the
// entries of the store.
func writeSampleStore(t testing.TB, storage vfs.FS) []events.Entry {
	t.Helper()
	sampleStore.Do(func() {
		original := vfs.NewMem()
		sampleStore.entries = makeSampleStore(t, original)
		sampleStore.files = contents(t, original, "store")
	})
	if sampleStore.files == nil {
		t.Fatal("the store was not made")
	}
	writeFiles(t, storage, sampleStore.files)
	return slices.Clone(sampleStore.entries)
}

// writeFiles writes files, by path, to a file system.
func writeFiles(t testing.TB, storage vfs.FS, files map[string]string) {
	t.Helper()
	for name, text := range files {
		must(t, storage.MkdirAll(storage.PathDir(name), 0o755))
		must(t, writeFile(storage, name, text))
	}
}

func makeSampleStore(t testing.TB, storage vfs.FS) []events.Entry {
	t.Helper()
	s, err := Open(t.Context(), "store", Config{FS: storage})
	must(t, err)
	p := newRecordWriter(7)
	lengths := map[events.Stream]events.Revision{}
	add := func(n int) {
		for i := range n {
			stream := events.Stream(fmt.Sprintf("session-%d", i%7))
			must(t, s.Append(t.Context(), stream, lengths[stream], p.records(1, 100+i)...))
			lengths[stream]++
		}
		must(t, s.SaveCheckpoint(t.Context(), "calls", fmt.Appendf(nil, `{"n":%d}`, n)))
	}
	add(300)
	must(t, s.Compact(t.Context()))
	add(40)
	must(t, s.db.Flush())
	add(20)
	entries := all(t, s)
	must(t, s.Close())
	return entries
}

// surgery opens the database of a closed store, without the store, and changes it.
func surgery(t testing.TB, storage vfs.FS, do func(db *pebble.DB) error) {
	t.Helper()
	db, err := pebble.Open("store/log", &pebble.Options{FS: storage, FormatMajorVersion: pebblefiles.FormatVersion, Logger: quietLogger(storage)})
	must(t, err)
	must(t, errors.Join(do(db), db.Close()))
}

func TestACheckOfAWholeStoreFindsNothing(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	entries := writeSampleStore(t, storage)
	before := contents(t, storage, "store")
	c, found := checked(t, storage)
	if len(found) > 0 {
		t.Errorf("found %+v, want nothing", found)
	}
	d := events.NewDigest()
	for _, e := range entries {
		d.Add(e)
	}
	if c.Records != 360 || c.Streams != 7 || c.Checkpoints != 2 || c.Digest != d.String() || !c.Opened || !c.Closed || !c.Locked {
		t.Errorf("checked %+v, want 360 records in 7 streams with digest %s", c, d)
	}
	for name, text := range contents(t, storage, "store") {
		if was, ok := before[name]; name != "store/lock" && (!ok || was != text) {
			t.Errorf("the check changed %s", name)
		}
	}
}

// contents returns all files under a folder.
func contents(t testing.TB, storage vfs.FS, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	names, err := storage.List(dir)
	must(t, err)
	for _, name := range names {
		path := storage.PathJoin(dir, name)
		if info, err := storage.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			for name, text := range contents(t, storage, path) {
				found[name] = text
			}
			continue
		}
		text, err := readFile(storage, path)
		must(t, err)
		found[path] = text
	}
	return found
}

// The seal has the number of records. A database with fewer records does not open, at
// the first and at each later try.
func TestAStoreThatEndsBeforeItsSealIsRefused(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	writeSampleStore(t, storage)
	must(t, pebblefiles.Seal(storage, "store/log", 363))
	for range 2 {
		s, err := Open(t.Context(), "store", Config{FS: storage})
		if err == nil {
			must(t, s.Close())
		}
		if !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "361 to 363") {
			t.Fatalf("Open of a store that lacks its last records = %v, want %v that names them", err, events.ErrDamaged)
		}
	}
	if _, found := checked(t, storage); len(found) != 1 || found[0].Position != events.NewPosition(361, 361) || found[0].Through != events.NewPosition(363, 363) {
		t.Errorf("a check found %+v, want positions 361 to 363", found)
	}
}

// A check reports each damage within valid files, with its place, and has no other
// finding.
func TestACheckNamesTheRecordsThatAreDamaged(t *testing.T) {
	t.Parallel()
	place := func(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
	for name, c := range map[string]struct {
		do   func(db *pebble.DB) error
		want []string // a line for each finding: position through stream revision detail
	}{
		"rotten record": {
			func(db *pebble.DB) error { return db.Set(layout.EntryKey(20), []byte("rotten"), pebble.Sync) },
			[]string{"20 20  0 read the record at position 20", "20 20 session-5 3 the record is this one, by the index"},
		},
		"missing records": {
			func(db *pebble.DB) error {
				return db.DeleteRange(layout.EntryKey(20), layout.EntryKey(22), pebble.Sync)
			},
			[]string{"20 21  0 the record is missing", "20 20 session-5 3 the record is this one", "21 21 session-6 3 the record is this one"},
		},
		"missing index": {
			func(db *pebble.DB) error { return db.Delete(layout.IndexKey("session-5", 3), pebble.Sync) },
			[]string{"20 20 session-5 3 the index does not name the record"},
		},
		"index of another": {
			func(db *pebble.DB) error { return db.Set(layout.IndexKey("session-5", 3), place(21), pebble.Sync) },
			[]string{"21 21 session-5 3 the index names a record that is revision 3 of session-6", "20 20 session-5 3 the index does not name"},
		},
		"index of nothing": {
			func(db *pebble.DB) error { return db.Set(layout.IndexKey("session-9", 1), place(9999), pebble.Sync) },
			[]string{"9999 9999 session-9 1 the index names a record that is not there"},
		},
		"a gap in a stream": {
			func(db *pebble.DB) error {
				r := newRecordWriter(9).records(1, 10)[0]
				return errors.Join(db.Set(layout.EntryKey(361), seal(layout.Encode("session-5", 99, r), 361), pebble.Sync),
					db.Set(layout.IndexKey("session-5", 99), place(361), pebble.Sync))
			},
			[]string{"361 361 session-5 99 the entry of its stream before it has revision 5"},
		},
		"a strange key": {
			func(db *pebble.DB) error { return db.Set([]byte("x/1"), nil, pebble.Sync) },
			[]string{`0 0  0 the key "x/1" does not belong to a store`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage := vfs.NewMem()
			writeSampleStore(t, storage)
			surgery(t, storage, c.do)
			_, found := checked(t, storage)
			var got []string
			for _, f := range found {
				got = append(got, fmt.Sprintf("%s %s %s %d %s", f.Position, f.Through, f.Stream, f.Revision, f.Detail))
			}
			if len(got) != len(c.want) || !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// A check reports the records of a damaged block, and reads all other records.
func TestACheckReadsOnPastADamagedBlock(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s, err := Open(t.Context(), "store", Config{FS: storage})
	must(t, err)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1000, 200)...))
	must(t, s.Compact(t.Context()))
	must(t, s.Close())
	list, err := pebblefiles.List(storage, "store/log")
	must(t, err)
	table := slices.IndexFunc(list, func(f pebblefiles.File) bool { return f.Kind == pebblefiles.Table && f.Bytes > 20_000 })
	path := "store/log/" + list[table].Name
	text, err := readFile(storage, path)
	must(t, err)
	rotten := []byte(text)
	rotten[10] ^= 1 // in the first block
	must(t, writeFile(storage, path, string(rotten)))
	c, found := checked(t, storage)
	if len(found) < 2 || found[0].File != "log/"+list[table].Name || found[0].Offset != 1 {
		t.Fatalf("found %+v, want the first block of %s first", found, list[table].Name)
	}
	if at := found[1]; at.Position != events.NewPosition(1, 1) || at.Through.Compare(events.NewPosition(900, 900)) > 0 || !strings.Contains(at.Detail, list[table].Name) {
		t.Errorf("found %+v, want the run of records in the first block, with its file", at)
	}
	through, _ := found[1].Through.Parts()
	if c.Records != 1000-through || c.Digest != "" {
		t.Errorf("checked %d records with digest %q, want the %d behind the damage and none", c.Records, c.Digest, 1000-through)
	}
}

func TestCheckOfADatabaseThatDoesNotOpenReadsItsFiles(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	writeSampleStore(t, storage)
	list, err := pebblefiles.List(storage, "store/log")
	must(t, err)
	for _, f := range list {
		if f.Kind == pebblefiles.Manifest {
			must(t, storage.Remove("store/log/"+f.Name))
		}
	}
	c, found := checked(t, storage)
	if c.Opened || len(found) < 2 || !strings.HasPrefix(found[0].File, "log/MANIFEST-") {
		t.Errorf("checked %+v, found %+v; want the manifest that is missing, and that it does not open", c, found)
	}
	if _, err := Open(t.Context(), "store", Config{FS: storage}); !errors.Is(err, storedir.ErrIncomplete) || !strings.Contains(err.Error(), "MANIFEST-") {
		t.Errorf("Open without a manifest = %v, want %v that names it", err, storedir.ErrIncomplete)
	}
}

func TestACheckRefusesWhatIsNoStoreOrInUse(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	must(t, storage.MkdirAll("empty", 0o755))
	must(t, storage.MkdirAll("other", 0o755))
	must(t, writeFile(storage, "other/notes", "mine"))
	must(t, storage.MkdirAll("newer", 0o755))
	must(t, writeFile(storage, "newer/FORMAT", "settlement-ledger store, format 99\n"))
	open(t, storage)
	for dir, want := range map[string]error{"empty": events.ErrNotAStore, "other": events.ErrNotAStore, "newer": events.ErrNewerFormat, "store": events.ErrInUse} {
		if _, err := integrity.Check(t.Context(), dir, func(integrity.Finding) {}, integrity.Options{FS: storage}); !errors.Is(err, want) {
			t.Errorf("Check(%s) = %v, want %v", dir, err, want)
		}
	}
}

// A check works on a disk that refuses writes, and reports that it had no lock.
func TestACheckNeedsNotWrite(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	writeSampleStore(t, storage)
	c, found := checked(t, lockless{pebblefiles.ReadOnly(storage)})
	if len(found) > 0 || c.Records != 360 || c.Locked {
		t.Errorf("checked %+v, found %+v; want 360 records, not locked", c, found)
	}
}

// A lockless file system cannot lock files.
type lockless struct{ vfs.FS }

func (lockless) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "lock", Path: name, Err: os.ErrPermission}
}

// bitFlips returns the number of bits that are flipped, one at a time: 500 in a long
// test.
func bitFlips(t testing.TB) int {
	n := repeats(8, 500)
	if text := os.Getenv("LEDGER_TEST_BIT_FLIPS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(t, err)
	}
	return n
}

// A flipped bit in any file of a closed store is reported by a check, or has no
// effect. No reader returns changed records without an error.
func TestAFlippedBitIsNeverAWrongAnswer(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	truth := writeSampleStore(t, storage)
	whole := contents(t, storage, "store")
	names := []string{}
	for name, text := range whole {
		if len(text) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	flipped := func(name string, at, bit int) vfs.FS {
		return withFlip(t, whole, name, at, bit)
	}
	if _, found := checked(t, flipped("", 0, 0)); len(found) > 0 {
		t.Fatalf("found %+v in a copy, want nothing", found)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	reported, harmless := 0, map[string]int{}
	for range bitFlips(t) {
		name := names[rng.IntN(len(names))]
		at, bit := rng.IntN(len(whole[name])), rng.IntN(8)
		clone := flipped(name, at, bit)
		var found []integrity.Finding
		_, err := integrity.Check(t.Context(), "store", func(f integrity.Finding) { found = append(found, f) }, integrity.Options{FS: clone})
		told := err != nil || len(found) > 0
		right, err := answers(t, clone, truth)
		switch {
		case err != nil:
			t.Errorf("%s, byte %d, bit %d: %v", name, at, bit, err)
		case told:
			reported++
		case right:
			harmless[name]++
		default:
			t.Errorf("%s, byte %d, bit %d: readers are refused, and the check finds nothing", name, at, bit)
		}
	}
	t.Logf("%d flips in %d files: %d reported, harmless %v", bitFlips(t), len(names), reported, harmless)
}

// answers opens a store and reads all its records. right is true if the store opened
// and all records are equal to truth. A differing record is an error; a reported
// damage is not.
func answers(t *testing.T, storage vfs.FS, truth []events.Entry) (right bool, err error) {
	s, err := Open(t.Context(), "store", Config{FS: storage})
	if err != nil {
		return false, nil
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	streams := map[events.Stream][]events.Entry{}
	for _, e := range truth {
		streams[e.Stream] = append(streams[e.Stream], e)
	}
	right = true
	read := func(name string, want []events.Entry, next func(func(events.Entry, error) bool)) {
		i := 0
		for e, broke := range next {
			if broke != nil {
				right = false
				if !errors.Is(broke, events.ErrDamaged) {
					err = errors.Join(err, fmt.Errorf("read %s: %v, want it to be %v", name, broke, events.ErrDamaged))
				}
				return
			}
			if i >= len(want) || digestOfEntries(e) != digestOfEntries(want[i]) || e.Position != want[i].Position {
				err = errors.Join(err, fmt.Errorf("read %s: entry %d is wrong", name, i+1))
				return
			}
			i++
		}
		if i < len(want) {
			err = errors.Join(err, fmt.Errorf("read %s: %d entries and no error, want %d", name, i, len(want)))
		}
	}
	read("all", truth, s.ReadAll(t.Context(), events.Position{}))
	for stream, want := range streams {
		read(string(stream), want, s.Read(t.Context(), stream, 0))
	}
	data, broke := s.LoadCheckpoint(t.Context(), "calls")
	if broke != nil {
		right = false
	} else if string(data) != `{"n":20}` {
		err = errors.Join(err, fmt.Errorf("checkpoint %q is wrong", data))
	}
	return right, err
}

func digestOfEntries(entries ...events.Entry) string {
	d := events.NewDigest()
	for _, e := range entries {
		d.Add(e)
	}
	return d.String()
}

// quietLogger returns the logger that a store gives to Pebble. It logs nothing.
func quietLogger(storage vfs.FS) pebble.Logger {
	return pebblefiles.NewFailStopFS(storage, pebblefiles.FailStopOptions{})
}
