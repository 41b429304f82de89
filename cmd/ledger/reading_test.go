package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// digests returns the SHA-256 digest of each file of a store by its path. It omits the
// folder ViewsName, where readers cache the states of projections, and of the index.
func digests(t *testing.T, store string) map[string]string {
	t.Helper()
	found := map[string]string{}
	noError(t, filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == stores.ViewsName || d.Name() == "index") {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	}))
	return found
}

// readingCommands lists the commands that only read, with arguments. inStore replaces
// @output.
var readingCommands = []string{
	"session ls", "session show @last", "session diff @last @last", "session tail @last",
	"turn ls", "turn show @last", "call ls", "call show @last", "permission ls", "file history go.mod", "search the", "stats",
	"approval ls", "registry at now", "event ls", "event tail", "output @output",
	"verify", "verify --outputs", "doctor", "store check", "store info",
	"consumer ls",
	"__complete session show ",
}

// inStore splits a command into arguments and replaces @output by the reference of an
// output in the store.
func inStore(t *testing.T, store, command string) []string {
	t.Helper()
	if !strings.Contains(command, "@output") {
		return strings.Fields(command)
	}
	kept, err := outputs.OpenReader(t.Context(), filepath.Join(store, "outputs"), outputs.Config{})
	noError(t, err)
	defer kept.Close()
	for r, err := range kept.All(t.Context()) {
		noError(t, err)
		return strings.Fields(strings.ReplaceAll(command, "@output", r.Ref.String()))
	}
	t.Fatal("the store has no output")
	return nil
}

// newCrashedStore appends a session to a store and returns a copy made while the store was open.
// The files of the copy are those that a killed process leaves.
func newCrashedStore(t *testing.T, store string) string {
	t.Helper()
	w, err := embedded.Open(t.Context(), store, embedded.Config{Owner: storedir.Owner{PID: 1 << 22, Command: "ledger run"}}) // above the highest process ID of Linux
	noError(t, err)
	ledger := events.NewLedger(w, domain.NewMint(time.Now, rand.Reader), time.Now)
	session := ledger.Mint().Session()
	for i, e := range []events.Event{
		events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}},
		events.PromptAdmitted{Message: ledger.Mint().Message(), Text: "more"},
	} {
		_, err := ledger.Append(t.Context(), events.SessionStream(session), events.Revision(i), ledger.Draft(e, domain.EventID{}))
		noError(t, err)
	}
	copied := filepath.Join(t.TempDir(), "store")
	copyFolder(t, store, copied)
	noError(t, w.Close())
	return copied
}

// A command that only reads changes no file of a store, whether the store was closed or
// its process was killed.
func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]string{"closed": newSeededStore(t), "killed": newCrashedStore(t, newSeededStore(t))} {
		before := digests(t, store)
		for _, command := range readingCommands {
			got := ledger(t, store, inStore(t, store, command)...)
			if after := digests(t, store); !maps.Equal(after, before) {
				t.Errorf("%s: ledger %s changed %v", name, command, changedFiles(before, after))
			}
			if got.exit != 0 && !(command == "doctor" && got.exit == fault.ExitFailed) { // the doctor reports the dead process
				t.Errorf("%s: ledger %s: exit %d, %s%s", name, command, got.exit, got.out, got.err)
			}
		}
	}
}

// changedFiles returns the sorted paths of the files that were changed, added or removed.
func changedFiles(before, after map[string]string) []string {
	var names []string
	for name := range maps.Keys(before) {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	for name := range maps.Keys(after) {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// commandAsNobody returns a command that runs as the user 65534, who owns no file of the test.
// It skips the test unless that runs as root.
func commandAsNobody(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a command as another user")
	}
	program, err := exec.LookPath(commandPath())
	noError(t, err)
	// Only the owner may enter the folder of the test binary.
	for dir := filepath.Dir(program); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		noError(t, os.Chmod(dir, 0o755))
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "HOME=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// A user without write permission reads and verifies a store, and changes no file of
// it.
func TestAnotherUsersFolderIsReadAndVerified(t *testing.T) {
	t.Parallel()
	store := newCrashedStore(t, newSeededStore(t))
	noError(t, filepath.WalkDir(filepath.Dir(filepath.Dir(store)), func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, map[bool]fs.FileMode{true: 0o755, false: 0o644}[d.IsDir()])
		}
		return err
	}))
	before := digests(t, store)
	for _, command := range readingCommands {
		cmd := commandAsNobody(t, append([]string{"--store", store}, inStore(t, store, command)...)...)
		got, err := cmd.CombinedOutput()
		if err != nil && !(command == "doctor" && cmd.ProcessState.ExitCode() == fault.ExitFailed) {
			t.Errorf("ledger %s as another user: %v, %s", command, err, got)
		}
	}
	if after := digests(t, store); !maps.Equal(after, before) {
		t.Errorf("another user changed %v", changedFiles(before, after))
	}
	if _, err := os.Stat(filepath.Join(store, stores.ViewsName)); err == nil {
		t.Error("another user left answers in the folder")
	}
	if _, err := os.Stat(filepath.Join(store, "index")); err == nil {
		t.Error("another user left an index in the folder")
	}
	// The owner can verify the store as well.
	if got := ledger(t, store, "verify"); got.exit != 0 {
		t.Errorf("verify: exit %d, %s", got.exit, got.err)
	}
}

