package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/verify"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// newSeededStore returns the folder of a new store with the history that seed writes.
func newSeededStore(t *testing.T) string {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	if err := seed(store); err != nil {
		t.Fatal(err)
	}
	return store
}

// startFollower starts a command that follows the log, and returns once the command has
// printed that it caught up. The process is killed when the test ends.
func startFollower(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), commandPath(), args...)
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if strings.Contains(lines.Text(), "caught up, following") {
			return cmd
		}
	}
	t.Fatalf("ledger %s ended before it caught up", strings.Join(args, " "))
	return nil
}

// A command refused by a store that is in use names the process that holds it, in text
// and by the code store_in_use in JSON.
func TestAStoreInUseNamesTheProcess(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	holder, err := embedded.Open(t.Context(), store, embedded.Config{Owner: storedir.Owner{Command: "some program"}})
	noError(t, err)
	refused := ledger(t, store, "session", "ls")
	if refused.exit != fault.ExitConflict {
		t.Errorf("session ls: exit %d, want %d", refused.exit, fault.ExitConflict)
	}
	for _, want := range []string{"process " + strconv.Itoa(os.Getpid()), "some program", "hint: "} {
		if !strings.Contains(string(refused.err), want) {
			t.Errorf("session ls says %q, want it to hold %q", refused.err, want)
		}
	}
	refused = ledger(t, store, "import", "claude-code", "-o", "json", "-")
	if fault := decodeJSON[struct{ Code string }](t, refused.err); fault.Code != "store_in_use" {
		t.Errorf("import: code %q, want store_in_use", fault.Code)
	}
	noError(t, holder.Close())
	if again := ledger(t, store, "session", "ls"); again.exit != 0 {
		t.Errorf("session ls, after that: exit %d: %s", again.exit, again.err)
	}
}

// A command that follows the log does not keep other commands out of the store, and
// SIGINT ends it with status ExitInterrupted.
func TestFollowingKeepsNoOtherFromTheStore(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	tail := startFollower(t, "--store", store, "event", "tail", "-f")
	for _, args := range [][]string{{"session", "ls"}, {"recover"}} {
		if got := ledger(t, store, args...); got.exit != 0 {
			t.Errorf("%s: exit %d: %s", args, got.exit, got.err)
		}
	}
	if err := tail.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = tail.Wait() // a non-zero exit status is an error
	if got := tail.ProcessState.ExitCode(); got != fault.ExitInterrupted {
		t.Errorf("tail -f, interrupted: exit %d, want %d", got, fault.ExitInterrupted)
	}
}

// tailEvents prints the last matching event, then the sync line with the position it
// has reached, and then each matching event as it is appended. Cancelling its context
// ends it as a quiet interruption.
func TestWhatComesIsFollowed(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	a := newApp(&render.Printer{Out: bufio.NewWriter(write), Err: io.Discard, Env: os.LookupEnv, Now: time.Now, Format: render.AsJSONLines}, nil, rand.Reader)
	s, err := a.OpenSharedFolder(t.Context(), newSeededStore(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- views.TailEvents(ctx, a.Printer, a.Opener, s, query.EventFilter{Kinds: []string{"PromptAdmitted", "SessionInterrupted"}}, views.Tail{Lines: 1, Follow: true})
	}()
	lines := bufio.NewScanner(read)
	wantLine := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("followed %q, want a line with %s", lines.Text(), want)
		}
	}
	wantLine(`"kind":"SessionInterrupted"`)
	wantLine(`{"type":"sync","position":"30"}`)
	stream := events.SessionStream(s.Ledger.Mint().Session())
	for i, e := range []events.Event{events.SessionClosed{}, events.PromptAdmitted{Text: "more"}} {
		if _, err := s.Ledger.Append(t.Context(), stream, events.Revision(i), s.Ledger.Draft(e, domain.EventID{})); err != nil {
			t.Fatal(err)
		}
	}
	wantLine(`"text":"more"`)
	cancel(domain.ByUser)
	if f := fault.Of(<-ended); f.Exit != fault.ExitInterrupted || !f.Quiet {
		t.Errorf("following ended with %v, exit %d; want a quiet interruption", f, f.Exit)
	}
}

