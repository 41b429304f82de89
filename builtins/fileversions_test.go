package builtins

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
)

// changedText is the failure for a file that changed since the session knew it.
const changedText = "File changed since it was last read in this session. Read it again before editing."

// sessions returns n session IDs.
func sessions(n int) []domain.SessionID {
	mint := domain.NewMint(time.Now, rand.NewChaCha8([32]byte{9}))
	ids := make([]domain.SessionID, n)
	for i := range ids {
		ids[i] = mint.Session()
	}
	return ids
}

// runIn runs a tool in a session.
func (b *bench) runIn(t testing.TB, session domain.SessionID, tool string, in input) (domain.Output, error) {
	t.Helper()
	return call(t.Context(), t, b.tools[tool], in, domain.Invocation{Session: session})
}

// the calls that know a file afterwards, and those that change one
var (
	knowing = map[string]input{
		"read": {"path": "a"}, "write": {"path": "a", "content": "one two\n"}, "edit": {"path": "a", "oldString": "zero", "newString": "one two"},
	}
	changing = map[string]input{
		"write": {"path": "a", "content": "ours"}, "edit": {"path": "a", "oldString": "two", "newString": "ours"},
	}
)

func TestChangeOfAFileThatTheSessionKnowsRefusesEditAndWrite(t *testing.T) {
	t.Parallel()
	for first, known := range knowing {
		for second, change := range changing {
			b := newBench(t)
			b.put(t, "a", "zero\n")
			if _, err := b.run(t, first, known); err != nil {
				t.Fatal(err)
			}
			b.put(t, "a", "two, by another process\n")
			for range 2 { // a refusal makes nothing known
				if _, err := b.run(t, second, change); err == nil || err.Error() != changedText {
					t.Errorf("%s after %s = %v, want %q", second, first, err, changedText)
				}
			}
			if got := b.content(t, "a"); got != "two, by another process\n" {
				t.Errorf("%s after %s: the file holds %q", second, first, got)
			}
			must[readResult](t, b, "read", input{"path": "a", "offset": 1, "limit": 1})
			if _, err := b.run(t, second, change); err != nil {
				t.Errorf("%s after a read = %v", second, err)
			}
		}
	}
}

func TestFileThatTheSessionNeverReadIsChanged(t *testing.T) {
	t.Parallel()
	ids := sessions(2)
	for tool, in := range changing {
		b := newBench(t)
		b.put(t, "a", "one two\n")
		if _, err := b.runIn(t, ids[0], "read", input{"path": "a"}); err != nil {
			t.Fatal(err)
		}
		b.put(t, "a", "one two three\n")
		if _, err := b.runIn(t, ids[1], tool, in); err != nil {
			t.Errorf("%s in a session that did not read the file = %v", tool, err)
		}
		if _, err := b.runIn(t, ids[0], tool, in); err == nil || err.Error() != changedText {
			t.Errorf("%s in the session that read it before = %v, want %q", tool, err, changedText)
		}
	}
}

func TestOwnChangesAreKnown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must[writeResult](t, b, "write", input{"path": "a", "content": "one"})
	must[editResult](t, b, "edit", input{"path": "a", "oldString": "one", "newString": "two"})
	must[writeResult](t, b, "write", input{"path": "a", "content": "three"})
	must[editResult](t, b, "edit", input{"path": "a", "oldString": "three", "newString": "four"})
	b.put(t, "a", "four") // the same content at another time is no change
	must[editResult](t, b, "edit", input{"path": "a", "oldString": "four", "newString": "five"})
	if err := os.Remove(filepath.Join(b.dir, "a")); err != nil {
		t.Fatal(err)
	}
	must[writeResult](t, b, "write", input{"path": "a", "content": "six"}) // there is no content to lose
}

