package player

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// start is the time of the first event of a test session.
var start = time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)

// A recorder writes a session, one event each second.
type recorder struct {
	*testing.T
	ledger  *events.Ledger
	session domain.SessionID
	now     time.Time
	n       events.Revision
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{T: t, now: start}
	r.ledger = events.NewLedger(eventstest.NewSlice(), projectionstest.NewLog(1).Mint, func() time.Time { return r.now })
	r.session = r.ledger.Mint().Session()
	r.add(0, events.SessionOpened{Session: r.session, Agent: "build", Location: "/w", Origin: events.Origin{Kind: events.RunHere}})
	return r
}

// add appends events, the first of them some time after the one before.
func (r *recorder) add(after time.Duration, all ...events.Event) {
	r.Helper()
	r.now = r.now.Add(after)
	var drafts []events.Draft
	for _, e := range all {
		drafts = append(drafts, r.ledger.Draft(e, domain.EventID{}))
	}
	if _, err := r.ledger.Append(r.Context(), events.SessionStream(r.session), r.n, drafts...); err != nil {
		r.Fatal(err)
	}
	r.n += events.Revision(len(all))
}

// player returns a player of the session, which has read its first window.
func (r *recorder) player() Model {
	r.Helper()
	out := &render.Printer{Out: bufio.NewWriter(io.Discard), Env: func(string) (string, bool) { return "", false }, Now: func() time.Time { return r.now }, UTC: true, Color: render.ColorAuto}
	m := New(out, Source{r.Context(), r.ledger, r.session}, calls.Session{ID: r.session, Agent: "build", Opened: start, Revision: r.n})
	return r.do(m, m.Init())
}

// do runs a command and gives its message to the model, until no command but a pause is left.
func (r *recorder) do(m Model, cmd tea.Cmd) Model {
	r.Helper()
	for cmd != nil && !m.playing {
		next, more := m.Update(cmd())
		m, cmd = next.(Model), more
	}
	return m
}

// press gives keys to the model.
func (r *recorder) press(m Model, keys ...string) Model {
	r.Helper()
	named := map[string]rune{"right": tea.KeyRight, "left": tea.KeyLeft, "up": tea.KeyUp, "down": tea.KeyDown, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp}
	for _, k := range keys {
		msg := tea.KeyPressMsg{Code: named[k]}
		if msg.Code == 0 {
			msg = tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		}
		next, cmd := m.Update(msg)
		m = r.do(next.(Model), cmd)
	}
	return m
}

// conversation records a prompt, a reply with a call, its result, a long pause and a reply.
func conversation(t *testing.T) *recorder {
	r := newRecorder(t)
	message := r.ledger.Mint().Message()
	r.add(time.Second, events.PromptAdmitted{Message: r.ledger.Mint().Message(), Text: "mend \x1b[31mit\u202e now\nplease"})
	r.add(time.Second, events.ReplyReceived{Message: message, Text: "I look.", Calls: []domain.Call{{ID: "c1", Name: "read", Input: json.RawMessage(`{"path":"a"}`)}}})
	r.add(0, events.CallStarted{Message: message, Call: "c1", Tool: "read"})
	r.add(time.Second, events.CallSettled{Message: message, Call: "c1", Tool: "read", Outcome: domain.Failed, Began: true, Text: "no such file"})
	r.add(time.Hour, events.ReplyReceived{Message: r.ledger.Mint().Message(), Text: "It is missing."})
	r.add(0, events.Unknown{Name: "FromTomorrow", Version: 9, Data: json.RawMessage(`{"x":1}`)})
	return r
}

