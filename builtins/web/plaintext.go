package web

import (
	"context"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// A textWriter collects the text of an HTML page. Outside of pre elements it replaces
// white space by one space, and it separates blocks by lines.
type textWriter struct {
	strings.Builder
	preformatted int    // how many pre elements are open
	gap          string // white space before the next text
}

// plainText returns the text of an HTML page without markup. It takes time and memory in
// proportion to the page. It returns the cause of ctx if ctx ends.
func plainText(ctx context.Context, page string) (string, error) {
	var w textWriter
	err := eachToken(ctx, page, func(token html.Token) error {
		w.add(token)
		return nil
	})
	return w.String(), err
}

// add adds a token.
func (w *textWriter) add(token html.Token) {
	switch token.Type {
	case html.TextToken:
		if w.preformatted > 0 {
			w.write(token.Data)
		} else {
			w.addWords(token.Data)
		}
	case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken:
		w.separate(token)
	}
}

// separate sets the gap that a tag makes: an empty line at a paragraph or a heading, a new
// line at another block, a tab between cells.
func (w *textWriter) separate(token html.Token) {
	if token.DataAtom == atom.Pre {
		switch {
		case token.Type == html.StartTagToken:
			w.preformatted++
		case w.preformatted > 0:
			w.preformatted--
		}
	}
	switch token.DataAtom {
	case atom.P, atom.Pre, atom.Blockquote, atom.Table, atom.Ul, atom.Ol, atom.Dl, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.gap = "\n\n"
	case atom.Td, atom.Th:
		if w.gap == "" || w.gap == " " {
			w.gap = "\t"
		}
	default:
		if (blockElements[token.DataAtom] || token.DataAtom == atom.Br) && w.gap != "\n\n" {
			w.gap = "\n"
		}
	}
}

// addWords adds a text with one space for each white space in it.
func (w *textWriter) addWords(text string) {
	const space = " \t\r\n\f"
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(space, r) })
	if len(words) == 0 {
		if text != "" && w.gap == "" {
			w.gap = " "
		}
		return
	}
	if w.gap == "" && strings.ContainsRune(space, rune(text[0])) {
		w.gap = " "
	}
	w.write(strings.Join(words, " "))
	if strings.ContainsRune(space, rune(text[len(text)-1])) {
		w.gap = " "
	}
}

// write writes the gap and a text. At the beginning of the page there is no gap.
func (w *textWriter) write(text string) {
	if w.Len() > 0 {
		w.WriteString(w.gap)
	}
	w.gap = ""
	w.WriteString(text)
}
