package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// holderKills is the number of times that the test kills the process that holds a
// folder.
var holderKills = repeats(2, 5)

// A shareRun is a ledger run process that shares a folder with other processes.
type shareRun struct {
	*exec.Cmd
	told   *transcript // its standard output and standard error
	killed bool        // the test killed it before its session ended
}

// beginRun starts a run of a trajectory in a new workspace.
func beginRun(t *testing.T, store, trajectory string) *shareRun {
	t.Helper()
	r := &shareRun{told: &transcript{}}
	r.Cmd = exec.CommandContext(t.Context(), commandPath(), "--store", store, "run", "--script", trajectory, "--workspace", t.TempDir())
	r.Stdout, r.Stderr = r.told, r.told
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// end waits for the run to exit, and fails the test unless it completed the given
// number of calls.
func (r *shareRun) end(t *testing.T, calls int) {
	t.Helper()
	if err := r.Wait(); err != nil || !strings.Contains(r.told.String(), fmt.Sprint(calls, " succeeded")) {
		t.Errorf("run %d = %v, want %d calls that succeeded: %s", r.Process.Pid, err, calls, r.told)
	}
}

// writeTrajectory writes a trajectory to a new file and returns its path.
func writeTrajectory(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trajectory.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// heldSession is a trajectory with one call. It creates the file "told" in the
// workspace and runs until the file "go" exists there.
const heldSession = `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[{"source":"user","message":"go"},
 {"source":"agent","message":"","tool_calls":[{"tool_call_id":"a","function_name":"bash","arguments":{"command":"echo > told; until [ -e go ]; do sleep 0.02; done"}}]},
 {"source":"agent","message":"done"}]}`

// A holderAtWork is a run that holds the lock of a folder and is in the middle of a
// call.
type holderAtWork struct {
	*shareRun
	space string // its workspace
}

// beginHolder starts a run of heldSession and returns once its call runs and the
// endpoint of the folder names the run. attributes may be nil.
func beginHolder(t *testing.T, store string, attributes *syscall.SysProcAttr) *holderAtWork {
	t.Helper()
	h := &holderAtWork{&shareRun{told: &transcript{}}, t.TempDir()}
	h.Cmd = exec.CommandContext(t.Context(), commandPath(), "--store", store, "run", "--script", writeTrajectory(t, heldSession), "--workspace", h.space)
	h.Stdout, h.Stderr, h.SysProcAttr = h.told, h.told, attributes
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call of the holder runs", func() bool { _, err := os.Stat(filepath.Join(h.space, "told")); return err == nil })
	if at, err := shared.ReadEndpoint(store); err != nil || at.PID != h.Process.Pid {
		t.Fatalf("the folder is held by %v (%v), want the first process", at, err)
	}
	return h
}

// release lets the call of the holder end.
func (h *holderAtWork) release(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.space, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustVerify fails the test unless ledger verify finds the store without exceptions.
func mustVerify(t *testing.T, store string) {
	t.Helper()
	if verified := ledger(t, store, "verify"); verified.exit != 0 {
		t.Errorf("verify = %d %s%s", verified.exit, verified.out, verified.err)
	}
}

// While one run holds a folder, other commands can read it, two more runs can work in
// it and a backup can be made, without any configuration. Compaction is refused.
func TestProcessesShareAFolder(t *testing.T) {
	t.Parallel()
	store, trajectory := filepath.Join(t.TempDir(), "store"), writeTrajectory(t, killed(steps))
	holder := beginHolder(t, store, nil)
	runs := []*shareRun{beginRun(t, store, trajectory), beginRun(t, store, trajectory)}
	var reading sync.WaitGroup
	for _, args := range [][]string{
		{"session", "ls"}, {"call", "ls"}, {"event", "ls"}, {"call", "ls", "--open"}, {"store", "info"},
		{"session", "show", "@last"}, {"consumer", "ls"}, {"approval", "ls"}, {"event", "ls", "-o", "jsonl"}, {"event", "tail"},
	} {
		reading.Go(func() {
			if got := ledger(t, store, args...); got.exit != 0 && got.exit != fault.ExitNotFound {
				t.Errorf("ledger %s = %d %s", strings.Join(args, " "), got.exit, got.err)
			}
		})
	}
	reading.Wait()
	for _, r := range runs {
		r.end(t, 2*steps)
	}
	if made := ledger(t, store, "store", "backup", filepath.Join(t.TempDir(), "backup")); made.exit != 0 {
		t.Errorf("store backup = %d %s", made.exit, made.err)
	}
	if refused := ledger(t, store, "store", "compact"); refused.exit != fault.ExitConflict || !strings.Contains(string(refused.err), fmt.Sprint("process ", holder.Process.Pid)) {
		t.Errorf("store compact = %d %s, want %d and the holder", refused.exit, refused.err, fault.ExitConflict)
	}
	holder.release(t)
	holder.end(t, 1)
	mustVerify(t, store)
}

// Killing the process that holds a folder affects no other session: each completes all
// its calls, and after a recovery the log verifies and no call is open.
func TestKilledHoldersTakeNoSessionAlong(t *testing.T) {
	t.Parallel()
	store, trajectory := filepath.Join(t.TempDir(), "store"), writeTrajectory(t, killed(3*steps))
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var runs []*shareRun
	for range 3 {
		runs = append(runs, beginRun(t, store, trajectory))
	}
	stop := make(chan struct{})
	var reading sync.WaitGroup
	for range repeats(2, 10) {
		reading.Go(func() {
			for range repeats(20, 1<<30) { // with the long counts, until the kills are done
				select {
				case <-stop:
					return
				default:
				}
				if got := ledger(t, store, "call", "ls"); got.exit != 0 && got.exit != fault.ExitNotFound {
					t.Errorf("call ls = %d %s", got.exit, got.err)
					return
				}
			}
		})
	}
	kills := 0
	for deadline := time.Now().Add(time.Minute); kills < holderKills && time.Now().Before(deadline); {
		time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
		at, err := shared.ReadEndpoint(store)
		if err != nil {
			continue
		}
		for i, r := range runs {
			if r.Process.Pid != at.PID || r.killed || r.ProcessState != nil {
				continue
			}
			if r.Process.Kill() == nil {
				kills++
				r.killed = true
				runs = append(runs, beginRun(t, store, trajectory))
			}
			_ = runs[i].Wait()                  // an error if the kill hit it
			if runs[i].ProcessState.Success() { // it had ended before the kill
				r.killed = false
			}
			break
		}
	}
	for _, r := range runs {
		if r.ProcessState == nil {
			r.end(t, 2*3*steps)
		}
	}
	close(stop)
	reading.Wait()
	recovered := ledger(t, store, "recover")
	if recovered.exit != 0 {
		t.Errorf("recover = %d %s", recovered.exit, recovered.err)
	}
	mustVerify(t, store)
	if bytes.Contains(ledger(t, store, "call", "ls", "--open").out, []byte("open")) {
		t.Errorf("calls are open after the recovery (seed %d)", seed)
	}
	t.Logf("%d kills (seed %d)", kills, seed)
}

// If SIGINT reaches a holder and its client at once, as Ctrl-C in a terminal does, each
// of them records the interruption, the settlement of its call and its own end.
func TestAnInterruptOfTheGroupLetsEachRecordItsEnd(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	holder := beginHolder(t, store, &syscall.SysProcAttr{Setpgid: true})
	space := t.TempDir()
	client := exec.CommandContext(t.Context(), commandPath(), "--store", store, "run", "--script", writeTrajectory(t, heldSession), "--workspace", space)
	client.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: holder.Process.Pid}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call of the client runs", func() bool { _, err := os.Stat(filepath.Join(space, "told")); return err == nil })
	if err := syscall.Kill(-holder.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_, _ = holder.Wait(), client.Wait() // the test checks the exit status of both
	if holder.ProcessState.ExitCode() != fault.ExitInterrupted || client.ProcessState.ExitCode() != fault.ExitInterrupted {
		t.Errorf("the holder ended with %d and the client with %d, want %d", holder.ProcessState.ExitCode(), client.ProcessState.ExitCode(), fault.ExitInterrupted)
	}
	kinds := string(ledger(t, store, "event", "ls", "-o", "jsonl").out)
	for kind, want := range map[string]int{"ProcessStarted": 2, "ProcessStopped": 2, "SessionInterrupted": 2, "CallSettled": 2} {
		if got := strings.Count(kinds, `"kind":"`+kind+`"`); got != want {
			t.Errorf("%d %s on record, want %d", got, kind, want)
		}
	}
	if strings.Contains(kinds, "process lost") {
		t.Error("a process was recovered by another, want its own end")
	}
	mustVerify(t, store)
}

// A command that waits for a stopped holder names its process, fails within
// LEDGER_PATIENCE, and continues if the holder does.
func TestAStoppedHolderIsNamed(t *testing.T) {
	t.Parallel()
	store, trajectory := filepath.Join(t.TempDir(), "store"), writeTrajectory(t, killed(1))
	holder := beginHolder(t, store, nil)
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	named := fmt.Sprintf("process %d (ledger run on ", holder.Process.Pid)
	refused := ledgerWithEnv(t, []string{"LEDGER_PATIENCE=1s"}, "--store", store, "run", "--script", trajectory, "--workspace", t.TempDir())
	if refused.exit != fault.ExitConflict || !strings.Contains(string(refused.err), named) || !strings.Contains(string(refused.err), "which is stopped") ||
		!strings.Contains(string(refused.err), fmt.Sprint("kill -CONT ", holder.Process.Pid)) {
		t.Errorf("run = %d %s, want %d and the stopped holder", refused.exit, refused.err, fault.ExitConflict)
	}
	waiting := beginRun(t, store, trajectory)
	eventually(t, "the client says for whom it waits", func() bool { return strings.Contains(waiting.told.String(), "waiting for "+named) })
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waiting.end(t, 2)
	holder.release(t)
	holder.end(t, 1)
	mustVerify(t, store)
}
