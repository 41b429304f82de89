//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/creack/pty"
)

// A session plays on a real terminal: it shows events as keys ask for them, follows a new
// size, shows hostile texts as text, and leaves the terminal as it was.
func TestASessionPlaysOnATerminal(t *testing.T) {
	t.Parallel()
	run := onTerminal(t, "--store", newSeededStore(t), "session", "play", "@last")
	run.await(0, `1/22`)
	at := run.await(0, `q quit`)
	run.press("\x1b[C") // forwards
	at = run.await(at, `\[31mnow`)
	run.press("G")
	at = run.await(at, `interrupted`)
	run.press("/grepp\r")
	at = run.await(at, `not found: grepp`)
	run.press("N")
	at = run.await(at, `Unknown tool`)
	noError(t, pty.Setsize(run.master, &pty.Winsize{Rows: 8, Cols: 30}))
	at = run.await(at, `result`)
	run.press("?")
	run.await(at, `one event forwards`)
	run.press("?q")
	code, shown := run.exit()
	if code != 0 || strings.Contains(shown, "\x1b[31mnow") {
		t.Errorf("session play exits with %d and shows %q", code, shown)
	}
}

// Without a terminal session play is an error that names the command to use.
func TestSessionPlayNeedsATerminal(t *testing.T) {
	t.Parallel()
	got := ledger(t, newSeededStore(t), "session", "play")
	if text := string(got.err); got.exit != 2 || !strings.Contains(text, "needs a terminal") || !strings.Contains(text, "ledger session show @last") {
		t.Errorf("session play: exit %d, %s", got.exit, got.err)
	}
}
