package promptline

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// The errors of Next. Match them with errors.Is.
var (
	// ErrInterrupted is returned after a call of Interrupt.
	ErrInterrupted = errors.New("prompt line interrupted")
	// ErrLineTooLong is returned for a line of more than MaxLine bytes, which is lost.
	ErrLineTooLong = errors.New("line has more than 4 MiB")
)

// The control sequences of a terminal that a Console writes (ECMA-48 and xterm).
const (
	eraseRow      = "\r\x1b[0m\x1b[K"
	wrapOff       = "\x1b[?7l"
	wrapOn        = "\x1b[?7h"
	saveCursor    = "\x1b7"
	restoreCursor = "\x1b8"
	pasteOn       = "\x1b[?2004h"
	pasteOff      = "\x1b[?2004l"
)

// prompt precedes the line on the terminal.
const prompt = "> "

// A Console is a terminal with a line that a person edits at its bottom. Open makes it. It
// is safe for concurrent use.
type Console struct {
	device  *ttyDevice
	out     io.Writer
	columns func() int
	signals *signals
	queue   resultQueue
	mu      struct {
		sync.Mutex
		editor    editor
		suspended bool   // a question has the terminal
		closed    bool   // Close was called
		busy      bool   // an empty line is not shown
		shown     bool   // the line is on the terminal
		midLine   bool   // the last text has no line end
		held      []byte // the unfinished line of the texts, while the line is shown
	}
}