// A read of one page knows the whole file, also a large one.
func TestPageKnowsTheWholeFile(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"hashed": 1 << 20, "by size and time": maxHashed + 1} {
		b := newBench(t)
		path := filepath.Join(b.dir, "a")
		b.put(t, "a", "first line\n")
		if err := os.Truncate(path, size); err != nil { // zeros, in a sparse file
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(strings.Repeat("x\n", sampleSize)), 0); err != nil {
			t.Fatal(err)
		}
		read := func() domain.FileAccess {
			output, err := b.run(t, "read", input{"path": "a", "limit": 1})
			if err != nil {
				t.Fatal(err)
			}
			return output.Files()[0]
		}
		before := read()
		if again := read(); again != before || strings.HasPrefix(before.Version, "sha256:") != (size <= maxHashed) {
			t.Errorf("%s: two reads give %+v and %+v", name, before, again)
		}
		if _, err := f.WriteAt([]byte("y"), size-1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil { // the clock of the file system is coarse
			t.Fatal(err)
		}
		b.fails(t, "write", input{"path": "a", "content": "z"}, changedText)
		if after := read(); after.Version == before.Version {
			t.Errorf("%s: the version stays %s", name, after.Version)
		}
		must[writeResult](t, b, "write", input{"path": "a", "content": "z"})
	}
}

// The log keeps the accesses, and a new process goes on from them.
func TestAccessesAreRecordedAndLoaded(t *testing.T) {
	t.Parallel()
	id := sessions(1)[0]
	recorded := map[string]string{}
	var loads atomic.Int32
	b := newBench(t, func(c *Config) {
		c.FileVersions = func(_ context.Context, session domain.SessionID) (map[string]string, error) {
			loads.Add(1)
			if session != id {
				return nil, errors.New("another session")
			}
			return recorded, nil
		}
	})
	b.put(t, "a", "one")
	want := map[string]domain.FileAccess{
		"read":  {Path: filepath.Join(b.dir, "a"), Access: domain.FileRead, Version: contentVersion([]byte("one"))},
		"edit":  {Path: filepath.Join(b.dir, "a"), Access: domain.FileChanged, Version: contentVersion([]byte("two"))},
		"write": {Path: filepath.Join(b.dir, "new/b"), Access: domain.FileCreated, Version: contentVersion([]byte("three"))},
	}
	for _, c := range []struct {
		tool string
		in   input
	}{{"read", input{"path": "a"}}, {"edit", input{"path": "a", "oldString": "one", "newString": "two"}}, {"write", input{"path": "new/b", "content": "three"}}} {
		output, err := b.runIn(t, id, c.tool, c.in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]domain.FileAccess{want[c.tool]}, output.Files()); diff != "" {
			t.Errorf("%s records (-want +got):\n%s", c.tool, diff)
		}
		for _, a := range output.Files() {
			recorded[a.Path] = a.Version
		}
	}
	if loads.Load() != 1 {
		t.Errorf("the versions were loaded %d times, want once", loads.Load())
	}

	recorded[filepath.Join(b.dir, "gone")] = ""
	b.put(t, "gone", "by another process")
	b.put(t, "new/b", "by another process")
	var err error
	if b.tools, err = Tools(b.config); err != nil { // a new process
		t.Fatal(err)
	}
	for _, path := range []string{"gone", "new/b"} {
		if _, err := b.runIn(t, id, "write", input{"path": path, "content": "x"}); err == nil || err.Error() != changedText {
			t.Errorf("write %s in a new process = %v, want %q", path, err, changedText)
		}
	}
	if _, err := b.runIn(t, id, "edit", input{"path": "a", "oldString": "two", "newString": "x"}); err != nil {
		t.Errorf("edit of an unchanged file in a new process = %v", err)
	}
}

