package embedded

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"go.uber.org/goleak"
)

// A store whose log folder was removed does not open as an empty store.
func TestAStoreWithoutItsLogIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Config{})
	must(t, err)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 10)...))
	must(t, s.Close())
	must(t, os.RemoveAll(filepath.Join(dir, storedir.LogName)))
	if _, err := Open(t.Context(), dir, Config{}); !errors.Is(err, storedir.ErrIncomplete) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), storedir.LogName) {
		t.Errorf("Open without the log = %v, want storedir.ErrIncomplete that names the folder and what is missing", err)
	}
	untouched(t, dir, storedir.FormatName, storedir.LockName)
	must(t, os.Mkdir(filepath.Join(dir, storedir.LogName), 0o700))
	if _, err := Open(t.Context(), dir, Config{}); !errors.Is(err, storedir.ErrIncomplete) {
		t.Errorf("Open with an empty log = %v, want storedir.ErrIncomplete", err)
	}
}

// TestOpenThatFailsLeavesNoGoroutine is not parallel: no other test runs meanwhile.
func TestOpenThatFailsLeavesNoGoroutine(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Config{})
	must(t, err)
	must(t, s.Close())
	must(t, os.RemoveAll(filepath.Join(dir, storedir.LogName)))
	must(t, os.Mkdir(filepath.Join(dir, storedir.LogName), 0o700))
	before := goleak.IgnoreCurrent()
	if _, err := Open(t.Context(), dir, Config{}); !errors.Is(err, storedir.ErrIncomplete) {
		t.Errorf("Open with an empty log = %v, want %v", err, storedir.ErrIncomplete)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// A folder with a folder log and without FORMAT is not a store.
func TestAFolderWithALogOfItsOwnIsNotAStore(t *testing.T) {
	t.Parallel()
	for _, begun := range []string{"", "settle", storedir.FormatTitle} {
		dir := t.TempDir()
		want := []string{storedir.LogName}
		must(t, os.Mkdir(filepath.Join(dir, storedir.LogName), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, storedir.LogName, "mine"), nil, 0o600))
		if begun != "" {
			must(t, os.WriteFile(filepath.Join(dir, storedir.FormatDraftName), []byte(begun), 0o600))
			want = []string{storedir.FormatDraftName, storedir.LogName}
		}
		if _, err := Open(t.Context(), dir, Config{}); !errors.Is(err, events.ErrNotAStore) {
			t.Errorf("Open of a folder with a log = %v, want ErrNotAStore", err)
		}
		untouched(t, dir, want...)
		untouched(t, filepath.Join(dir, storedir.LogName), "mine")
	}
}

// Each file of a closed store is removed in turn. The store does not open, or it has
// all its records.
func TestOpenNamesAnyMissingFile(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	p := newRecordWriter(1)
	must(t, s.Append(t.Context(), "s-1", 0, p.records(20, 1000)...))
	must(t, s.db.Flush())
	must(t, s.Append(t.Context(), "s-1", 20, p.records(20, 1000)...))
	must(t, s.Close())
	names, err := storage.List("store/log")
	must(t, err)
	refused := 0
	for _, name := range names {
		half := vfs.NewMem()
		if _, err := vfs.Clone(storage, half, "store", "store"); err != nil {
			t.Fatal(err)
		}
		must(t, half.Remove("store/log/"+name))
		s, err := Open(t.Context(), "store", Config{FS: half})
		if err != nil {
			if !errors.Is(err, storedir.ErrIncomplete) || !strings.Contains(err.Error(), "open store") {
				t.Errorf("Open without %s = %v, want storedir.ErrIncomplete", name, err)
			}
			refused++
			continue
		}
		if n := len(all(t, s)); n != 40 {
			t.Errorf("Open without %s succeeds with %d records, want 40 or storedir.ErrIncomplete", name, n)
		}
		must(t, s.Close())
	}
	if refused < 3 { // a table, the manifest and its marker at the least
		t.Errorf("%d of %d files are missed", refused, len(names))
	}
}

