package index

import (
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index/where"
)

// IndexedTextBytes is the size of the beginning of a text that the full-text index has.
const IndexedTextBytes = textBytes

// A TextQuery selects texts of sessions. Phrase is needed.
type TextQuery struct {
	Phrase   Phrase
	Session  domain.SessionID
	Agent    string      // of the session of the text
	From, To time.Time   // the time of the event; To is excluded; zero: unbounded
	Calls    CallQuery   // the inputs and shown texts of such a call; zero: all texts
	Where    *where.Expr // over TextFields; nil: all texts
	Limit    int         // the last so many; 0: all
	Skip     int         // leave the last so many out, before Limit
}

// A Text is a found text: its place, and the words around the first match.
type Text struct {
	Kind     string // prompt, reply, input or shown
	Session  domain.SessionID
	Message  domain.MessageID
	Call     domain.CallID // of an input or a shown text
	Tool     string        // of that call
	Position events.Position
	Time     time.Time
	Bytes    int64 // of the whole text
	// Before, Match and After are next to each other in the text. CutBefore and CutAfter
	// report that the text goes on.
	Before, Match, After string
	CutBefore, CutAfter  bool
}

// The marks of a snippet: characters of the private use area, which mark removes from
// texts.
const (
	beginMark = "\uE0F1"
	endMark   = "\uE0F2"
	cutMark   = "\uE0F3"
)

// snippetBytes bounds each part of a snippet.
const snippetBytes = 240

// textColumns are the columns of a Text, in the order of scan. A snippet has 20 words.
const textColumns = "texts.kind, texts.session, texts.message, texts.call, " + textTool + ", texts.position, " + textTime + ", texts.bytes, snippet(text_search, 0, '" + beginMark + "', '" + endMark + "', '" + cutMark + "', 20)"

// textTool is the SQL of the tool of a text.
const textTool = "(SELECT tool FROM calls WHERE calls.message = texts.message AND calls.call = texts.call AND calls.session = texts.session)"

// scan reads textColumns.
func (t *Text) scan(c *columnReader) error {
	t.Kind = c.string()
	c.text(&t.Session, &t.Message)
	t.Call, t.Tool, t.Position, t.Time, t.Bytes = domain.CallID(c.string()), c.string(), c.position(), c.time(), c.integer()
	t.mark(c.string())
	return c.err
}

// mark sets the parts of the snippet. It keeps the end of the text before the match and the
// beginning of the others, whole characters.
func (t *Text) mark(snippet string) {
	snippet, t.CutBefore = strings.CutPrefix(snippet, cutMark)
	snippet, t.CutAfter = strings.CutSuffix(snippet, cutMark)
	before, rest, _ := strings.Cut(snippet, beginMark)
	match, after, _ := strings.Cut(rest, endMark)
	unmarked := strings.NewReplacer(beginMark, "", endMark, "", cutMark, "")
	before, match, after = unmarked.Replace(before), unmarked.Replace(match), unmarked.Replace(after)
	if n := len(before) - snippetBytes; n > 0 {
		before, t.CutBefore = strings.ToValidUTF8(before[n:], ""), true
	}
	if t.After = cut(after, snippetBytes); len(t.After) < len(after) {
		t.CutAfter = true
	}
	if t.Match = cut(match, snippetBytes); len(t.Match) < len(match) {
		t.After, t.CutAfter = "", true
	}
	t.Before = before
}

// Search returns the selected texts in the order of the log. It returns an ErrNoText if the
// index has no full text.
func (s *Snapshot) Search(q TextQuery) (all []Text, err error) {
	if !s.progress.texts {
		return nil, ErrNoText
	}
	w := &conditions{}
	w.also("text_search MATCH ?", q.Phrase.match())
	if !q.Session.IsZero() {
		w.add("texts.session = ?", q.Session)
	}
	if condition, args := q.Calls.subqueries("(texts.message, texts.call, texts.session)", "calls.message, calls.call, calls.session"); condition != "" {
		w.add(condition, args...)
	}
	if q.Agent != "" {
		w.also("(SELECT agent FROM sessions WHERE sessions.session = texts.session) = ?", q.Agent)
	}
	w.within(textTime, q.From, q.To)
	w.where(q.Where, false)
	err = s.each(func(c *columnReader) error {
		all = append(all, Text{})
		return all[len(all)-1].scan(c)
	}, "SELECT "+textColumns+" FROM text_search CROSS JOIN texts ON texts.id = text_search.rowid WHERE "+w.text()+" ORDER BY text_search.rowid DESC LIMIT ?", append(w.args, atMost(q.Limit, q.Skip))...)
	slices.Reverse(all)
	return page(all, q.Limit, q.Skip), err
}

// HasText reports whether the index has full text.
func (s *Snapshot) HasText() bool { return s.progress.texts }

// readLongTexts counts the texts of which the full-text index has the beginning alone.
const readLongTexts = "SELECT count(*) FROM texts WHERE bytes > 8192"

// LongTexts returns the number of texts that are longer than IndexedTextBytes, whose rest a
// search does not read.
func (s *Snapshot) LongTexts() (int64, error) {
	if !s.progress.texts {
		return 0, ErrNoText
	}
	return s.number(readLongTexts)
}
