//go:build linux

package promptline

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// An output is what a Console wrote since the last take.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// take returns the text, with short names for the control sequences.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return strings.NewReplacer(eraseRow, "⌫", wrapOff, "", wrapOn, "", saveCursor, "|", restoreCursor, "", pasteOn, "⟪", pasteOff, "⟫").Replace(o.text.String())
}

// newConsole returns a Console of 20 columns over a pseudo terminal, and what it writes.
func newConsole(t *testing.T) (*Console, *output, func() unix.Termios) {
	t.Helper()
	master, device, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); device.Close() })
	mode := func() unix.Termios {
		m, err := unix.IoctlGetTermios(int(device.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *m
	}
	out := &output{}
	c, err := Open(device, out, func() int { return 20 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, out, mode
}

// Texts appear above the line: in pieces while the line is hidden, and in whole lines while
// it is shown. Nothing is lost or written twice.
func TestTextsAppearAboveTheLine(t *testing.T) {
	t.Parallel()
	c, out, _ := newConsole(t)
	write := func(text string) func() { return func() { _, _ = io.WriteString(c, text) } }
	input := func(keys string) func() { return func() { c.Input([]byte(keys)) } }
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"open", func() {}, "⟪"},
		{"idle", func() { c.SetBusy(false) }, "⌫> |"},
		{"a line above", write("one\n"), "⌫one\n⌫> |"},
		{"a key", input("a"), "⌫⌫> a|"},
		{"enter", input("\r"), "⌫> a\n⌫> |"},
		{"busy", func() { c.SetBusy(true) }, "⌫"},
		{"a piece", write("The beg"), "The beg"},
		{"another piece", write("inning"), "inning"},
		{"a key ends the row", input("b"), "\n⌫> b|"},
		{"a piece is held", write(" goes on"), ""},
		{"and another", write(" and on"), ""},
		{"a key", input("c"), "⌫⌫> bc|"},
		{"a line end", write(".\nThen"), "⌫ goes on and on.\n⌫> bc|"},
		{"the line becomes empty", input("\x15"), "⌫Then"},
		{"a piece", write(" this"), " this"},
		{"a key", input("d"), "\n⌫> d|"},
		{"a piece is held", write("held"), ""},
		{"enter", input("\r"), "⌫held\n> d\n"},
		{"a piece", write("x"), "x"},
		{"a key", input("e"), "\n⌫> e|"},
		{"a question", c.Suspend, "⌫⟫"},
		{"its text", write("May I? "), "May I? "},
		{"its end", c.Resume, "⟪\n⌫> e|"},
		{"a long line", input(strings.Repeat("0123456789", 3) + "\r"), "⌫> e012345678901234…\n"},
		{"the end", c.Close, "⟫"},
		{"afterwards", write("last\n"), "last\n"},
	} {
		step.do()
		if got := out.take(); got != step.want {
			t.Errorf("%s: it writes %q, want %q", step.name, got, step.want)
		}
	}
	for _, want := range []string{"a", "d", "e" + strings.Repeat("0123456789", 3)} {
		if line, err := c.Next(t.Context()); line != want || err != nil {
			t.Errorf("Next = %q, %v, want %q", line, err, want)
		}
	}
}

// Open, Suspend, Resume and Close set the mode of the device. A question and the time after
// Close have the mode from before Open.
func TestTheModeOfTheDeviceIsRestored(t *testing.T) {
	t.Parallel()
	c, _, mode := newConsole(t)
	edits := func(m unix.Termios) bool { return m.Lflag&(unix.ICANON|unix.ECHO) == 0 && m.Lflag&unix.ISIG != 0 }
	first := c.device.first
	if first.Lflag&unix.ICANON == 0 || !edits(mode()) {
		t.Fatalf("Open changes the mode %+v to %+v", first, mode())
	}
	c.Suspend()
	if mode() != first {
		t.Errorf("a question has the mode %+v, want %+v", mode(), first)
	}
	c.Resume()
	if !edits(mode()) {
		t.Errorf("after a question the mode is %+v", mode())
	}
	c.Close()
	c.Close()
	c.Resume()
	c.continued()
	if mode() != first {
		t.Errorf("after Close the mode is %+v, want %+v", mode(), first)
	}
}

// Next returns lines, interruptions and the end in their order.
func TestNextReturnsEachResultOnce(t *testing.T) {
	t.Parallel()
	c, _, _ := newConsole(t)
	c.Input([]byte("one\r\x04"))
	c.Interrupt()
	c.Input([]byte(strings.Repeat("a", MaxLine+1) + "\r"))
	c.Input([]byte("typed"))
	if !c.Clear() || c.Clear() {
		t.Error("Clear does not report what was typed once")
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("done"))
	for _, want := range []struct {
		line string
		err  error
	}{{"one", nil}, {"", io.EOF}, {"", ErrInterrupted}, {"", ErrLineTooLong}, {"", context.Cause(ended)}} {
		if line, err := c.Next(ended); line != want.line || !errors.Is(err, want.err) {
			t.Errorf("Next = %q, %v, want %q, %v", line, err, want.line, want.err)
		}
	}
	if c.Ended() {
		t.Error("ctrl-d ends the input")
	}
	c.EndInput()
	for range 2 {
		if line, err := c.Next(t.Context()); line != "" || err != io.EOF || !c.Ended() {
			t.Errorf("Next = %q, %v, want io.EOF", line, err)
		}
	}
}
