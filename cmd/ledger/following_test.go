package main

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// A command that follows a folder receives each record once and in order, whether a
// process appended it directly, through ledger serve, or after that server was killed
// or interrupted.
func TestAFolderIsFollowedPastProcessesThatServe(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	tail := exec.CommandContext(t.Context(), commandPath(), "--store", store, "event", "tail", "-f", "-n", "1", "-o", "jsonl")
	out, err := tail.StdoutPipe()
	noError(t, err)
	noError(t, tail.Start())
	lines, at := bufio.NewScanner(out), 29
	next := func() string { // returns the line of the next record and checks its position; "" at the end
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"type":"sync"`) {
				continue
			}
			at++
			if want := `"position":"` + strconv.Itoa(at) + `"`; !strings.Contains(lines.Text(), want) {
				t.Fatalf("followed %s, want %s", lines.Text(), want)
			}
			return lines.Text()
		}
		return ""
	}
	next()
	write := func(how string) {
		t.Helper()
		// doctor --write appends to the log through the server if there is one.
		if got := ledger(t, store, "doctor", "--write", "-o", "json"); !strings.Contains(string(got.out), `"writing"`) {
			t.Fatalf("%s: doctor --write: exit %d, %s%s", how, got.exit, got.out, got.err)
		}
		for seen := 0; seen < doctorProbes; {
			line := next()
			if line == "" {
				t.Fatalf("%s: following ended behind position %d", how, at)
			}
			if strings.Contains(line, `"kind":"DoctorProbed"`) {
				seen++
			}
		}
	}
	write("alone")
	for _, end := range []os.Signal{syscall.SIGKILL, os.Interrupt} {
		serving := beginServing(t, store, "--listen", "127.0.0.1:0")
		write("served")
		noError(t, serving.Process.Signal(end))
		_ = serving.Wait() // a kill is an error
		write("after " + end.String())
	}
	noError(t, tail.Process.Signal(os.Interrupt))
	for line := next(); line != ""; line = next() {
		if strings.Contains(line, `"kind":"DoctorProbed"`) {
			t.Errorf("followed %s as well", line)
		}
	}
	_ = tail.Wait() // a non-zero exit status is an error
	if got := tail.ProcessState.ExitCode(); got != fault.ExitInterrupted {
		t.Errorf("tail -f, interrupted: exit %d, want %d", got, fault.ExitInterrupted)
	}
}
