package player

import (
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// maxGap is the longest pause between two events while a session plays.
const maxGap = 2 * time.Second

// speeds are the paces of a player, and normalSpeed is the index of the recorded one.
var speeds = []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32, 64}

const normalSpeed = 2

// A Model is the state of a player.
type Model struct {
	out     *render.Printer
	source  Source
	session calls.Session
	last    events.Revision // of the session

	width, height int
	at            events.Revision // the current event, from 1
	scroll        int             // lines of the current event that are scrolled away
	window        []frame         // consecutive events
	loading       events.Revision // the event for which a window is read; 0: no read is under way

	playing bool
	speed   int // index of speeds
	ticks   int // the number of the pause that is under way; an older tick does nothing

	help    bool
	typing  bool          // the search line is open
	typed   string        // its text
	search  string        // the last text searched for
	finding chan struct{} // closed to end the search that is under way; nil: there is none
	finds   int           // the number of that search
	note    string        // one line for the user
	err     error         // the last error of the store
}

// New returns a player of a session at its first event. It has the events up to the
// revision of session.
func New(out *render.Printer, source Source, session calls.Session) Model {
	return Model{out: out, source: source, session: session, last: session.Revision, width: 80, height: 24, at: min(1, session.Revision), speed: normalSpeed}
}

// The messages of a player.
type (
	// loadedMsg has a window that was read for an event.
	loadedMsg struct {
		at     events.Revision
		frames []frame
		err    error
	}
	// tickMsg ends a pause.
	tickMsg int
	// foundMsg ends a search.
	foundMsg struct {
		search int
		at     events.Revision
		err    error
	}
)

// Init reads the first window.
func (m Model) Init() tea.Cmd { return m.read(m.at) }

// Update returns the state after a message, and the next command.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(1, msg.Width), max(1, msg.Height)
	case loadedMsg:
		if m.loading = 0; msg.err != nil {
			m.err, m.playing = msg.err, false
			return m, nil
		}
		m.window = msg.frames
		if _, ok := m.frame(m.at); !ok && m.at != msg.at {
			return m.show(m.at)
		}
		return m.wait()
	case tickMsg:
		if m.playing && int(msg) == m.ticks {
			return m.show(m.at + 1)
		}
	case foundMsg:
		if msg.search != m.finds || m.finding == nil {
			return m, nil
		}
		m.finding, m.note = nil, ""
		switch {
		case msg.err != nil:
			m.err = msg.err
		case msg.at == 0:
			m.note = "not found: " + m.search
		default:
			return m.show(msg.at)
		}
	case tea.PasteMsg:
		if m.typing {
			m.typed += msg.Content
		}
	case tea.KeyPressMsg:
		return m.key(msg)
	}
	return m, nil
}

// key handles a key.
func (m Model) key(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	word := k.String()
	if word == "ctrl+c" {
		return m.stop(), tea.Quit
	}
	if m.typing {
		return m.typeKey(k, word)
	}
	if m.help {
		m.help = false
		return m, nil
	}
	m.note = ""
	switch word {
	case "q":
		return m.stop(), tea.Quit
	case "?", "h":
		m.help = true
	case "esc":
		m = m.stop()
	case "space", " ":
		return m.toggle()
	case "right", "l", "enter":
		m.playing = false
		return m.show(m.at + 1)
	case "left", "backspace":
		m.playing = false
		return m.show(m.at - min(m.at, 1))
	case "pgdown":
		return m.show(m.at + 10)
	case "pgup":
		return m.show(m.at - min(m.at, 10))
	case "home", "g":
		return m.show(1)
	case "end", "G":
		return m.show(m.last)
	case "down", "j":
		m.scroll++
	case "up", "k":
		m.scroll = max(0, m.scroll-1)
	case "+", "=":
		m.speed = min(m.speed+1, len(speeds)-1)
		return m.wait()
	case "-":
		m.speed = max(m.speed-1, 0)
		return m.wait()
	case "/":
		m = m.stop()
		m.typing, m.typed = true, ""
	case "n":
		return m.find(false)
	case "N":
		return m.find(true)
	}
	return m, nil
}

