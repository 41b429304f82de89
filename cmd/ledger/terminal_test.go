//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// A terminalRun is a command that runs with a pseudo terminal as its controlling terminal
// and as its three standard streams.
type terminalRun struct {
	*testing.T
	cmd    *exec.Cmd
	master *os.File
	waker  *os.File      // ends the goroutine that reads master; nil after hangUp
	mode   unix.Termios  // of the terminal before the command
	closed chan struct{} // closed when no process has the terminal open
	mu     struct {
		sync.Mutex
		shown strings.Builder
	}
}

// onTerminal starts a command with the flags of the model on a terminal of 80 columns. The
// end of the test kills it.
func (r modelRun) onTerminal(args ...string) *terminalRun {
	r.Helper()
	args = append(append(args, r.format.flags...), "--base-url", r.server.URL(), "--workspace", r.workspace)
	return onTerminal(r.T, append([]string{"--store", r.store}, args...)...)
}

// onTerminal starts a command on a terminal of 80 columns and 24 lines. The end of the test
// kills it.
func onTerminal(test *testing.T, args ...string) *terminalRun {
	test.Helper()
	cmd := exec.CommandContext(test.Context(), commandPath(), args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+test.TempDir(), "TERM=xterm", "NO_COLOR=1", "COLUMNS=")
	master, device, err := pty.Open()
	noError(test, err)
	defer device.Close()
	noError(test, pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 80}))
	mode, err := unix.IoctlGetTermios(int(device.Fd()), unix.TCGETS)
	noError(test, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = device, device, device
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	noError(test, cmd.Start())
	t := &terminalRun{T: test, cmd: cmd, master: master, mode: *mode, closed: make(chan struct{})}
	wake, waker, err := os.Pipe()
	noError(test, err)
	t.waker = waker
	go func() {
		defer close(t.closed)
		defer wake.Close()
		t.read(wake)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that it has ended
		_ = cmd.Wait()
		noError(test, t.hangUp())
	})
	return t
}

// read reads what the terminal shows until the last process closes the terminal, or the
// other end of wake is closed. A read that blocks would keep hangUp from closing the
// terminal.
func (t *terminalRun) read(wake *os.File) {
	b := make([]byte, 64<<10)
	both := []unix.PollFd{{Fd: int32(t.master.Fd()), Events: unix.POLLIN}, {Fd: int32(wake.Fd())}}
	for {
		if _, err := unix.Poll(both, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if both[1].Revents != 0 {
			return
		}
		n, err := t.master.Read(b)
		t.mu.Lock()
		t.mu.shown.Write(b[:n])
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// hangUp closes the terminal, as a terminal program does that ends. It may be called twice.
func (t *terminalRun) hangUp() error {
	if t.waker == nil {
		return nil
	}
	err := t.waker.Close()
	t.waker = nil
	<-t.closed
	return errors.Join(err, t.master.Close())
}

// text returns what the terminal has shown so far, with its control sequences.
func (t *terminalRun) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(t.mu.shown.String(), "\r\n", "\n")
}

// await waits up to two minutes until the text matches a regular expression behind the first
// skipped bytes, and returns the number of bytes up to the end of the match.
func (t *terminalRun) await(skipped int, pattern string) int {
	t.Helper()
	want := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if at := want.FindStringIndex(t.text()[skipped:]); at != nil {
			return skipped + at[1]
		}
		if time.Now().After(deadline) {
			t.Fatalf("the terminal shows %q behind %d bytes, want %s", t.text()[skipped:], skipped, pattern)
		}
	}
}

// press types keys.
func (t *terminalRun) press(keys string) {
	t.Helper()
	_, err := io.WriteString(t.master, keys)
	noError(t.T, err)
}

// exit waits up to a minute for the end of the command and returns its exit code and the
// text of the terminal.
func (t *terminalRun) exit() (code int, shown string) {
	t.Helper()
	hang := time.AfterFunc(time.Minute, func() { _ = t.cmd.Process.Signal(syscall.SIGQUIT) })
	err := t.cmd.Wait()
	hang.Stop()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	select {
	case <-t.closed:
	case <-time.After(time.Minute):
		t.Fatal("the terminal is still open after the end of the command")
	}
	if mode, err := unix.IoctlGetTermios(int(t.master.Fd()), unix.TCGETS); err == nil && *mode != t.mode {
		t.Errorf("the command leaves the terminal with the mode %+v, want %+v", *mode, t.mode)
	}
	return t.cmd.ProcessState.ExitCode(), t.text()
}

// On a terminal the text of a reply is written as it arrives, each text once, with the
// lines of the calls between the texts, and without characters that control the terminal.
func TestATerminalShowsRepliesAsTheyArrive(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			last := format.stream(modelStep{text: "Now it is written, and 漢字 are wide."})
			r := newModelRun(t, format, append(format.steps(
				modelStep{"I write\x1b[2J\u009b2J a file.\nThen I read it.", [][3]string{{"call_1", "write", `{"path":"a.txt","content":"hello\n"}`}}},
				modelStep{"And again:", [][3]string{{"call_2", "read", `{"path":"a.txt"}`}, {"call_3", "nosuch", `{}`}}},
			), providerstest.ModelAnswer{Chunks: last[:len(last)/2+1], End: providerstest.EndHeld})...)
			run := r.onTerminal("run", "write a file")
			run.await(0, `Now it `) // while the server holds the rest
			run.press("\x03")
			code, shown := run.exit()
			if code != fault.ExitInterrupted {
				t.Errorf("run exits with %d, want %d", code, fault.ExitInterrupted)
			}
			want := regexp.MustCompile(`(?s)^I write␛\[2J` + "\ufffd" + `2J a file\.\nThen I read it\.\n  ✓ succeeded +write .*\nAnd again:\n  .* (read|nosuch) .*\n  .* (read|nosuch) .*\nNow it .*\^C.*\n■ reply refused: .*\n■ interrupted by user\n`)
			if !want.MatchString(shown) || strings.Contains(shown, "\x1b[2J") {
				t.Errorf("the terminal shows\n%q\n%s", shown, shown)
			}
			for _, once := range []string{"Then I read it.", "And again:", "Now it "} {
				if strings.Count(shown, once) != 1 {
					t.Errorf("the terminal shows %q %d times, want once", once, strings.Count(shown, once))
				}
			}
			r.wantClean()
		})
	}
}

// run and resume on a terminal end with the text of the reply, once, and the line of the
// session.
func TestATerminalShowsAResumedSession(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	r := newModelRun(t, format, format.steps(modelStep{text: "First."}, modelStep{text: "Second."})...)
	if code, shown := r.onTerminal("run", "go").exit(); code != 0 || !regexp.MustCompile(`^First\.\nses_\S+: 0 calls; `).MatchString(shown) {
		t.Errorf("run exits with %d and shows %q", code, shown)
	}
	if code, shown := r.onTerminal("resume", "@last", "on").exit(); code != 0 || !regexp.MustCompile(`^Second\.\nses_\S+: 0 calls; `).MatchString(shown) {
		t.Errorf("resume exits with %d and shows %q", code, shown)
	}
	r.wantClean()
}