// text returns a screen without the spaces at the ends of its lines.
func text(m Model) string {
	lines := strings.Split(m.View().Content, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

func TestAScreenShowsAnEventWithThoseBeforeIt(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	m := r.press(r.player(), "right")
	next, _ := m.Update(tea.WindowSizeMsg{Width: 60, Height: 14})
	m = next.(Model)
	id := render.ShortID(r.session)
	for _, c := range []struct {
		key, want string
	}{
		{"", `❚❚ 2/7  +1.0s  1x  ` + id + `  build




      +0ms  opened        build in /w, run
>    +1.0s  prompt        mend ␛[31mit� now please
────────────────────────────────────────────────────────────
prompt  2024-03-01 12:00:01.000  position 2
mend ␛[31mit� now
please


space play  ←→ step  +- speed  / search  ? help  q quit`},
		{"G", `❚❚ 7/7  +1h0m3s  1x  ` + id + `  build
     +1.0s  prompt        mend ␛[31mit� now please
     +2.0s  reply         I look. [1 call]
     +2.0s  call          read c1
     +3.0s  result        failed read c1 no such file
   +1h0m3s  reply         It is missing.  » after 1h0m0s
>  +1h0m3s  FromTomorrow  not known to this program, versio…
────────────────────────────────────────────────────────────
FromTomorrow  2024-03-01 13:00:03.000  position 7
not known to this program, version 9, 7 B
data
{
↓ 2 lines more
space play  ←→ step  +- speed  / search  ? help  q quit`},
	} {
		if c.key != "" {
			m = r.press(m, c.key)
		}
		if got := text(m); got != c.want {
			t.Errorf("after %q the screen is\n%s\nwant\n%s", c.key, got, c.want)
		}
	}
}

// Keys go forwards and back and stop at both ends.
func TestKeysGoThroughASession(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	m := r.player()
	for i, c := range []struct {
		key  string
		want events.Revision
	}{{"left", 1}, {"right", 2}, {"right", 3}, {"left", 2}, {"G", 7}, {"right", 7}, {"pgup", 1}, {"pgdown", 7}, {"g", 1}} {
		if m = r.press(m, c.key); m.at != c.want {
			t.Errorf("key %d, %s: the event is %d, want %d", i, c.key, m.at, c.want)
		}
	}
	if m = r.press(m, "G", "right"); m.note != "the end" {
		t.Errorf("behind the end the note is %q", m.note)
	}
}

// Playing shows the events in turn, with pauses as recorded but shortened, and stops at the
// end. A tick of an earlier pause does nothing.
func TestPlayingGoesOnAfterPauses(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	m := r.press(r.player(), "space")
	if !m.playing {
		t.Fatal("the space bar does not play")
	}
	if recorded, played := m.gap(); recorded != time.Second || played != time.Second {
		t.Errorf("the pause is %v, played %v; want a second", recorded, played)
	}
	stale := tickMsg(m.ticks - 1)
	if next, _ := m.Update(stale); next.(Model).at != 1 {
		t.Error("the tick of an earlier pause shows the next event")
	}
	for m.playing {
		if m.at == 5 {
			if recorded, played := m.gap(); recorded != time.Hour || played != maxGap || !strings.Contains(text(m), "» next after 1h0m0s, shortened to 2s") {
				t.Errorf("the pause is %v, played %v, on the screen\n%s", recorded, played, text(m))
			}
		}
		before := m.at
		next, _ := m.Update(tickMsg(m.ticks))
		if m = next.(Model); m.playing && m.at != before+1 {
			t.Fatalf("after event %d comes %d", before, m.at)
		}
	}
	if m.at != 7 || m.note != "the end" {
		t.Errorf("the playing ends at event %d with %q, want 7 and the end", m.at, m.note)
	}
	faster := r.press(m, "+", "+")
	if speeds[faster.speed] != 4 || speeds[r.press(faster, "-", "-", "-").speed] != 0.5 {
		t.Errorf("the pace after + and + is %v", speeds[faster.speed])
	}
}

// A search finds texts in any case, forwards and back, and says if there is none.
func TestSearching(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	m := r.press(r.player(), "/", "F", "I", "L", "E", "enter")
	if m.at != 5 {
		t.Errorf("FILE is found at event %d, want 5", m.at)
	}
	if m = r.press(m, "n"); m.at != 5 || m.note != "not found: FILE" {
		t.Errorf("a second match is at %d, note %q", m.at, m.note)
	}
	m.search = "i"
	if back := r.press(m, "N"); back.at != 4 && back.at != 3 {
		t.Errorf("the match before is at %d", back.at)
	}
	if m = r.press(m, "/", "x", "esc"); m.typing || m.at != 5 || m.search != "i" {
		t.Errorf("esc leaves the search line open, or searches: %+v", m.note)
	}
	if m = r.press(r.player(), "n"); !strings.Contains(m.note, "no text") {
		t.Errorf("n without a search notes %q", m.note)
	}
}

// A long session is read in windows: opening it and going to its end read a few hundred
// events, and the events are the right ones.
func TestALongSessionIsReadInWindows(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	var all []events.Event
	for i := range 3000 {
		all = append(all, events.PromptAdmitted{Message: r.ledger.Mint().Message(), Text: fmt.Sprint("prompt ", i)})
	}
	r.add(time.Second, all...)
	m := r.player()
	for _, key := range []string{"G", "left", "g", "right", "pgdown", "G"} {
		m = r.press(m, key)
		f, ok := m.frame(m.at)
		if !ok || f.revision != m.at || m.at > 1 && f.summary != fmt.Sprint("prompt ", m.at-2) || len(m.window) > windowSize {
			t.Errorf("after %s: event %d is %+v, in a window of %d", key, m.at, f, len(m.window))
		}
	}
	m.search = "prompt 17"
	if m = r.press(m, "N"); m.at != 1799+2 {
		t.Errorf("the match before the end is at %d, want %d", m.at, 1799+2)
	}
}

// Every screen fits the terminal, and none has an escape sequence of a text.
func TestEveryScreenFits(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	r.add(0, events.PromptAdmitted{Message: r.ledger.Mint().Message(), Text: strings.Repeat("漢\x1b]0;title\a", 1<<18)})
	m := r.player()
	for _, key := range []string{"right", "G", "down", "?", "?", "/", "esc", "g"} {
		m = r.press(m, key)
		for _, size := range [][2]int{{80, 24}, {20, 8}, {10, 3}, {1, 1}, {200, 60}} {
			next, _ := m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			content := next.View().Content
			lines := strings.Split(content, "\n")
			if len(lines) > size[1] || strings.Contains(content, "\x1b") {
				t.Errorf("after %s at %v: %d lines, %q", key, size, len(lines), content)
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > size[0] {
					t.Errorf("after %s at %v: the line %q is too wide", key, size, line)
				}
			}
		}
	}
	if m = r.press(m, "G"); m.window[len(m.window)-1].cut == 0 {
		t.Error("nothing of a large text is left out")
	}
}

// An error of the store is shown.
func TestAnErrorIsShown(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	next, _ := r.player().Update(loadedMsg{at: 1, err: errors.New("the disk is \x1b[31mgone")})
	if m := next.(Model); m.err == nil || !strings.Contains(text(m), "error: the disk is ␛[31mgone") {
		t.Errorf("the screen is\n%s", text(m))
	}
}

// A running session says so at its end. A session without events has a screen.
func TestARunningSessionAndAnEmptyOne(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	m := r.player()
	m.session.Open = 1
	if m = r.press(m, "G", "right"); !strings.Contains(text(m), "running") || !strings.Contains(m.note, "so far") {
		t.Errorf("the screen of a running session is\n%s", text(m))
	}
	empty := New(m.out, m.source, calls.Session{ID: r.session})
	if empty = r.press(r.do(empty, empty.Init()), "right", "left", "G", "g", "space"); !strings.Contains(text(empty), "no events") {
		t.Errorf("the screen of an empty session is\n%s", text(empty))
	}
}

func TestPlayingNeedsATerminal(t *testing.T) {
	t.Parallel()
	if f := fault.Of(Check(&render.Printer{Terminal: true}, strings.NewReader(""), "@last")); f.Exit != fault.ExitUsage || f.Command != "ledger session show @last" {
		t.Errorf("Check = %+v", f)
	}
}

// Esc ends a search: its result, which comes later, changes nothing. Another event is shown
// from its first line.
func TestAnEndedSearchShowsNothing(t *testing.T) {
	t.Parallel()
	r := conversation(t)
	m := r.player()
	m.search = "FILE"
	next, search := m.Update(tea.KeyPressMsg{Code: 'n', Text: "n"})
	m = r.press(next.(Model), "esc", "down", "right")
	if m.scroll != 0 || m.at != 2 {
		t.Errorf("event %d is shown from line %d, want 2 and 0", m.at, m.scroll)
	}
	next, _ = m.Update(foundMsg{search: m.finds, at: 5})
	if late := search(); next.(Model).at != 2 {
		t.Errorf("a search that was ended shows event %d, %+v", next.(Model).at, late)
	}
}