// The power is cut directly before FORMAT gets its name. The database is complete
// then, and its content is kept.
func TestAStoreCutOffWithItsDatabaseBegunOpens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Config{})
	must(t, err)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(3, 1)...))
	must(t, s.Close())
	must(t, os.Rename(filepath.Join(dir, storedir.FormatName), filepath.Join(dir, storedir.FormatDraftName)))
	must(t, os.WriteFile(filepath.Join(dir, storedir.OwnerName), []byte("{}"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, storedir.FormatName), []byte(storedir.FormatTitle), 0o600)) // its beginning
	s, err = Open(t.Context(), dir, Config{})
	must(t, err)
	if n := len(all(t, s)); n != 3 {
		t.Errorf("the store holds %d records, want 3", n)
	}
	must(t, s.Append(t.Context(), "s-1", 3, newRecordWriter(2).records(1, 1)...))
	must(t, s.Close())
	untouched(t, dir, storedir.FormatName, storedir.LockName, storedir.LogName)
}

func TestAStoreOnAReadOnlyFolderIsRefused(t *testing.T) {
	t.Parallel()
	asNobody(t, func(dir string) {
		s, err := Open(t.Context(), dir, Config{})
		must(t, err)
		must(t, s.Close())
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			return errors.Join(err, os.Chmod(path, 0o555))
		}))
	}, "permission denied")
}

func TestAStoreOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	asNobody(t, func(dir string) {
		s, err := Open(t.Context(), filepath.Join(dir), Config{})
		must(t, err)
		must(t, s.Close())
		must(t, os.Chmod(dir, 0o755))
	}, "permission denied")
}

// asNobody makes a store, and lets a process of another user open it.
func asNobody(t *testing.T, make func(dir string), want string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	parent, err := os.MkdirTemp("", "nobody")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	must(t, os.Chmod(parent, 0o755))
	dir, program := filepath.Join(parent, "store"), filepath.Join(parent, "program")
	make(dir)
	from, err := os.Open(os.Args[0])
	must(t, err)
	defer from.Close()
	to, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, errors.Join(err, to.Close()))
	other := exec.Command(program)
	other.Dir = parent
	other.Env = append(os.Environ(), holdVariable+"="+dir)
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	logBuffer, err := other.Output()
	if err == nil || !strings.Contains(string(logBuffer), want) || !strings.Contains(string(logBuffer), dir) {
		t.Errorf("another user who opens the store is told %q, %v, want %q and the folder", logBuffer, err, want)
	}
}

func TestANetworkFileSystemIsLogged(t *testing.T) {
	t.Parallel()
	var logBuffer bytes.Buffer
	s := &Store{folder: &storedir.Dir{Path: "/mnt/store"}}
	s.warnNetwork("NFS", slog.New(slog.NewTextHandler(&logBuffer, nil)))
	if text := logBuffer.String(); !strings.Contains(text, "WARN") || !strings.Contains(text, "NFS") || !strings.Contains(text, "/mnt/store") {
		t.Errorf("of a network file system the logger is told %q", text)
	}
	logBuffer.Reset()
	s.warnNetwork("", slog.New(slog.NewTextHandler(&logBuffer, nil)))
	if logBuffer.Len() > 0 {
		t.Errorf("of a disk the logger is told %q, want nothing", logBuffer.String())
	}
	if name := network(t.TempDir()); name != "" {
		t.Skipf("the tests are on %s", name)
	}
	if network(filepath.Join(t.TempDir(), "missing")) != "" {
		t.Error("a folder that is missing is on a network")
	}
}