func TestVersionsThatCannotBeLoadedEndTheCallForTheOperator(t *testing.T) {
	t.Parallel()
	broken := errors.New("log on fire")
	fail := true
	b := newBench(t, func(c *Config) {
		c.FileVersions = func(context.Context, domain.SessionID) (map[string]string, error) {
			if fail {
				return nil, broken
			}
			return nil, nil
		}
	})
	for _, fail = range []bool{true, false} {
		for tool, in := range map[string]input{"read": {"path": "a"}, "write": {"path": "a", "content": "b"}, "edit": {"path": "a", "oldString": "b", "newString": "c"}} {
			b.put(t, "a", "b")
			_, err := b.runIn(t, domain.SessionID{}, tool, in)
			if _, failed := errors.AsType[*domain.Failure](err); fail && (!errors.Is(err, broken) || failed) || !fail && err != nil && err.Error() != changedText {
				t.Errorf("%s = %v, want the error of the log: %v", tool, err, fail)
			}
		}
	}
}

// A refusal is the same if the file changed and if not.
func TestRefusalDoesNotTellThatAFileChanged(t *testing.T) {
	t.Parallel()
	for tool, in := range changing {
		var texts []string
		for _, content := range []string{"one two\n", "two, by another process\n"} {
			b := newBench(t)
			b.put(t, "a", "one two\n")
			must[readResult](t, b, "read", input{"path": "a"})
			b.put(t, "a", content)
			b.decide = refuse("edit")
			_, err := b.run(t, tool, in)
			texts = append(texts, fmt.Sprint(err))
		}
		if texts[0] != texts[1] || !strings.Contains(texts[0], "denied") {
			t.Errorf("%s is refused as %q", tool, texts)
		}
	}
}

func TestConcurrentEditsOfOneSessionAllSucceed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rules = domain.Rules{{Action: "*", Resource: "*", Effect: domain.Allow}}
	const n = 20
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "before %c\n", 'a'+i)
	}
	b.put(t, "a", lines.String())
	must[readResult](t, b, "read", input{"path": "a"})
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if _, err := b.run(t, "read", input{"path": "a", "limit": 1}); err != nil {
				t.Errorf("read = %v", err)
			}
		})
		calls.Go(func() {
			_, err := b.run(t, "edit", input{"path": "a", "oldString": fmt.Sprintf("before %c", 'a'+i), "newString": fmt.Sprintf("after %c", 'a'+i)})
			if err != nil {
				t.Errorf("edit = %v", err)
			}
		})
	}
	calls.Wait()
	if got, want := b.content(t, "a"), strings.ReplaceAll(lines.String(), "before", "after"); got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
	must[writeResult](t, b, "write", input{"path": "a", "content": "the last edit is known"})
}

func TestLongUnusedSessionIsLoadedAgain(t *testing.T) {
	t.Parallel()
	loads := map[domain.SessionID]int{}
	v := newFileVersions(func(_ context.Context, session domain.SessionID) (map[string]string, error) {
		loads[session]++
		return nil, nil
	})
	use := func(id domain.SessionID) *sessionFiles {
		s, err := v.acquire(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ids := sessions(maxTrackedSessions + 2)
	held := use(ids[0]) // is in use, so it stays
	use(ids[1]).release()
	for _, id := range ids[2:] {
		use(id).release()
	}
	held.release()
	use(ids[0]).release()
	use(ids[1]).release()
	if len(v.mu.sessions) != maxTrackedSessions || loads[ids[0]] != 1 || loads[ids[1]] != 2 {
		t.Errorf("there are %d sessions, loaded %d and %d times, want %d, 1 and 2", len(v.mu.sessions), loads[ids[0]], loads[ids[1]], maxTrackedSessions)
	}
}

func TestInterruptedCallDoesNotWaitForAnother(t *testing.T) {
	t.Parallel()
	v := newFileVersions(nil)
	held, err := v.acquire(t.Context(), domain.SessionID{})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := v.acquire(ctx, domain.SessionID{}); !errors.Is(err, cause) {
		t.Errorf("acquire = %v, want the cause of the interruption", err)
	}
	held.release()
	again, err := v.acquire(t.Context(), domain.SessionID{})
	if err != nil || again.users != 1 {
		t.Errorf("acquire after the release = %v, with %d users", err, again.users)
	}
}
