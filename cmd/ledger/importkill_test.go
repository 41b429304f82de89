package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/events"
)

// transcriptFolder returns a folder with the session file of one session and the files
// of its three sub-agents.
func transcriptFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var session bytes.Buffer
	fmt.Fprintln(&session, `{"type":"user","uuid":"p","sessionId":"S","timestamp":"2026-03-01T10:00:00Z","permissionMode":"plan","message":{"content":"go"}}`)
	for n := range repeats(600, 3000) {
		agent := fmt.Sprint("a", n%3)
		fmt.Fprintf(&session, `{"type":"assistant","uuid":"c%[1]d","sessionId":"S","timestamp":"2026-03-01T10:00:01Z","message":{"id":"m%[1]d","content":[{"type":"tool_use","id":"t%[1]d","name":"Agent","input":{"n":%[1]d}}]}}
{"type":"user","uuid":"r%[1]d","sessionId":"S","timestamp":"2026-03-01T10:00:02Z","toolUseResult":{"agentId":"%[2]s"},"message":{"content":[{"type":"tool_result","tool_use_id":"t%[1]d","content":"done"}]}}
`, n, agent)
		if n < 3 {
			row := fmt.Sprintf(`{"type":"user","isSidechain":true,"agentId":"%s","uuid":"s%d","sessionId":"S","timestamp":"2026-03-01T10:00:01Z","message":{"content":"look"}}`+"\n", agent, n)
			write(t, filepath.Join(dir, "S", "subagents", "agent-"+agent+".jsonl"), row)
		}
	}
	write(t, filepath.Join(dir, "S.jsonl"), session.String())
	return dir
}

// write creates a file with a text, and the folders above it.
func write(t *testing.T, name, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An import killed at any moment is resumed by the next one, and the resulting log
// equals that of an uninterrupted import.
func TestAnImportThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	folder := transcriptFolder(t)
	clean, store := filepath.Join(t.TempDir(), "clean"), filepath.Join(t.TempDir(), "killed")
	began := time.Now()
	if got := ledger(t, clean, "import", "claude-code", folder); got.exit != 0 {
		t.Fatalf("import = %d %s", got.exit, got.err)
	}
	took, kills := time.Since(began), 0
	for range repeats(3, 12) {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(took))
		err := exec.CommandContext(ctx, commandPath(), "--store", store, "import", "claude-code", folder).Run()
		cancel()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL || errors.Is(err, context.DeadlineExceeded) {
			kills++
		} else if err != nil {
			t.Fatalf("import = %v, want its kill", err)
		}
	}
	if got := ledger(t, store, "import", "claude-code", folder); got.exit != 0 {
		t.Fatalf("import after %d kills = %d %s", kills, got.exit, got.err)
	}
	if got := ledger(t, store, "verify"); got.exit != 0 {
		t.Errorf("verify after %d kills = %d %s", kills, got.exit, got.out)
	}
	if diff := cmp.Diff(byStream(t, clean), byStream(t, store)); diff != "" {
		t.Errorf("records after %d kills (-clean +killed):\n%s", kills, diff)
	}
}

// byStream returns the records of each stream as text. Of the SessionSpawned records of
// a stream it keeps only the last: a resumed import may append several, each more
// complete than the one before.
func byStream(t *testing.T, store string) map[events.Stream][]string {
	t.Helper()
	all, spawned := map[events.Stream][]string{}, map[events.Stream]string{}
	for _, e := range readEntries(t, store) {
		if e.Kind == (events.SessionSpawned{}).Kind() {
			spawned[e.Stream] = string(e.Data)
			continue
		}
		all[e.Stream] = append(all[e.Stream], fmt.Sprintf("%s %s %s %s", e.ID, e.Kind, e.Time, e.Data))
	}
	for stream, data := range spawned {
		all[stream] = append(all[stream], data)
	}
	return all
}