func TestRecordsOfNoBytesAndOfTheMostAreKept(t *testing.T) {
	t.Parallel()
	storage, most := vfs.NewMem(), repeats(2<<20, DefaultMaxRecord)
	s, err := Open(t.Context(), "store", Config{FS: storage, MaxRecord: most})
	must(t, err)
	records := newRecordWriter(1).records(3, 0)
	records[0].Data = nil
	records[1].Data, records[1].Metadata = bytes.Repeat([]byte("x"), most/2), bytes.Repeat([]byte("y"), most/2)
	records[2].Data = []byte{}
	must(t, s.Append(t.Context(), "s-1", 0, records...))
	must(t, s.Append(t.Context(), "s-1", 0, records...)) // a repeat
	over := newRecordWriter(2).records(1, 0)
	over[0].Data, over[0].Metadata = bytes.Repeat([]byte("x"), most), []byte("y")
	if err := s.Append(t.Context(), "s-1", 3, over...); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("Append(one byte more than the most) = %v, want ErrTooLarge", err)
	}
	must(t, s.Close())
	s = open(t, storage) // with the default limit
	over[0].Data = bytes.Repeat([]byte("x"), DefaultMaxRecord)
	if err := s.Append(t.Context(), "s-1", 3, over...); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("Append(one byte more than the default limit) = %v, want ErrTooLarge", err)
	}
	entries := all(t, s)
	if len(entries) != 3 {
		t.Fatalf("the store holds %d records, want 3", len(entries))
	}
	for i, e := range entries {
		if !bytes.Equal(e.Data, records[i].Data) || !bytes.Equal(e.Metadata, records[i].Metadata) {
			t.Errorf("record %d is not what was appended", i+1)
		}
	}
}

func TestANameOfTenThousandBytesIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	name := events.Stream("s-" + strings.Repeat("x", 10_000-2))
	if err := s.Append(t.Context(), name, 0, newRecordWriter(1).records(1, 1)...); !errors.Is(err, events.ErrBadRecord) {
		t.Errorf("Append(a name of 10,000 bytes) = %v, want ErrBadRecord", err)
	}
	for e, err := range s.Read(t.Context(), name, 0) {
		t.Errorf("Read(a name of 10,000 bytes) yields %v, %v, want nothing", e, err)
	}
}

func TestAClockThatJumpsBackChangesNoOrder(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	records := newRecordWriter(1).records(3, 10)
	for i, year := range []int{2026, 1969, -290_000} {
		records[i].Time = time.Date(year, 1, 1, 0, 0, 0, 1000, time.UTC)
		must(t, s.Append(t.Context(), "s-1", events.Revision(i), records[i]))
	}
	for i, e := range all(t, s) {
		if e.ID != records[i].ID || !e.Time.Equal(records[i].Time) {
			t.Errorf("entry %d is %s of %s, want %s of %s", i+1, e.ID, e.Time, records[i].ID, records[i].Time)
		}
	}
}

// streamsVariable is an environment variable with the number of streams of the test
// below.
const streamsVariable = "LEDGER_TEST_STREAMS"

// The test appends to more streams than the length cache holds, and again to each
// stream after a reopening.
func TestLengthsOfManyStreamsAreNotAllCached(t *testing.T) {
	t.Parallel()
	storage, p := vfs.NewMem(), newRecordWriter(1)
	most := repeats(200, maxCachedStreams)
	streams, err := strconv.Atoi(cmp.Or(os.Getenv(streamsVariable), strconv.Itoa(3*most)))
	must(t, err)
	for round := range events.Revision(2) {
		s, err := Open(t.Context(), "store", Config{FS: storage, Durability: Interval(time.Hour)})
		must(t, err)
		s.lengthCache.maxStreams = most
		for i := range streams {
			if err := s.Append(t.Context(), events.Stream(fmt.Sprint("s-", i)), round, p.records(1, 1)...); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Append(context.Background(), "s-0", round, p.records(1, 1)...); !errors.Is(err, events.ErrConflict) {
			t.Errorf("Append to a stream whose head was forgotten = %v, want a conflict", err)
		}
		must(t, s.Close())
		if n := len(s.lengthCache.young) + len(s.lengthCache.old); n > 2*most {
			t.Errorf("%d heads are remembered, want at most %d", n, 2*most)
		}
	}
}
