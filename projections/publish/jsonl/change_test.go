package jsonl_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jsonl"
)

// fullDisk is the variable that makes the test program publish to a full disk. Its
// value is the path of the file.
const fullDisk = "LEDGER_TEST_FULL_DISK"

// TestMain runs the program of fullDisk in place of the tests if the environment sets
// that variable.
func TestMain(m *testing.M) {
	if path := os.Getenv(fullDisk); path != "" {
		if err := publishToAFullDisk(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// publishToAFullDisk publishes ten records while there is room for four and a half,
// and again when there is room for all.
func publishToAFullDisk(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	f, err := jsonl.Open(path, at(0))
	if err != nil {
		return err
	}
	var all []*message.Message
	for n := range 10 {
		all = append(all, record(n+1, fmt.Sprintf(`{"n":%d}`, n+1)))
	}
	if err := f.Publish("topic", all[:3]...); err != nil {
		return err
	}
	three, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := room(uint64(three.Size()) * 3 / 2); err != nil {
		return err
	}
	if err := f.Publish("topic", all[3:]...); !errors.Is(err, publish.ErrUnavailable) {
		return fmt.Errorf("on a full disk: Publish = %w, want ErrUnavailable", err)
	}
	if now, err := os.Stat(path); err != nil || now.Size() != three.Size() {
		return fmt.Errorf("on a full disk: the file is %v (%w), want it as it was, of %d bytes", now, err, three.Size())
	}
	if err := f.Publish("topic", all[3]); err != nil {
		return fmt.Errorf("of what there is room for: %w", err)
	}
	if err := room(1 << 20); err != nil {
		return err
	}
	return errors.Join(f.Publish("topic", all[3:]...), f.Close())
}

// room limits the size of the files of this process.
func room(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = size
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// A full disk is an ErrUnavailable that leaves the file as it was; with room again
// every record is written once. It runs in a process of its own, whose file size is
// limited.
func TestAFullDiskIsUnavailable(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f")
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), fullDisk+"="+path)
	if told, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, told)
	}
	holds(t, path, 10)
}

// After a file is removed, moved or replaced, acknowledged records are in a new file
// of its name. A File that lost its folder is unavailable until the folder is back.
func TestARemovedFileIsRecreated(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".1") },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		},
	} {
		path := filepath.Join(t.TempDir(), "f")
		f := open(t, path, at(0))
		put(t, f, 1, 2)
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		put(t, f, 3, 4)
		put(t, f, 4, 5)
		if got, want := revisions(t, path), []int{3, 4, 5}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the file has %v, want %v", what, got, want)
		}
		if _, err := jsonl.Open(path, at(0)); !errors.Is(err, jsonl.ErrInUse) {
			t.Errorf("%s: Open again = %v, want ErrInUse", what, err)
		}
		if what == "moved" {
			put(t, open(t, path+".1", at(0)), 3, 3) // the moved file is unlocked
		}
	}
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := open(t, filepath.Join(dir, "f"), at(0))
	put(t, f, 1, 1)
	if err := os.Rename(dir, dir+".1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Publish("topic", record(2, "{}")); !errors.Is(err, publish.ErrUnavailable) {
		t.Errorf("without its folder: Publish = %v, want ErrUnavailable", err)
	}
	if err := os.Rename(dir+".1", dir); err != nil {
		t.Fatal(err)
	}
	put(t, f, 2, 3)
	holds(t, filepath.Join(dir, "f"), 3)
}

// revisions returns the revision of each line of a file.
func revisions(t *testing.T, path string) (all []int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var n int
		if _, err := fmt.Sscanf(string(line[bytes.Index(line, []byte(`"revision"`)):]), `"revision":%d,`, &n); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, n)
	}
	return all
}

