package player

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/events"
)

// helpText is the screen of the key ?.
const helpText = `space      play, pause
→ enter    one event forwards
← bksp     one event back
pgup pgdn  ten events back, forwards
g G        the first, the last event
+ -        faster, slower
↑ ↓        scroll the text of the event
/          search for a text
n N        the next, the last match before
?          this help
q          quit`

// View returns the screen.
func (m Model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	return v
}

// screen returns the lines of the screen, at most as many as the terminal has.
func (m Model) screen() []string {
	switch {
	case m.help:
		lines := append(strings.Split(helpText, "\n"), "", "any key goes back")
		return m.fit(lines[:min(len(lines), m.height)])
	case m.height < 3:
		return m.fit([]string{m.head()})
	}
	body := m.height - 2
	lines := []string{m.head()}
	list := min(body/2, 10)
	if m.height < 8 {
		list = 0
	}
	lines = append(lines, m.list(list)...)
	if list > 0 {
		lines = append(lines, m.out.Styled(render.Dim, strings.Repeat("─", m.width)))
		list++
	}
	lines = append(lines, m.detail(body-list)...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return m.fit(append(lines, m.foot()))
}

// fit cuts lines to the width of the terminal.
func (m Model) fit(lines []string) []string {
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return lines
}

// head returns the first line: the place in the session, the pace and the session.
func (m Model) head() string {
	state := "❚❚"
	if m.playing {
		state = "▶"
	}
	text := fmt.Sprintf("%s %d/%d", state, m.at, m.last)
	if f, ok := m.frame(m.at); ok {
		text += "  " + elapsed(f.time.Sub(m.session.Opened))
	}
	text += fmt.Sprintf("  %gx", speeds[m.speed])
	if m.running() {
		text += "  running"
	}
	text += "  " + render.ShortID(m.session.ID) + "  " + render.OneLine(string(m.session.Agent), 20)
	if recorded, played := m.gap(); recorded > played {
		text += fmt.Sprintf("  » next after %s, shortened to %s", render.Duration(recorded), played)
	}
	return m.out.Styled(render.Bold, text)
}

// elapsed returns a duration since the start of the session.
func elapsed(d time.Duration) string {
	if d < 0 {
		return "-" + render.Duration(-d)
	}
	return "+" + render.Duration(d)
}

// list returns n lines of the events up to the current one, which is the last.
func (m Model) list(n int) []string {
	var lines []string
	for at := m.at - min(m.at, events.Revision(n)) + 1; at <= m.at && n > 0; at++ {
		f, ok := m.frame(at)
		if !ok {
			continue
		}
		mark, label := "  ", fmt.Sprintf("%-12s", f.label)
		if at == m.at {
			mark, label = "> ", m.out.Styled(render.Bold, label)
		}
		line := fmt.Sprintf("%s%8s  %s  %s", mark, elapsed(f.time.Sub(m.session.Opened)), label, f.summary)
		if before, ok := m.frame(at - 1); ok && at > 1 {
			if gap := f.time.Sub(before.time); gap > maxGap {
				line += m.out.Styled(render.Dim, "  » after "+render.Duration(gap))
			}
		}
		lines = append(lines, line)
	}
	for len(lines) < n {
		lines = append([]string{""}, lines...)
	}
	return lines
}

// detail returns at most n lines of the texts of the current event.
func (m Model) detail(n int) []string {
	f, ok := m.frame(m.at)
	switch {
	case n <= 0:
		return nil
	case m.last == 0:
		return []string{"The session has no events."}
	case !ok:
		return []string{"reading…"}
	}
	title := m.out.Styled(render.Bold, f.label)
	if f.outcome != "" {
		title += "  " + m.out.Outcome(f.outcome)
	}
	lines := []string{title + m.out.Styled(render.Dim, fmt.Sprintf("  %s  position %s", m.out.Milliseconds(f.time), f.position))}
	for _, t := range f.texts {
		if t.Name != "" {
			lines = append(lines, m.out.Styled(render.Dim, t.Name))
		}
		lines = append(lines, strings.Split(ansi.Hardwrap(t.Text, max(1, m.width), true), "\n")...)
	}
	if f.cut > 0 {
		lines = append(lines, m.out.Styled(render.Yellow, fmt.Sprintf("%s more: ledger session show --full", render.Bytes(int64(f.cut)))))
	}
	hidden := min(m.scroll, max(0, len(lines)-n))
	lines = lines[hidden:]
	if len(lines) > n {
		lines = append(lines[:n-1:n-1], m.out.Styled(render.Dim, fmt.Sprintf("↓ %s more", render.Count(len(lines)-n+1, "line"))))
	}
	return lines
}

// foot returns the last line: the search line, an error, a note, or the keys.
func (m Model) foot() string {
	switch {
	case m.typing:
		return "/" + render.OneLine(m.typed, 1000) + "█"
	case m.err != nil:
		return m.out.Styled(render.Red, "error: "+render.OneLine(m.err.Error(), 1000))
	case m.note != "":
		return render.OneLine(m.note, 1000)
	}
	return m.out.Styled(render.Dim, "space play  ←→ step  +- speed  / search  ? help  q quit")
}
