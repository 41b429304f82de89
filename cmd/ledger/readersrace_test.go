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

// A command that reads while processes start, write and are killed reads a complete
// prefix of the log, or fails because the store is in use. Readers that are killed
// block no other process.
func TestReadersBesideKilledWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trajectory, store := filepath.Join(dir, "killed.json"), filepath.Join(dir, "store")
	noError(t, os.WriteFile(trajectory, []byte(killed(steps)), 0o600))
	whole := runToEnd(t, trajectory, store, filepath.Join(dir, "space"))
	ended := make(chan struct{})
	var reading sync.WaitGroup
	var mu sync.Mutex
	var read []string // output of each reader; guarded by mu
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
	reading.Go(func() { // starts and kills readers
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

// killReader starts ledger verify on a store and kills it after a delay.
func killReader(t *testing.T, store string, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	_ = exec.CommandContext(ctx, commandPath(), "--store", store, "verify").Run() // a kill is an error
}
