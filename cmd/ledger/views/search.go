package views

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A textRow is one found text of `ledger search` in JSON results.
type textRow struct {
	Kind      string           `json:"kind"` // prompt, reply, input, or shown: what the model read of a call
	Session   domain.SessionID `json:"session"`
	Message   domain.MessageID `json:"message"`
	Call      *domain.CallID   `json:"call"`
	Tool      *string          `json:"tool"`
	Position  events.Position  `json:"position"`
	Time      render.Timestamp `json:"time"`
	Bytes     int64            `json:"bytes"`      // the size of the whole text
	Whole     bool             `json:"whole"`      // the whole text was searched
	Before    string           `json:"before"`     // before the first match; the three are next to each other
	Match     string           `json:"match"`      // the words that were found
	After     string           `json:"after"`      // behind them
	CutBefore bool             `json:"cut_before"` // the text has more in front of Before
	CutAfter  bool             `json:"cut_after"`  // the text has more behind After
}

// newTextRow returns the row of a found text.
func newTextRow(t index.Text) textRow {
	return textRow{
		Kind: t.Kind, Session: t.Session, Message: t.Message, Call: render.OrNull(t.Call), Tool: render.OrNull(t.Tool), Position: t.Position, Time: render.Timestamp(t.Time),
		Bytes: t.Bytes, Whole: t.Bytes <= index.IndexedTextBytes, Before: t.Before, Match: t.Match, After: t.After, CutBefore: t.CutBefore, CutAfter: t.CutAfter,
	}
}

// Search prints the texts that have the words of text and that filter selects, in the order
// of the log. For people it ends with the number of texts whose rest it did not read.
func Search(out *render.Printer, r *index.Snapshot, text string, filter query.Filter) error {
	phrase, err := query.Phrase("search", text)
	if err != nil {
		return err
	}
	selected, err := filter.Resolve(out, r, query.TextList)
	if err != nil {
		return err
	}
	q := index.TextQuery{Phrase: phrase, Session: selected.Session, Agent: filter.Agent, Calls: selected.Calls, Where: selected.Where, Limit: filter.Limit, Skip: filter.Skip}
	q.From, q.To = filter.When.Bounds()
	texts, err := r.Search(q)
	if errors.Is(err, index.ErrNoText) {
		return query.NoText()
	}
	if err != nil {
		return err
	}
	long, err := r.LongTexts()
	if err != nil {
		return err
	}
	rows := make([]textRow, len(texts))
	for i, t := range texts {
		rows[i] = newTextRow(t)
	}
	return render.Rows(out, rows, func() {
		t := render.Table{Head: []string{"TIME", "SESSION", "KIND", "?PLACE", "~TEXT"}, Empty: strings.TrimSuffix(filter.Empty(out, query.TextList), ".") + " with these words."}
		for _, one := range texts {
			place := render.ShortID(one.Message)
			if one.Call != "" {
				place = render.ShortCallID(one.Call) + " " + render.OneLine(one.Tool, 20)
			}
			t.Add(out.ShortTime(one.Time), render.ShortID(one.Session), one.Kind, place, snippetText(out, one))
		}
		out.Table(t)
		if long > 0 {
			out.Line("%s", out.Styled(render.Dim, fmt.Sprintf("Of %s of more than %d bytes a search reads the beginning alone.", render.Count(int(long), "text"), index.IndexedTextBytes)))
		}
	})
}

// The widths of the parts of a snippet in a table.
const (
	beforeWidth = 40
	matchWidth  = 60
	afterWidth  = 60
)

// snippetText returns a snippet on one line, with the match in bold.
func snippetText(out *render.Printer, t index.Text) string {
	before, match, after := []rune(flat(t.Before)), render.OneLine(t.Match, matchWidth), []rune(flat(t.After))
	text := ""
	if n := len(before) - beforeWidth; n > 0 || t.CutBefore {
		before, text = before[max(0, n):], "…"
	}
	text += string(before) + out.Styled(render.Bold, match)
	if len(after) > afterWidth || t.CutAfter {
		return text + string(after[:min(len(after), afterWidth)]) + "…"
	}
	return text + string(after)
}

// flat returns a text on one printable line, with a space for each group of spaces.
func flat(text string) string {
	var b strings.Builder
	space := false
	for _, r := range text {
		if unicode.IsSpace(r) {
			if !space {
				b.WriteByte(' ')
			}
			space = true
			continue
		}
		space = false
		b.WriteRune(r)
	}
	return render.Printable(b.String())
}
