package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
)

// interruptions is the number of runs of each session that the test interrupts, over
// all interrupters.
var interruptions = repeats(4, 200)

// interrupters is the number of parallel subtests that interrupt runs of one session.
const interrupters = 2

// interruptedSessions returns two trajectories by name. "parallel calls" has replies
// with eight calls each; "near replies" has 40 replies with one call of an unknown
// tool, so that a run spends most of its time recording replies.
func interruptedSessions() map[string]string {
	parallel, replies := &strings.Builder{}, &strings.Builder{}
	for reply := range 3 {
		fmt.Fprint(parallel, `,{"source":"agent","message":"","tool_calls":[`)
		for call := range 8 {
			fmt.Fprintf(parallel, `%s{"tool_call_id":"%d","function_name":"bash","arguments":{"command":"echo %d.%d"}}`,
				strings.Repeat(",", min(call, 1)), call, reply, call)
		}
		fmt.Fprint(parallel, `]}`)
	}
	for reply := range 40 {
		fmt.Fprintf(replies, `,{"source":"agent","message":"","tool_calls":[{"tool_call_id":"c","function_name":"missing","arguments":{"n":%d}}]}`, reply)
	}
	whole := func(replies *strings.Builder) string {
		return `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"}` + replies.String() +
			`,{"source":"agent","message":"done"}]}`
	}
	return map[string]string{"parallel calls": whole(parallel), "near replies": whole(replies)}
}

// A run that receives SIGINT or SIGTERM at any moment leaves a log that verifies
// without a recovery.
func TestInterruptionAtAnyMomentLeavesALogThatVerifies(t *testing.T) {
	t.Parallel()
	for name, session := range interruptedSessions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			trajectory := filepath.Join(dir, "interrupted.json")
			if err := os.WriteFile(trajectory, []byte(session), 0o600); err != nil {
				t.Fatal(err)
			}
			exit, whole := interruptRun(t, trajectory, filepath.Join(dir, "whole"), syscall.SIGINT, time.Hour)
			if exit != 0 {
				t.Fatalf("run = %d, want 0", exit)
			}
			for n := range interrupters {
				t.Run(fmt.Sprint("interrupter ", n), func(t *testing.T) {
					t.Parallel()
					interruptInto(t, trajectory, t.TempDir(), whole)
				})
			}
		})
	}
}

// interruptInto interrupts runs at random moments, each in a new store, and verifies
// each store. whole is the duration of an uninterrupted run.
func interruptInto(t *testing.T, trajectory, dir string, whole time.Duration) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	met := map[int]int{}
	for n := range interruptions / interrupters {
		sent := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}[n%2]
		after := time.Duration(random.Int64N(int64(whole)))
		store := filepath.Join(dir, fmt.Sprint("store", n))
		exit, _ := interruptRun(t, trajectory, store, sent, after)
		met[exit]++
		if stores.Missing(store) { // the run ended before it made a store
			continue
		}
		where := fmt.Sprintf("%s %d, %v after the first line (seed %d)", sent, n, after, seed)
		if verified := ledger(t, store, "verify"); verified.exit != 0 {
			t.Fatalf("%s: run = %d, verify = %d %s%s", where, exit, verified.exit, verified.out, verified.err)
		}
		kinds := ledger(t, store, "event", "ls", "-o", "jsonl").out
		begun, over := bytes.Contains(kinds, []byte(`"kind":"TurnMaterialized"`)), bytes.Contains(kinds, []byte(`"done"`))
		if exit == fault.ExitInterrupted && begun && !over && !bytes.Contains(kinds, []byte(`"kind":"SessionInterrupted"`)) {
			t.Fatalf("%s: run = %d, and no interruption is on record:\n%s", where, exit, kinds)
		}
		if err := os.RemoveAll(store); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("exit codes of the runs: %v (seed %d)", met, seed)
}

// interruptRun starts a run and sends it a signal, after a delay from its first line of
// progress. It returns the exit status and the time from that line to the end of the
// run.
func interruptRun(t *testing.T, trajectory, store string, sent os.Signal, after time.Duration) (exit int, took time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), commandPath(), "--store", store, "run", "--script", trajectory, "--workspace", filepath.Dir(trajectory))
	lines, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(lines)
	_, _ = reader.ReadString('\n') // an error means that the run has ended
	began := time.Now()
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Signal(sent) }) // an error means that the run has ended
	defer timer.Stop()
	told, _ := io.ReadAll(reader)
	_ = cmd.Wait() // a non-zero exit status is an error
	exit = cmd.ProcessState.ExitCode()
	if exit != 0 && exit != fault.ExitInterrupted {
		t.Fatalf("run = %d %s, want 0 or %d", exit, told, fault.ExitInterrupted)
	}
	return exit, time.Since(began)
}
