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

// waitingSession is a trajectory whose second call starts a child process, writes its
// process ID to "child", opens the named pipe "told" and waits for the child.
const waitingSession = `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"},
 {"source":"agent","message":"one","tool_calls":[{"tool_call_id":"a","function_name":"bash","arguments":{"command":"echo one"}}]},
 {"source":"agent","message":"two","tool_calls":[
  {"tool_call_id":"b","function_name":"bash","arguments":{"command":"sleep 1000 & echo $! > child; echo > told; wait"}}]},
 {"source":"agent","message":"three"}]}`

// A run that receives SIGHUP interrupts its call, kills the processes that the call
// started, and then exits. closedpipe_test.go covers a reader that closes its pipe.
func TestAHangUpInterrupts(t *testing.T) {
	t.Parallel()
	// nohup makes its processes ignore SIGHUP, and child processes inherit that.
	// Catching the signal here resets it to the default in the command.
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
	if _, err := os.ReadFile(filepath.Join(dir, "told")); err != nil { // blocks until the call opens the named pipe
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // a non-zero exit status is an error
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
