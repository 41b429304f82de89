package builtins

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
)

// bom is the byte order mark of UTF-8.
const bom = "\ufeff"

// The line ends of a text.
const (
	lf   = "\n"
	crlf = "\r\n"
)

// A textForm describes the byte order mark and the line ends of a text, so that new
// content can get the same form. The zero textForm is the form of an empty text.
type textForm struct {
	head  []byte // the first bytes of the text, at most as many as a byte order mark has
	lines int    // line ends, LF and CRLF
	dos   int    // line ends that are CRLF
	last  byte   // the last byte
}

// Write adds a part to the text. It returns no error.
func (f *textForm) Write(part []byte) (int, error) {
	if len(part) == 0 {
		return 0, nil
	}
	f.head = append(f.head, part[:min(len(part), len(bom)-len(f.head))]...)
	f.lines += bytes.Count(part, []byte(lf))
	f.dos += bytes.Count(part, []byte(crlf))
	if f.last == '\r' && part[0] == '\n' {
		f.dos++
	}
	f.last = part[len(part)-1]
	return len(part), nil
}

// formOf returns the form of a text.
func formOf(text []byte) textForm {
	var f textForm
	_, _ = f.Write(text) // it returns no error
	return f
}

// scanForm returns the form and the version of an open file. For a file over maxHashed
// it returns the form of the first maxHashed bytes. For nil, a file that does not exist,
// it returns the zero textForm and an empty version.
func scanForm(ctx context.Context, f *os.File) (form textForm, version string, err error) {
	if f == nil {
		return textForm{}, "", nil
	}
	r, err := newVersionReader(f, contextReader{ctx, f})
	if err != nil {
		return textForm{}, "", err
	}
	if _, err := io.Copy(&form, io.LimitReader(r, maxHashed)); err != nil {
		return textForm{}, "", err
	}
	version, err = r.version()
	return form, version, err
}

// apply returns content in the form f. The result has one byte order mark if the text or
// content has one. If all line ends of the text are equal, content gets these line ends.
// Otherwise apply does not change the line ends of content.
func (f textForm) apply(content string) []byte {
	rest, marked := content, string(f.head) == bom
	for strings.HasPrefix(rest, bom) {
		rest, marked = rest[len(bom):], true
	}
	switch {
	case f.lines == 0:
	case f.dos == 0:
		rest = toLF(rest)
	case f.dos == f.lines:
		rest = toCRLF(rest)
	}
	if marked {
		rest = bom + rest
	}
	return []byte(rest)
}

// toLF returns text with LF in place of each CRLF.
func toLF(text string) string { return strings.ReplaceAll(text, crlf, lf) }

// toCRLF returns text with CRLF in place of each LF that no CR precedes.
func toCRLF(text string) string { return strings.ReplaceAll(toLF(text), lf, crlf) }
