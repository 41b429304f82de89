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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
)

// The number of times that the test kills a run: in total, and in each store.
var (
	kills    = repeats(4, 100) // over all stores
	perStore = repeats(2, 20)  // in one store
)

// steps is the number of replies with calls in the session that is killed.
const steps = 4

// longVariable is the environment variable that selects the long counts of repeats.
const longVariable = "LEDGER_TEST_LONG"

// repeats returns short, or long if longVariable is set.
func repeats(short, long int) int {
	if os.Getenv(longVariable) != "" {
		return long
	}
	return short
}

// killed returns a trajectory of the given number of replies. Each has two parallel
// bash calls: one that changes the workspace, and one whose output is too large to
// show.
func killed(steps int) string {
	var replies strings.Builder
	for i := range steps {
		fmt.Fprintf(&replies, `,{"source":"agent","message":"","tool_calls":[
 {"tool_call_id":"a","function_name":"bash","arguments":{"command":"echo > mark%[1]d; sleep 0.01"}},
 {"tool_call_id":"b","function_name":"bash","arguments":{"command":"seq 1 30000"}}]}`, i)
	}
	return `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"}` + replies.String() +
		`,{"source":"agent","message":"done"}]}`
}

// A run killed by SIGKILL at any moment leaves a store that recovers and then verifies.
// Several killed runs share a store.
func TestSIGKILLAtAnyMomentLeavesALogThatRecovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trajectory := filepath.Join(dir, "killed.json")
	if err := os.WriteFile(trajectory, []byte(killed(steps)), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := runToEnd(t, trajectory, filepath.Join(dir, "whole"), filepath.Join(dir, "whole-space"))
	for n := range kills / perStore {
		t.Run(fmt.Sprint("store ", n), func(t *testing.T) {
			t.Parallel()
			killInto(t, trajectory, whole)
		})
	}
}

// killInto kills runs in one store, one after the other at random moments, and recovers
// and verifies the store after each. whole is the duration of an unkilled run.
func killInto(t *testing.T, trajectory string, whole time.Duration) {
	dir := t.TempDir()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	met := map[string]int{}
	store := filepath.Join(dir, "store")
	for n := range perStore {
		after := time.Duration(random.Int64N(int64(whole)))
		if !killRun(t, trajectory, store, filepath.Join(dir, fmt.Sprint("space", n)), after) {
			met["ended before the kill"]++
		}
		if stores.Missing(store) {
			met["killed before there was a store"]++
			continue
		}
		recovered := ledger(t, store, "recover")
		verified := ledger(t, store, "verify")
		if recovered.exit != 0 || verified.exit != 0 {
			t.Fatalf("kill %d after %v (seed %d): recover = %d %s, verify = %d %s%s",
				n, after, seed, recovered.exit, recovered.err, verified.exit, verified.out, verified.err)
		}
	}
	lost := 0
	if !stores.Missing(store) {
		lost = bytes.Count(ledger(t, store, "call", "ls", "--outcome", "lost", "-o", "jsonl").out, []byte("\n"))
	}
	t.Logf("%d kills (seed %d): %v; %d calls were lost; a whole run takes %v", perStore, seed, met, lost, whole)
}

// runToEnd runs the session in a new workspace to its end and returns the duration.
func runToEnd(t *testing.T, trajectory, store, space string) time.Duration {
	t.Helper()
	if err := os.Mkdir(space, 0o700); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	ran := ledger(t, store, "run", "--script", trajectory, "--workspace", space)
	if ran.exit != 0 || !bytes.Contains(ran.out, []byte(fmt.Sprint(2*steps, " succeeded"))) {
		t.Fatalf("run = %d %s%s", ran.exit, ran.out, ran.err)
	}
	return time.Since(begun)
}

// killRun starts a run in a new workspace and kills it after a delay. It reports
// whether the kill hit a running process.
func killRun(t *testing.T, trajectory, store, space string, after time.Duration) bool {
	t.Helper()
	if err := os.Mkdir(space, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	err := exec.CommandContext(ctx, commandPath(), "--store", store, "run", "--script", trajectory, "--workspace", space).Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return false
	case ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, errors.Is(err, context.DeadlineExceeded):
		return true
	}
	t.Fatalf("run = %v, want its kill", err)
	return false
}
