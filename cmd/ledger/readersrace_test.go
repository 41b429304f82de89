package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// Commands that read while processes begin to write, write, and are killed read the
// beginning of the log, whole, or are told that it is in use. Some are
// killed themselves, which keeps no other from the store.
func TestReadersBesideKilledWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trajectory, store := filepath.Join(dir, "killed.json"), filepath.Join(dir, "store")
	noError(t, os.WriteFile(trajectory, []byte(killed(steps)), 0o600))
	whole := runToEnd(t, trajectory, store, filepath.Join(dir, "space"))
	ended := make(chan struct{})
	var reading sync.WaitGroup
	var mu sync.Mutex
	var read []string
	for range 3 {
		reading.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				got := ledger(t, store, "event", "ls", "-o", "jsonl")
				if got.exit != 0 && got.exit != fault.ExitConflict {
					t.Errorf("event ls: exit %d, %s", got.exit, got.err)
					return
				}
				mu.Lock()
				read = append(read, string(got.out))
				mu.Unlock()
			}
		})
	}
	reading.Go(func() { // readers that are killed
		for n := 0; ; n++ {
			select {
			case <-ended:
				return
			default:
			}
			killReader(t, store, time.Duration(n%20)*5*time.Millisecond)
		}
	})
	for n := range repeats(4, 40) {
		killRun(t, trajectory, store, filepath.Join(dir, fmt.Sprint("space", n)), whole*time.Duration(n%4+1)/5)
	}
	close(ended)
	reading.Wait()
	final := ledger(t, store, "event", "ls", "-o", "jsonl")
	if final.exit != 0 {
		t.Fatalf("event ls: exit %d, %s", final.exit, final.err)
	}
	count := 0
	for _, text := range read {
		if !strings.HasPrefix(string(final.out), text) {
			t.Errorf("a reader read what is no beginning of the log: %d lines", strings.Count(text, "\n"))
		}
		if text != "" {
			count++
		}
	}
	if count == 0 {
		t.Error("no command read anything")
	}
	t.Logf("%d of %d commands read something", count, len(read))
}

// killReader begins to read a store and is killed after a while.
func killReader(t *testing.T, store string, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	_ = exec.CommandContext(ctx, commandPath(), "--store", store, "verify").Run() // it was killed, or has ended
}