// Open takes a terminal: in is its device, out writes to it, and columns returns its width.
// The caller calls Close. The Console is busy at first.
func Open(in *os.File, out io.Writer, columns func() int) (*Console, error) {
	d, err := openDevice(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	c := &Console{device: d, out: out, columns: columns, queue: resultQueue{notify: make(chan struct{}, 1)}}
	c.mu.busy = true
	if err := d.edit(); err != nil {
		return nil, err
	}
	c.signals = watchSignals(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeLocked([]byte(pasteOn))
	return c, nil
}

// Close removes the line and restores the mode of the device. Write then writes as it is
// given. It is safe to call Close several times.
func (c *Console) Close() {
	c.signals.stop()
	c.restore()
}

// restore is Close without the end of the signals.
func (c *Console) restore() {
	c.RestoreMode() // first: the write below may block at a stopped terminal
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return
	}
	b := c.hideLocked(nil)
	if !c.mu.suspended {
		b = append(b, pasteOff...)
	}
	c.mu.closed = true
	c.RestoreMode() // again: Resume may have been under way
	c.writeLocked(b)
}

// RestoreMode restores the mode that the device had before Open, and nothing else. It is for
// a program that exits at once, and never blocks.
func (c *Console) RestoreMode() { _ = c.device.restore() } // an error means that the terminal is gone

// Next waits for the next line that a person ends with Enter and returns it. It returns
// ErrInterrupted after a call of Interrupt, ErrLineTooLong for a line that was too long,
// and io.EOF if the person leaves with ctrl-d or the input has ended. If ctx ends first it
// returns the cause.
func (c *Console) Next(ctx context.Context) (string, error) {
	for {
		if line, err, ok := c.queue.take(); ok {
			return line, err
		}
		select {
		case <-c.queue.notify:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Interrupt makes Next return ErrInterrupted. It never blocks.
func (c *Console) Interrupt() { c.queue.add(queued{err: ErrInterrupted}) }

// EndInput makes Next return io.EOF from now on, behind the lines that it has not returned.
func (c *Console) EndInput() { c.queue.end() }

// Ended reports whether EndInput was called.
func (c *Console) Ended() bool { return c.queue.hasEnded() }

// SetBusy shows the line, or hides an empty line while the program is busy.
func (c *Console) SetBusy(busy bool) {
	c.update(func() { c.mu.busy = busy })
}

// Clear empties the line, and reports whether anything was typed.
func (c *Console) Clear() (typed bool) {
	c.update(func() {
		typed = !c.mu.editor.empty()
		c.mu.editor.clear()
	})
	return typed
}

// Redraw draws the line again, such as after a resize of the terminal.
func (c *Console) Redraw() { c.update(func() {}) }

// Input edits the line with typed bytes. It implements permission.LineEditor.
func (c *Console) Input(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.mu.editor.feed(b)
	out := c.eraseLocked(nil)
	if len(lines) > 0 || !c.visibleLocked() {
		out = c.flushLocked(out)
	}
	for _, line := range lines {
		switch {
		case line.left:
			c.queue.add(queued{err: io.EOF})
		case line.refused:
			c.queue.add(queued{err: ErrLineTooLong})
		default:
			out = c.echoLocked(out, line.text)
			c.queue.add(queued{line: line.text})
		}
	}
	c.writeLocked(c.showLocked(out))
}

// Suspend leaves the terminal to a question. It implements permission.LineEditor.
func (c *Console) Suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := append(c.hideLocked(nil), pasteOff...)
	c.mu.suspended, c.mu.editor.pasting = true, false
	c.writeLocked(b)
	if !c.mu.closed {
		_ = c.device.restore() // the question has a mode of its own even if this fails
	}
}

// Resume takes the terminal back after a question. It implements permission.LineEditor.
func (c *Console) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.suspended = false
	if c.mu.closed {
		return
	}
	_ = c.device.edit() // without it the device edits lines, which Input takes as well
	c.writeLocked(c.showLocked([]byte(pasteOn)))
}

// Write writes text above the line. While the line is shown it writes whole lines only, and
// the rest when the line is hidden or the next line end comes.
func (c *Console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.shown {
		c.noteLocked(text)
		return c.out.Write(text)
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	if end == 0 {
		c.mu.held = append(c.mu.held, text...)
		return len(text), nil
	}
	b := slices.Concat([]byte(eraseRow), c.mu.held, text[:end])
	c.mu.shown, c.mu.held = false, bytes.Clone(text[end:])
	if _, err := c.out.Write(c.showLocked(b)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// update calls change with the lock held and draws the line again.
func (c *Console) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.eraseLocked(nil)
	change()
	if !c.visibleLocked() {
		b = c.flushLocked(b)
	}
	c.writeLocked(c.showLocked(b))
}

// visibleLocked reports whether the line is to be shown. The caller holds mu.
func (c *Console) visibleLocked() bool {
	return !c.mu.suspended && !c.mu.closed && (!c.mu.busy || !c.mu.editor.empty())
}

// eraseLocked appends to b what removes the line from the terminal. The caller holds mu and
// writes b.
func (c *Console) eraseLocked(b []byte) []byte {
	if c.mu.shown {
		b, c.mu.shown = append(b, eraseRow...), false
	}
	return b
}

// hideLocked appends to b what removes the line from the terminal, and the unfinished line
// of the texts. The caller holds mu and writes b.
func (c *Console) hideLocked(b []byte) []byte { return c.flushLocked(c.eraseLocked(b)) }

// flushLocked appends the unfinished line of the texts to b. The caller holds mu.
func (c *Console) flushLocked(b []byte) []byte {
	c.noteLocked(c.mu.held)
	b, c.mu.held = append(b, c.mu.held...), nil
	return b
}

// noteLocked notes whether the texts end with a line end. The caller holds mu.
func (c *Console) noteLocked(text []byte) {
	if len(text) > 0 {
		c.mu.midLine = text[len(text)-1] != '\n'
	}
}

// showLocked appends to b what draws the line, if it is to be shown. The caller holds mu and
// writes b.
func (c *Console) showLocked(b []byte) []byte {
	if !c.visibleLocked() {
		return b
	}
	if c.mu.midLine {
		b, c.mu.midLine = append(b, '\n'), false
	}
	before, after := c.mu.editor.window(c.columns() - ansi.StringWidth(prompt) - 1)
	c.mu.shown = true
	b = append(b, eraseRow+wrapOff+prompt+before+saveCursor+after+restoreCursor+wrapOn...)
	return b
}

// echoLocked appends to b a row with the beginning of a line that was ended. The caller
// holds mu.
func (c *Console) echoLocked(b []byte, line string) []byte {
	if c.mu.suspended || c.mu.closed {
		return b
	}
	if c.mu.midLine {
		b, c.mu.midLine = append(b, '\n'), false
	}
	columns := max(1, c.columns()-ansi.StringWidth(prompt)-1)
	return append(b, prompt+ansi.Truncate(picture([]rune(line[:min(len(line), 16*columns)])), columns, "…")+"\n"...)
}

// writeLocked writes b to the terminal. An error means that the terminal is gone, which the
// reader of the input notices. The caller holds mu.
func (c *Console) writeLocked(b []byte) {
	if len(b) > 0 {
		_, _ = c.out.Write(b)
	}
}

// window returns the part of the line around the cursor that fits into a number of columns:
// the text before the cursor and the text behind it.
func (e *editor) window(columns int) (before, after string) {
	columns = max(1, columns)
	from, left := e.cursor, columns
	for from > 0 && e.cursor-from < 4*columns && left >= runeWidth(e.line[from-1]) {
		left -= runeWidth(e.line[from-1])
		from--
	}
	to := e.cursor
	for to < len(e.line) && to-e.cursor < 4*columns && left >= runeWidth(e.line[to]) {
		left -= runeWidth(e.line[to])
		to++
	}
	return picture(e.line[from:e.cursor]), picture(e.line[e.cursor:to])
}

// runeWidth returns the number of columns of a rune in the form of picture.
func runeWidth(r rune) int { return ansi.StringWidth(picture([]rune{r})) }

// picture returns runes as a text of one row that does not control a terminal: the control
// pictures of ASCII control characters, and U+FFFD for other characters that are not
// printed.
func picture(runes []rune) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x20:
			return 0x2400 + r
		case r == 0x7f:
			return '␡'
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return unicode.ReplacementChar
		}
		return r
	}, string(runes))
}

// A queued is a line or an error that Next returns.
type queued struct {
	line string
	err  error
}

// A resultQueue has the results of Next that it has not returned yet. Its lock is held for no
// write, so that Interrupt does not wait for the terminal.
type resultQueue struct {
	notify chan struct{} // capacity 1
	mu     struct {
		sync.Mutex
		results []queued
		ended   bool
	}
}

// add adds a result.
func (q *resultQueue) add(r queued) {
	q.mu.Lock()
	q.mu.results = append(q.mu.results, r)
	q.mu.Unlock()
	q.wake()
}

// end ends the queue.
func (q *resultQueue) end() {
	q.mu.Lock()
	q.mu.ended = true
	q.mu.Unlock()
	q.wake()
}

// hasEnded reports whether the queue has ended.
func (q *resultQueue) hasEnded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.ended
}

// wake wakes Next. It never blocks.
func (q *resultQueue) wake() {
	select {
	case q.notify <- struct{}{}:
	default:
	}
}

// take removes and returns the oldest result. It returns false if there is none.
func (q *resultQueue) take() (line string, err error, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.results) == 0 {
		return "", io.EOF, q.mu.ended
	}
	r := q.mu.results[0]
	q.mu.results = slices.Delete(q.mu.results, 0, 1)
	return r.line, r.err, true
}
