//go:build linux

package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/process"
)

// startPiped starts a piped process. The end of the test stops it.
func startPiped(t *testing.T, line string) *process.PipedProcess {
	t.Helper()
	p, err := process.StartPiped(sh(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	return p
}

func TestPipedProcessAnswersWhileItRuns(t *testing.T) {
	t.Parallel()
	p := startPiped(t, "echo ready >&2; while read -r line; do echo got $line; done; exit 4")
	replies := bufio.NewReader(p.Stdout)
	for i := range 3 {
		if _, err := fmt.Fprintf(p.Stdin, "%d\n", i); err != nil {
			t.Fatal(err)
		}
		if got, err := replies.ReadString('\n'); err != nil || got != fmt.Sprintf("got %d\n", i) {
			t.Errorf("reply %d = %q, %v", i, got, err)
		}
	}
	p.Stdin.Close()
	<-p.Exited()
	if r := p.Stop(); r.Exit != 4 || r.Signal != 0 || string(r.Output.Head) != "ready\n" {
		t.Errorf("Stop = %+v, want exit 4 and the standard error", r)
	}
}

func TestStopEndsEveryPipedProcess(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"one that waits":            "echo $$ > %s; exec sleep 600",
		"one that ignores SIGTERM":  "trap '' TERM; echo $$ > %s; while :; do sleep 0.05; done",
		"a child in the background": "sleep 600 & echo $! > %s; exit 0",
		"one in another session":    "setsid sh -c 'echo $$ > %s; sleep 600'",
		"one that never reads":      "echo $$ > %s; yes; sleep 600",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pid")
			p := startPiped(t, fmt.Sprintf(line, path))
			pid := written(t, path)
			first := p.Stop()
			gone(t, pid)
			if again := p.Stop(); again.Exit != first.Exit || again.Signal != first.Signal {
				t.Errorf("Stop again = %+v, want %+v", again, first)
			}
			if _, err := p.Stdin.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Write after Stop = %v, want ErrClosed", err)
			}
		})
	}
}

// Stop of another goroutine ends a read that waits.
func TestStopUnblocksAReader(t *testing.T) {
	t.Parallel()
	p := startPiped(t, "exec sleep 600")
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(p.Stdout)
		read <- err
	}()
	if r := p.Stop(); r.Signal != syscall.SIGTERM {
		t.Errorf("Stop = %+v, want SIGTERM", r)
	}
	if err := <-read; err != nil && !errors.Is(err, os.ErrClosed) {
		t.Errorf("ReadAll = %v", err)
	}
}

// A command that floods its standard error needs no reader.
func TestErrorOutputOfAPipedProcessIsBounded(t *testing.T) {
	t.Parallel()
	c := sh("head -c 300000 /dev/zero | tr '\\0' x >&2; echo END >&2; echo done")
	c.CaptureLimit = 100
	p, err := process.StartPiped(c)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(p.Stdout); err != nil || string(got) != "done\n" {
		t.Errorf("ReadAll = %q, %v", got, err)
	}
	<-p.Exited()
	if r := p.Stop(); r.Output.Lost != 300_004-100 || string(r.Output.Tail[46:]) != "END\n" {
		t.Errorf("Stop = %+v, want the end and 299904 lost bytes", r)
	}
}

func TestPipedProcessThatCannotStartIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := process.StartPiped(process.Command{Program: "/nowhere/at/all"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("StartPiped of no program = %v, want ErrNotExist", err)
	}
	if _, err := process.StartPiped(process.Command{}); !errors.Is(err, process.ErrBadCommand) {
		t.Errorf("StartPiped of nothing = %v, want ErrBadCommand", err)
	}
	if _, err := process.StartPiped(process.Command{Program: "true", Timeout: time.Second}); !errors.Is(err, process.ErrBadCommand) {
		t.Errorf("StartPiped with a timeout = %v, want ErrBadCommand", err)
	}
}
