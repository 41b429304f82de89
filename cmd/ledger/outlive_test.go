package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// An awaitedRun is a shareRun with a goroutine that waits for its end.
type awaitedRun struct {
	*shareRun
	ended  chan struct{} // closed once failed is set
	failed error         // result of Wait; read only after ended is closed
}

// over reports whether the process has ended.
func (r *awaitedRun) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// startRun starts a run of a trajectory, and a goroutine that waits for its end.
func startRun(t *testing.T, store, trajectory string) *awaitedRun {
	t.Helper()
	r := &awaitedRun{shareRun: beginRun(t, store, trajectory), ended: make(chan struct{})}
	go func() {
		r.failed = r.Wait()
		close(r.ended)
	}()
	return r
}

// Killing the process that holds a folder stops no other process: parallel sessions
// complete all their calls, each reading command succeeds, and after a recovery the log
// verifies.
func TestSessionsAndReadersOutliveTheHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, trajectory := filepath.Join(dir, "store"), filepath.Join(dir, "killed.json")
	noError(t, os.WriteFile(trajectory, []byte(killed(sharedSteps)), 0o600))
	if got := ledger(t, store, "run", "--script", trajectory, "--workspace", t.TempDir()); got.exit != 0 {
		t.Fatalf("run: exit %d, %s", got.exit, got.err)
	}
	ended := make(chan struct{})
	var reading sync.WaitGroup
	for range repeats(3, 10) {
		reading.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if got := ledger(t, store, "event", "ls", "-o", "jsonl"); got.exit != 0 {
					t.Errorf("event ls: exit %d, %s", got.exit, got.err)
					return
				}
			}
		})
	}
	kills := 0
	running := []*awaitedRun{startRun(t, store, trajectory), startRun(t, store, trajectory), startRun(t, store, trajectory)}
	for kills < repeats(2, 25) && !t.Failed() {
		var holder *awaitedRun
		eventually(t, "one of the processes holds the folder, or all have ended", func() bool {
			owner, held, err := storedir.Holder(store)
			holder = holderAmong(running, owner.PID)
			return err == nil && held && holder != nil || !slices.ContainsFunc(running, func(r *awaitedRun) bool { return !r.over() })
		})
		if holder != nil {
			time.Sleep(time.Duration(kills%7) * 20 * time.Millisecond) // kill at different moments of its work
			if !holder.over() {
				_ = holder.Process.Kill() // an error means that it has ended
				kills++
			}
		}
		for i, r := range running {
			if r == holder {
				<-r.ended
			}
			if r.over() {
				r.check(t, r == holder)
				running[i] = startRun(t, store, trajectory)
			}
		}
	}
	for _, r := range running {
		<-r.ended
		r.check(t, false)
	}
	close(ended)
	reading.Wait()
	if got := ledger(t, store, "recover"); got.exit != 0 {
		t.Errorf("recover: exit %d, %s", got.exit, got.err)
	}
	if got := ledger(t, store, "verify"); got.exit != 0 {
		t.Errorf("verify: exit %d, %s%s", got.exit, got.out, got.err)
	}
	t.Logf("%d holders were killed", kills)
}

// check fails the test unless the run completed all of its calls. killed states that the
// test killed it, which excuses an error.
func (r *awaitedRun) check(t *testing.T, killed bool) {
	t.Helper()
	if killed && r.failed != nil {
		return
	}
	if r.failed != nil || !strings.Contains(r.told.String(), fmt.Sprint(2*sharedSteps, " succeeded")) {
		t.Errorf("run beside a holder that was killed: %v, %s", r.failed, r.told)
	}
}

// sharedSteps is the number of replies with calls in each session.
var sharedSteps = repeats(steps, 12)

// holderAmong returns the run with a process ID, or nil.
func holderAmong(running []*awaitedRun, pid int) *awaitedRun {
	for _, r := range running {
		if r.Process.Pid == pid {
			return r
		}
	}
	return nil
}