// verify prints the same for the store of a killed process before and after a writer
// has recovered its files.
func TestVerifyOfAKilledStoreIsTheSameBeforeAndAfterAWriter(t *testing.T) {
	t.Parallel()
	store := newCrashedStore(t, newSeededStore(t))
	before := ledger(t, store, "verify", "-o", "json")
	w, err := embedded.Open(t.Context(), store, embedded.Config{})
	noError(t, err)
	noError(t, w.Close())
	if after := ledger(t, store, "verify", "-o", "json"); string(after.out) != string(before.out) || after.exit != before.exit {
		t.Errorf("verify before: exit %d, %s; after a writer: exit %d, %s", before.exit, before.out, after.exit, after.out)
	}
}

// Ten commands can read a folder at the same time.
func TestTenReadersAtOnce(t *testing.T) {
	t.Parallel()
	store := newCrashedStore(t, newSeededStore(t))
	var reading sync.WaitGroup
	for range 10 {
		reading.Go(func() {
			if got := ledger(t, store, "event", "ls", "-o", "jsonl"); got.exit != 0 || strings.Count(string(got.out), "\n") != 32 {
				t.Errorf("event ls: exit %d, %s", got.exit, got.err)
			}
		})
	}
	reading.Wait()
}

// A command that follows a folder does not hold it: other processes open, write and
// close the store, and the command receives each record once.
func TestAFolderIsFollowedPastItsProcesses(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	read, write := io.Pipe()
	a := newApp(&render.Printer{Out: bufio.NewWriter(write), Err: io.Discard, Env: os.LookupEnv, Now: time.Now, Format: render.AsJSONLines}, nil, rand.Reader)
	a.Named = store
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- a.Read(ctx, func(s *stores.Store) error {
			return views.TailEvents(ctx, a.Printer, a.Opener, s, query.EventFilter{Kinds: []string{"PromptAdmitted"}}, views.Tail{Lines: 1, Follow: true})
		})
		write.Close()
	}()
	lines := bufio.NewScanner(read)
	wantLine := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("followed %q, want a line with %s", lines.Text(), want)
		}
	}
	wantLine(`"kind":"PromptAdmitted"`)
	wantLine(`{"type":"sync","position":"30"}`)
	for n := range 3 {
		w, err := embedded.Open(t.Context(), store, embedded.Config{})
		noError(t, err)
		ledger := events.NewLedger(w, domain.NewMint(time.Now, rand.Reader), time.Now)
		stream := events.SessionStream(ledger.Mint().Session())
		for i, e := range []events.Event{events.SessionClosed{}, events.PromptAdmitted{Text: fmt.Sprint("more ", n)}} {
			_, err := ledger.Append(t.Context(), stream, events.Revision(i), ledger.Draft(e, domain.EventID{}))
			noError(t, err)
		}
		noError(t, w.Close())
		if n != 1 { // the second record is awaited together with the third
			for m := max(0, n-1); m <= n; m++ {
				if n == 0 || m > 0 {
					wantLine(fmt.Sprintf(`"text":"more %d"`, m))
				}
			}
		}
	}
	cancel(domain.ByUser)
	if f := fault.Of(<-ended); f.Exit != fault.ExitInterrupted || !f.Quiet {
		t.Errorf("following ended with %v, exit %d; want a quiet interruption", f, f.Exit)
	}
	if lines.Scan() {
		t.Errorf("followed %q as well", lines.Text())
	}
}
