package promptline

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"
)

// MaxLine is the maximum length of a line in bytes.
const MaxLine = 4 << 20

// The limits of an editor besides MaxLine.
const (
	maxSequence     = 32       // bytes in an escape sequence; a longer one is dropped
	maxHistory      = 100      // earlier lines
	maxHistoryRunes = 16 << 10 // runes in an earlier line; a longer one is not kept
)

// An entered is a line that a person ended.
type entered struct {
	text    string
	refused bool // the line was longer than MaxLine; text is empty
	left    bool // ctrl-d in an empty line, in place of a line
}

// An editor is the line that a person types, with a cursor. It is not safe for concurrent
// use.
type editor struct {
	line    []rune
	cursor  int    // index in line
	size    int    // of line in bytes
	refused bool   // runes over MaxLine were typed
	pasting bool   // between the marks of a bracketed paste
	cr      bool   // the last rune of a paste was a carriage return
	pending []byte // the beginning of a rune or of an escape sequence
	history []string
	at      int    // index in history; len(history): the line that is new
	draft   []rune // the new line, while at is another one
}

// clear empties the line.
func (e *editor) clear() {
	e.set(nil)
	e.refused, e.pasting, e.pending, e.at = false, false, nil, len(e.history)
}

// set replaces the line and moves the cursor to its end.
func (e *editor) set(line []rune) {
	e.line, e.cursor, e.size = line, len(line), 0
	for _, r := range line {
		e.size += utf8.RuneLen(r)
	}
}

// empty reports whether nothing is typed.
func (e *editor) empty() bool { return len(e.line) == 0 && !e.refused }

// feed edits the line with the typed bytes and returns the lines that they end. A rune or an
// escape sequence may be split between two calls.
func (e *editor) feed(typed []byte) (lines []entered) {
	b := typed
	if len(e.pending) > 0 {
		b = append(e.pending, typed...)
		e.pending = nil
	}
	for len(b) > 0 {
		n := plainRunes(b)
		if n > 0 {
			e.insert([]rune(string(b[:n])))
			b = b[n:]
			continue
		}
		if !utf8.FullRune(b) || incompleteSequence(b) {
			e.pending = bytes.Clone(b)
			return lines
		}
		if b[0] == escape {
			n := sequenceLength(b)
			e.control(b[:n])
			b = b[n:]
			continue
		}
		r, n := utf8.DecodeRune(b)
		if line, ended := e.key(r); ended {
			lines = append(lines, line)
		}
		b = b[n:]
	}
	return lines
}

// escape begins an escape sequence.
const escape = 0x1b

// plainRunes returns the length of the longest beginning of b that has only runes that are
// inserted as they are, and is valid UTF-8.
func plainRunes(b []byte) int {
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 || unicode.IsControl(r) {
			break
		}
		n += size
	}
	return n
}

// incompleteSequence reports whether b is the beginning of an escape sequence that may go on
// behind b. An escape that another key follows is a key of its own.
func incompleteSequence(b []byte) bool {
	switch {
	case b[0] != escape || len(b) >= maxSequence:
		return false
	case len(b) == 1 || len(b) == 2 && b[1] == 'O':
		return true
	}
	return b[1] == '[' && !slices.ContainsFunc(b[2:], notParameter)
}

// notParameter reports whether a byte of a control sequence is no parameter or intermediate
// byte (ECMA-48), so that the sequence ends there.
func notParameter(c byte) bool { return c < 0x20 || c > 0x3f }

// sequenceLength returns the length of the escape sequence at the beginning of b.
func sequenceLength(b []byte) int {
	switch {
	case len(b) < 2 || b[1] != '[' && b[1] != 'O':
		return 1
	case b[1] == 'O':
		return min(3, len(b))
	}
	if end := slices.IndexFunc(b[2:], notParameter); end >= 0 && end+3 <= maxSequence {
		if c := b[2+end]; c < 0x40 || c > 0x7e {
			return 2 + end // the sequence is broken off by another byte
		}
		return end + 3
	}
	return min(maxSequence, len(b))
}

// control edits the line with an escape sequence. It ignores an unknown one.
func (e *editor) control(sequence []byte) {
	switch text := string(sequence); {
	case text == "\x1b[200~":
		e.pasting, e.cr = true, false
	case text == "\x1b[201~":
		e.pasting = false
	case e.pasting || len(sequence) < 3:
	case text == "\x1b[3~":
		e.remove(e.cursor, e.cursor+1)
	case text == "\x1b[1~" || text == "\x1b[7~":
		e.cursor = 0
	case text == "\x1b[4~" || text == "\x1b[8~":
		e.cursor = len(e.line)
	default:
		e.arrow(sequence[len(sequence)-1])
	}
}

