package toolfiles_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/settlement-ledger/ledger/domain"
)

// A result counts if the program then keeps running, fails, or leaves a process behind that
// holds its output open; all processes end with the call.
func TestResultCountsAndLeavesNoProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.tool("lingering", `sleep 300 & echo "{\"output\":$!}"; exec sleep 300`, "")
	w.tool("leaving", `sleep 300 & echo "{\"output\":$!}"`, "")
	w.tool("failing", `sleep 300 & echo "{\"output\":$!}"; exit 4`, "")
	m := w.offer()
	for _, name := range []string{"lingering", "leaving", "failing"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := w.settle(t.Context(), m, name, `{}`)
			w.want(s, domain.Succeeded, "")
			wantDead(t, reads(s))
		})
	}
}

// wantDead fails the test if a process does not end. A killed process may take a moment.
func wantDead(t *testing.T, text string) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	must(t, err)
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	must(t, err)
	defer unix.Close(process)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 10_000); n != 1 {
		t.Errorf("process %d is alive: poll = %d, %v", pid, n, err)
	}
}

// An interruption ends the whole process group of a program, also while its question is
// open.
func TestInterruptionEndsTheWholeProcessGroup(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]string{"working": `echo '{"progress":1}'; wait`, "asking": `echo '{"ask":{"action":"compute","resources":["x"]}}'; read -r a; wait`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, domain.Application)
			ready := filepath.Join(t.TempDir(), "ready")
			must(t, syscall.Mkfifo(ready, 0o600))
			w.tool("group", `trap '' TERM; sleep 300 & echo $! > `+ready+`; `+then, "")
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan domain.Settlement, 1)
			m := w.offer()
			go func() { ended <- w.settle(ctx, m, "group", `{}`) }()
			child, err := os.ReadFile(ready) // waits for the program
			must(t, err)
			if name == "asking" {
				<-w.person
			}
			cancel(domain.ByUser)
			if s := <-ended; s.Outcome != domain.Interrupted {
				t.Errorf("settlement = %v reading %q, want interrupted", s.Outcome, reads(s))
			}
			wantDead(t, strings.TrimSpace(string(child)))
		})
	}
}