// typeKey handles a key while the search line is open.
func (m Model) typeKey(k tea.KeyPressMsg, word string) (tea.Model, tea.Cmd) {
	switch word {
	case "esc":
		m.typing = false
	case "enter":
		if m.typing = false; m.typed != "" {
			m.search = m.typed
		}
		return m.find(false)
	case "backspace":
		if r := []rune(m.typed); len(r) > 0 {
			m.typed = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.typed = ""
	default:
		m.typed += k.Text
	}
	return m, nil
}

// stop ends the playing and a search.
func (m Model) stop() Model {
	if m.finding != nil {
		close(m.finding)
	}
	m.finding, m.playing, m.note = nil, false, ""
	return m
}

// toggle begins or pauses the playing. At the end it begins again at the first event.
func (m Model) toggle() (tea.Model, tea.Cmd) {
	m.playing = !m.playing
	if m.playing && m.at >= m.last {
		return m.show(1)
	}
	return m.wait()
}

// show makes an event the current one, and reads the window around it if it is not held.
func (m Model) show(at events.Revision) (tea.Model, tea.Cmd) {
	if at > m.last {
		m.playing = false
		m.note = "the end"
		if m.running() {
			m.note = "the end so far: the session is running"
		}
	}
	at = min(max(at, min(1, m.last)), m.last)
	if at != m.at {
		m.scroll = 0
	}
	m.at = at
	_, held := m.frame(at)
	_, next := m.frame(min(at+1, m.last)) // its time is the end of the pause
	if held && next || at == 0 {
		return m.wait()
	}
	if m.loading != 0 {
		return m, nil // loadedMsg reads on
	}
	m.loading = at
	return m, m.read(at)
}

// running reports whether the session has an open call and is not closed.
func (m Model) running() bool { return m.session.Open > 0 && !m.session.Closed }

// read returns the command that reads the window around an event.
func (m Model) read(at events.Revision) tea.Cmd {
	if at == 0 {
		return nil
	}
	source, from := m.source, at-min(at-1, windowSize/2)
	return func() tea.Msg {
		frames, err := source.frames(from, windowSize)
		if err == nil && uint64(len(frames)) <= uint64(at-from) {
			err = fmt.Errorf("read session %s: event %d is not there", source.Session, at)
		}
		return loadedMsg{at, frames, err}
	}
}

// frame returns the frame of an event, and whether the window has it.
func (m Model) frame(at events.Revision) (frame, bool) {
	if len(m.window) == 0 || at < m.window[0].revision || at > m.window[len(m.window)-1].revision {
		return frame{}, false
	}
	return m.window[at-m.window[0].revision], true
}

// gap returns the pause after the current event as recorded, and as played at speed 1.
func (m Model) gap() (recorded, played time.Duration) {
	now, ok := m.frame(m.at)
	next, more := m.frame(m.at + 1)
	if !ok || !more {
		return 0, 0
	}
	recorded = max(0, next.time.Sub(now.time))
	return recorded, min(recorded, maxGap)
}

// wait returns the command that shows the next event after the pause, if the player plays.
func (m Model) wait() (tea.Model, tea.Cmd) {
	m.ticks++
	if !m.playing {
		return m, nil
	}
	_, pause := m.gap()
	tick := tickMsg(m.ticks)
	return m, tea.Tick(time.Duration(float64(pause)/speeds[m.speed]), func(time.Time) tea.Msg { return tick })
}

// find begins a search for the last text.
func (m Model) find(backwards bool) (tea.Model, tea.Cmd) {
	if m.search == "" {
		m.note = "no text to search for: / begins a search"
		return m, nil
	}
	m = m.stop()
	m.finds++
	m.finding, m.note = make(chan struct{}), "searching…  esc ends it"
	source, text, at, last, id, stop := m.source, m.search, m.at, m.last, m.finds, m.finding
	return m, func() tea.Msg {
		found, err := source.find(text, at, last, backwards, stop)
		return foundMsg{id, found, err}
	}
}