// damagedStore returns a seeded store with two more records that no ledger writes: a
// CallSettled that does not decode, at position 31, and a record of an unknown kind, at
// position 32.
func damagedStore(t *testing.T) string {
	t.Helper()
	dir := newSeededStore(t)
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2024, 4, 1, 0, 0, 0, 0, time.UTC)
	mint := domain.NewMint(func() time.Time { return now }, strings.NewReader(strings.Repeat("x", 1000)))
	broken := events.Record{ID: mint.Event(), Kind: "CallSettled", Version: 1, Time: now, Data: []byte(`"no object"`)}
	strange := events.Record{ID: mint.Event(), Kind: "SomethingElse", Version: 3, Time: now, Data: []byte(`{"a":1}`)}
	if err := store.Append(t.Context(), "process-x", 0, broken, strange); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// event ls and verify continue after a record that does not decode: event ls marks it
// and exits with an error that names its position, verify lists it as an exception.
// call ls fails with a hint at verify.
func TestReadingGoesOnBehindADamagedRecord(t *testing.T) {
	t.Parallel()
	store := damagedStore(t)
	listed := ledger(t, store, "event", "ls", "--after", "30", "-o", "jsonl")
	if listed.exit != fault.ExitFailed || !strings.Contains(string(listed.err), "position 31") {
		t.Errorf("event ls: exit %d, %s; want %d and position 31", listed.exit, listed.err, fault.ExitFailed)
	}
	lines := strings.Split(strings.TrimSpace(string(listed.out)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"damaged":"decode CallSettled`) || !strings.Contains(lines[1], `"data":{"a":1}`) {
		t.Errorf("event ls wrote %q, want the damaged record and the one behind it as they are", lines)
	}
	tail := ledger(t, store, "event", "tail", "-n", "2", "-o", "jsonl")
	if tail.exit != fault.ExitFailed || string(tail.out) != string(listed.out) || !strings.Contains(string(tail.err), "position 31") || !strings.Contains(string(tail.err), "ledger verify lists them") {
		t.Errorf("event tail: exit %d, %s%s; want the rows, the status and the errors of event ls", tail.exit, tail.out, tail.err)
	}
	if rest := ledger(t, store, "event", "tail", "-n", "1"); rest.exit != 0 {
		t.Errorf("event tail of the one event behind the damage: exit %d, %s; want 0", rest.exit, rest.err)
	}
	verified := ledger(t, store, "verify", "-o", "json")
	v := decodeJSON[struct {
		Events  int
		Unknown map[string]int        `json:"unknown_kinds"`
		Except  []verify.ExceptionRow `json:"exceptions"`
	}](t, verified.out)
	if v.Events != 32 || v.Unknown["SomethingElse v3"] != 1 || len(v.Except) != 1 || v.Except[0].Law != verify.RecordDecodes {
		t.Errorf("verify read %d events, unknown %v, exceptions %v", v.Events, v.Unknown, v.Except)
	}
	if refused := ledger(t, store, "call", "ls"); refused.exit != fault.ExitFailed || !strings.Contains(string(refused.err), "hint: ledger verify") {
		t.Errorf("call ls: exit %d, %s; want %d and a hint at verify", refused.exit, refused.err, fault.ExitFailed)
	}
}

// corruptRecord flips one bit of the record at a position, directly in Pebble, so that its
// checksum no longer matches.
func corruptRecord(t *testing.T, store string, position uint64) {
	t.Helper()
	db, err := pebble.Open(filepath.Join(store, "log"), &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := binary.BigEndian.AppendUint64([]byte("e/"), position)
	value, closer, err := db.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	rotten := slices.Clone(value)
	rotten[len(rotten)/2] ^= 1
	if err := errors.Join(closer.Close(), db.Set(key, rotten, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// event ls, event tail and verify read all other records of a store with one corrupt record,
// and report its position, event tail only if it reads the record. event ls and event tail
// then exit with status ExitFailed.
func TestReadingGoesOnBehindARecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	corruptRecord(t, store, 20)
	listed := ledger(t, store, "event", "ls", "-o", "jsonl")
	if got := strings.Count(string(listed.out), "\n"); listed.exit != fault.ExitFailed || got != 29 {
		t.Errorf("event ls: exit %d with %d rows, want %d with the 29 around the damage", listed.exit, got, fault.ExitFailed)
	}
	if !strings.Contains(string(listed.err), "position 20") {
		t.Errorf("event ls says %s, want position 20", listed.err)
	}
	if behind := ledger(t, store, "event", "tail", "-n", "3", "-o", "json"); behind.exit != 0 || len(decodeJSON[[]struct{}](t, behind.out)) != 3 {
		t.Errorf("event tail behind the damage: exit %d, %s%s; want 0 and 3 rows", behind.exit, behind.out, behind.err)
	}
	tail := ledger(t, store, "event", "tail", "-n", "15", "-o", "json")
	if rows := decodeJSON[[]struct{}](t, tail.out); tail.exit != fault.ExitFailed || len(rows) != 15 || !strings.Contains(string(tail.err), "position 20") {
		t.Errorf("event tail: exit %d with %d rows, %s; want %d, 15 rows and position 20", tail.exit, len(rows), tail.err, fault.ExitFailed)
	}

	verified := ledger(t, store, "verify", "-o", "json")
	v := decodeJSON[struct {
		Except []verify.ExceptionRow `json:"exceptions"`
	}](t, verified.out)
	if verified.exit != fault.ExitUnverified || len(v.Except) == 0 || v.Except[0].Law != verify.RecordDecodes {
		t.Errorf("verify: exit %d, exceptions %v; want %d and the damage first", verified.exit, v.Except, fault.ExitUnverified)
	}
}

// A store whose manifest files are missing is reported as damaged, and never treated as
// a missing store that may be created.
func TestAStoreThatIsNotWholeIsNoMissingStore(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	manifests, err := filepath.Glob(filepath.Join(store, "log", "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifest: %v", err)
	}
	for _, name := range manifests {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	refused := ledger(t, store, "session", "ls")
	if refused.exit != fault.ExitFailed || !strings.Contains(string(refused.err), "hint: the store is incomplete") {
		t.Errorf("session ls: exit %d, %s; want %d", refused.exit, refused.err, fault.ExitFailed)
	}
}

// verify reports a retained output that was dropped, pruned without an event, or
// replaced by one of another size.
func TestVerifyFindsAnOutputThatIsGone(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*outputs.Store, domain.Ref) error{
		"dropped": func(s *outputs.Store, ref domain.Ref) error { return s.Drop(context.Background(), ref.Settlement()) },
		"pruned without an event": func(s *outputs.Store, ref domain.Ref) error {
			_, err := s.Prune(context.Background(), ref, "policy", time.Unix(0, 0))
			return err
		},
		"of another size": func(s *outputs.Store, ref domain.Ref) error {
			if err := s.Drop(context.Background(), ref.Settlement()); err != nil {
				return err
			}
			_, err := s.Keep(context.Background(), ref, "text/plain", strings.NewReader("else"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newSeededStore(t)
			kept, err := outputs.Open(filepath.Join(store, "outputs"), outputs.Config{})
			if err != nil {
				t.Fatal(err)
			}
			for r, err := range kept.All(t.Context()) {
				if err == nil {
					err = lose(kept, r.Ref)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := kept.Close(); err != nil {
				t.Fatal(err)
			}
			v := decodeJSON[struct {
				Except []verify.ExceptionRow `json:"exceptions"`
			}](t, ledger(t, store, "verify", "-o", "json").out)
			if len(v.Except) != 1 || v.Except[0].Law != verify.OutputResolves && v.Except[0].Law != verify.OutputMatches || *v.Except[0].Call != "call_2" {
				t.Errorf("verify: %v, want the output of call_2", v.Except)
			}
		})
	}
}

// All JSON rows of a listing have the same keys, whether or not a value is null.
func TestRowsHaveAllTheirKeys(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	for _, args := range [][]string{{"call", "ls"}, {"session", "ls"}, {"event", "ls"}} {
		want := ""
		for line := range strings.Lines(string(ledger(t, store, append(args, "-o", "jsonl")...).out)) {
			got := topKeys(line)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("ledger %s has a row with %s, and another with %s", strings.Join(args, " "), got, want)
			}
		}
		if want == "" {
			t.Errorf("ledger %s has no rows", strings.Join(args, " "))
		}
	}
}

// topKeys returns the sorted top-level keys of a JSON object as text, or the decoding
// error.
func topKeys(line string) string {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &object); err != nil {
		return err.Error()
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(object)))
}