// A file is removed while records are written. Each record whose write begins after
// that is in the recreated file.
func TestAFileRemovedDuringAWriteIsRecreated(t *testing.T) {
	t.Parallel()
	for range 20 {
		path := filepath.Join(t.TempDir(), "f")
		f := open(t, path, at(0))
		put(t, f, 1, 1)
		var acknowledged, removed atomic.Int64
		removed.Store(-1)
		acknowledged.Store(1)
		var removing sync.WaitGroup
		removing.Go(func() {
			for acknowledged.Load() < 3 {
				runtime.Gosched()
			}
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
			removed.Store(acknowledged.Load())
		})
		n := 1
		for ; n < 2000 && (removed.Load() < 0 || int64(n) < removed.Load()+3); n++ {
			put(t, f, n+1, n+1)
			acknowledged.Store(int64(n + 1))
		}
		removing.Wait()
		put(t, f, n+1, n+1)
		there := map[int]bool{}
		for _, r := range revisions(t, path) {
			there[r] = true
		}
		// The record behind the last that was acknowledged may have been written
		// before the file was removed, and acknowledged after.
		for k := int(removed.Load()) + 2; k <= n+1; k++ {
			if !there[k] {
				t.Fatalf("record %d was acknowledged after the file was removed, and is not in %v", k, there)
			}
		}
	}
}

// After another process truncates the file, new lines follow its remaining whole
// lines, and the missing records that are published again are written.
func TestATruncatedFileKeepsWholeLines(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "whole")
	put(t, open(t, whole, at(0)), 1, 3)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(data); cut += 7 {
		path := filepath.Join(t.TempDir(), "f")
		f := open(t, path, at(0))
		put(t, f, 1, 3)
		if err := os.Truncate(path, int64(cut)); err != nil {
			t.Fatal(err)
		}
		put(t, f, 3, 4)
		want := []int{3, 4}
		for n := bytes.Count(data[:cut], []byte("\n")); n > 0; n-- {
			want = append([]int{n}, want...)
		}
		if got := revisions(t, path); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("cut at %d: the file has %v, want %v", cut, got, want)
		}
	}
}

// Foreign text at the end of the file is not changed and makes the target
// unavailable. Once it is removed, publishing continues.
func TestWhatOthersAppendIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path, at(0))
	put(t, f, 1, 2)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	foreign := append(bytes.Clone(before), "notes\n"...)
	if err := os.WriteFile(path, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	err = f.Publish("topic", record(3, `{"n":3}`))
	if !errors.Is(err, publish.ErrUnavailable) || !errors.Is(err, jsonl.ErrForeign) {
		t.Errorf("Publish = %v, want ErrUnavailable, as it is ErrForeign", err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, foreign) {
		t.Errorf("the file is %q (%v), want it as it was", got, err)
	}
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, f, 3, 3)
	holds(t, path, 3)
}

// A retried record is behind later ones in the file. Opening the file still finds the
// records after the checkpoint that precede it.
func TestALateRecordHidesNoOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path, at(0))
	put(t, f, 1, 1)
	put(t, f, 3, 9)
	put(t, f, 2, 2)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, path, at(5))
	put(t, f, 2, 2)
	put(t, f, 6, 10)
	if got, want := fmt.Sprint(revisions(t, path)), "[1 3 4 5 6 7 8 9 2 10]"; got != want {
		t.Errorf("the file has %s, want %s", got, want)
	}
}

// Records that are published again are not written again, although the File caches a
// bounded number of IDs.
func TestRepeatedRecordsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f := open(t, path, at(0))
	many := 13_000 // more than three times the IDs that a Publisher caches in a generation
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		many = 20_000
	}
	put(t, f, 1, many)
	put(t, f, many-4000, many+1)
	holds(t, path, many+1)
	bounded := func(what string) {
		t.Helper()
		if n := strings.Count(fmt.Sprintf("%+v", f), "evt_"); n > 3*4096 {
			t.Errorf("%s: %d IDs are remembered, want a bounded number", what, n)
		}
	}
	bounded("written")
	for what, p := range map[string]uint64{"made anew": 0, "gone on": uint64(many)} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		f = open(t, path, at(p))
		put(t, f, int(p)+1, many+1)
		holds(t, path, many+1)
		bounded(what)
	}
}
