//go:build linux

package main

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// waitingSession is a session whose second call waits, with a child of its shell that
// tells its number first.
const waitingSession = `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"},
 {"source":"agent","message":"one","tool_calls":[{"tool_call_id":"a","function_name":"bash","arguments":{"command":"echo one"}}]},
 {"source":"agent","message":"two","tool_calls":[
  {"tool_call_id":"b","function_name":"bash","arguments":{"command":"sleep 1000 & echo $! > child; echo > told; wait"}}]},
 {"source":"agent","message":"three"}]}`

// A process whose terminal is gone ends its calls and what they started before it
// ends itself. For one whose reader left, see closedpipe_test.go.
func TestAHangUpInterrupts(t *testing.T) {
	t.Parallel()
	// What the tests themselves are run under, such as nohup, is not for the
	// command: a signal that is caught here is not ignored there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	dir := t.TempDir()
	trajectory, store := filepath.Join(dir, "t.json"), filepath.Join(dir, "store")
	if err := os.WriteFile(trajectory, []byte(waitingSession), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "told"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	cmd := exec.CommandContext(t.Context(), commandPath(), "--store", store, "run", "--script", trajectory, "--workspace", dir)
	cmd.Stderr = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if !bufio.NewScanner(reader).Scan() {
		t.Fatal("the run tells nothing")
	}
	if _, err := os.ReadFile(filepath.Join(dir, "told")); err != nil { // waits for the writer
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // an error tells the exit code
	if got := cmd.ProcessState.ExitCode(); got != fault.ExitInterrupted {
		t.Errorf("run: exit %d, want %d", got, fault.ExitInterrupted)
	}
	child, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the child of the call lives on: %s", stat)
	}
	if shown := ledger(t, store, "call", "ls", "--outcome", "interrupted", "-o", "jsonl"); !strings.Contains(string(shown.out), `"call":"b"`) {
		t.Errorf("interrupted: %s%s, want the call b", shown.out, shown.err)
	}
	if verified := ledger(t, store, "verify"); verified.exit != 0 {
		t.Errorf("verify = %d %s", verified.exit, verified.out)
	}
}
