//go:build linux

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"golang.org/x/sys/unix"
)

// A screen is a pseudo terminal that keeps the text written to it.
type screen struct {
	device *os.File      // the end that programs write to
	closed chan struct{} // closed when the reading goroutine has ended
	mu     struct {
		sync.Mutex
		shown strings.Builder
	}
}

// newScreen opens a pseudo terminal with a width, and starts the goroutine that reads
// it.
func newScreen(t *testing.T, columns uint16) *screen {
	t.Helper()
	master, device, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(device.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	s := &screen{device: device, closed: make(chan struct{})}
	t.Cleanup(func() { device.Close() })
	go func() {
		defer close(s.closed)
		defer master.Close()
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			s.mu.Lock()
			s.mu.shown.Write(b[:n])
			s.mu.Unlock()
			if err != nil { // the last process closed the device
				return
			}
		}
	}()
	return s
}

// shown returns the text written so far.
func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.shown.String()
}

// all closes the device, waits for the reading goroutine and returns the complete text.
// No process may have the device open.
func (s *screen) all() string {
	s.device.Close()
	<-s.closed
	return s.shown()
}

// await waits up to a minute until the text matches a regular expression.
func (s *screen) await(t *testing.T, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(time.Minute); !want.MatchString(s.shown()); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the terminal shows %q, want %s", s.shown(), pattern)
		}
	}
}

// progress returns a progress display that writes to the terminal.
func (s *screen) progress() *render.ProgressBar {
	return (&render.Printer{ErrTerminal: true, ErrFile: s.device}).Progress()
}

// A progress display shows a bar, the percentage, the amount, the rate and the
// remaining time of each part, and removes itself when it ends.
func TestAProgressTellsHowFarHowFastAndHowLong(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 120)
	p := s.progress()
	p.Show("copy", render.Records, 100, 1000, 4000) // a copy resumed at a quarter
	p.Show("copy", render.Records, 1300, 2500, 4000)
	s.await(t, `copy +█{12}░{12} +50 %  1,300 records, [0-9,]+ records?/s, [0-9hm]+s left`)
	p.Bytes("outputs", 0, 8<<20)
	p.Bytes("outputs", 2<<20, 8<<20)
	s.await(t, `outputs +█{6}░{18} +25 %  2\.0 MiB, [0-9.]+ [KMG]?i?B/s, [0-9hm]+s left`)
	p.Bytes("outputs", 9<<20, 8<<20)
	p.Check("files", 1<<20, 2<<20)
	s.await(t, `files +░{24} +0 %  1\.0 MiB, `)
	p.Check("records", 1<<20, 2<<20)
	s.await(t, `records +░{24} +0 %  1,048,576 records, `)
	p.End()
	p.End() // a second End is a no-op
	p.Show("late", render.Bytes, 1, 1, 2)
	shown := s.all()
	if strings.Contains(shown, "late") {
		t.Errorf("it shows a part after its end")
	}
	if last := shown[strings.LastIndex(shown, "\x1b["):]; ansi.Strip(last) != "" {
		t.Errorf("at the end it leaves %q", last)
	}
}

// No line of a progress display is wider than the terminal.
func TestAProgressFitsTheTerminal(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 40)
	p := s.progress()
	p.Show("a part of a long name", render.Records, 1, 1, 2)
	s.await(t, "a part")
	p.End()
	for line := range strings.Lines(strings.ReplaceAll(s.all(), "\r", "\n")) {
		if got := ansi.StringWidth(strings.TrimSpace(line)); got > 40 {
			t.Errorf("it shows %d columns, want 40 at most: %q", got, line)
		}
	}
}

// A progress display writes no text if standard error is no terminal or the total is
// unknown.
func TestAProgressIsSilentWhereNobodyLooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		watched bool
		total   uint64
	}{"standard error is no terminal": {false, 2}, "the total is unknown": {true, 0}} {
		s := newScreen(t, 80)
		p := (&render.Printer{ErrTerminal: c.watched, ErrFile: s.device}).Progress()
		p.Show("copy", render.Records, 1, 1, c.total)
		p.End()
		if shown := s.all(); shown != "" {
			t.Errorf("where %s it shows %q, want nothing", name, shown)
		}
	}
}

// Commands read the width of the terminal, and no line of a table wraps, even on a
// terminal of 20 columns.
func TestTablesFitARealTerminal(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	for _, columns := range []uint16{20, 80} {
		for _, args := range [][]string{{"call", "ls"}, {"session", "show"}, {"event", "ls"}} {
			s := newScreen(t, columns)
			cmd := exec.CommandContext(t.Context(), commandPath(), append([]string{"--store", store}, args...)...)
			cmd.Env = append(os.Environ(), "TERM=xterm", "COLUMNS=")
			cmd.Stdout = s.device
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			inTable := args[1] == "ls"
			for line := range strings.Lines(s.all()) {
				inTable = inTable || strings.TrimSpace(line) == "" // the fields before a page's table may wrap
				if got := ansi.StringWidth(strings.TrimRight(line, "\r\n")); inTable && got > int(columns) {
					t.Errorf("ledger %v has a line of %d on %d columns: %q", args, got, columns, line)
				}
			}
		}
	}
}