// arrow edits the line with the sequence of an arrow key, Home or End, by its last byte.
func (e *editor) arrow(final byte) {
	switch final {
	case 'A':
		e.recall(e.at - 1)
	case 'B':
		e.recall(e.at + 1)
	case 'C':
		e.cursor = min(e.cursor+1, len(e.line))
	case 'D':
		e.cursor = max(e.cursor-1, 0)
	case 'H':
		e.cursor = 0
	case 'F':
		e.cursor = len(e.line)
	}
}

// ctrl returns the rune of a control key.
func ctrl(letter rune) rune { return letter - 'A' + 1 }

// key edits the line with one rune that plainRunes leaves out. It returns the line if the
// rune ends it.
func (e *editor) key(r rune) (line entered, ended bool) {
	if e.pasting {
		e.pasted(r)
		return line, false
	}
	switch r {
	case '\r', '\n':
		return e.enter(), true
	case ctrl('D'):
		if e.empty() {
			return entered{left: true}, true
		}
		e.remove(e.cursor, e.cursor+1)
	case 0x7f, ctrl('H'):
		e.remove(e.cursor-1, e.cursor)
	case ctrl('A'):
		e.cursor = 0
	case ctrl('E'):
		e.cursor = len(e.line)
	case ctrl('B'):
		e.cursor = max(e.cursor-1, 0)
	case ctrl('F'):
		e.cursor = min(e.cursor+1, len(e.line))
	case ctrl('K'):
		e.remove(e.cursor, len(e.line))
	case ctrl('U'):
		e.remove(0, e.cursor)
		e.refused = e.refused && len(e.line) > 0
	case ctrl('W'):
		e.remove(e.wordStart(), e.cursor)
	case ctrl('P'):
		e.recall(e.at - 1)
	case ctrl('N'):
		e.recall(e.at + 1)
	case '\t', utf8.RuneError:
		e.insert([]rune{r})
	}
	return line, false
}

// pasted inserts a rune of a paste that plainRunes leaves out. Line ends become line feeds.
// It drops control characters, which have no meaning in a text.
func (e *editor) pasted(r rune) {
	switch {
	case r == '\n' && e.cr: // the line feed of a carriage return
	case r == '\r':
		e.insert([]rune{'\n'})
	case r == '\n' || r == '\t' || r == utf8.RuneError:
		e.insert([]rune{r})
	}
	e.cr = r == '\r'
}

// insert inserts runes before the cursor, unless the line would be longer than MaxLine.
func (e *editor) insert(runes []rune) {
	size := 0
	for _, r := range runes {
		size += utf8.RuneLen(r)
	}
	if e.refused || e.size+size > MaxLine {
		e.refused = true
		return
	}
	e.line, e.size, e.cr = slices.Insert(e.line, e.cursor, runes...), e.size+size, false
	e.cursor += len(runes)
}

// remove removes the runes from one index to another, as far as the line has them.
func (e *editor) remove(from, to int) {
	from, to = max(from, 0), min(to, len(e.line))
	if from >= to {
		return
	}
	for _, r := range e.line[from:to] {
		e.size -= utf8.RuneLen(r)
	}
	e.line = slices.Delete(e.line, from, to)
	if e.cursor > from {
		e.cursor = max(from, e.cursor-(to-from))
	}
}

// wordStart returns the index at which the word before the cursor begins.
func (e *editor) wordStart() int {
	i := e.cursor
	for i > 0 && unicode.IsSpace(e.line[i-1]) {
		i--
	}
	for i > 0 && !unicode.IsSpace(e.line[i-1]) {
		i--
	}
	return i
}

// recall replaces the line by an earlier one, or by the new one.
func (e *editor) recall(n int) {
	if n < 0 || n > len(e.history) || e.refused {
		return
	}
	if e.at == len(e.history) {
		e.draft = e.line
	}
	e.at = n
	if n == len(e.history) {
		e.set(e.draft)
	} else {
		e.set([]rune(e.history[n]))
	}
}

// enter ends the line.
func (e *editor) enter() entered {
	line := entered{text: string(e.line), refused: e.refused}
	if line.refused {
		line.text = ""
	} else if len(e.line) > 0 && len(e.line) <= maxHistoryRunes {
		e.history = append(e.history, line.text)
		e.history = e.history[max(0, len(e.history)-maxHistory):]
	}
	e.clear()
	return line
}
