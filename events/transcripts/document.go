package transcripts

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNewer: the file is of a version of its format that this package does not know.
var ErrNewer = errors.New("newer version of the format")

// A documentReader reads a file that is one JSON object. It holds one member, or one
// element of an array, at a time.
type documentReader struct {
	f *sessionFile
	// dec reads the tokens. budget ends the reading of a value over maxLine.
	dec    *jsontext.Decoder
	budget *budgetReader
}

// A budgetReader fails after left bytes, so that one value cannot fill the memory.
type budgetReader struct {
	r    io.Reader
	left int
}

// errLong: a value is longer than maxLine.
var errLong = fmt.Errorf("a value is longer than %d bytes", maxLine)

// Read reads from the reader while the budget lasts.
func (b *budgetReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// newDocumentReader returns a reader of the document r for f.
func newDocumentReader(f *sessionFile, r io.Reader) *documentReader {
	buffered := bufio.NewReaderSize(r, maxHead)
	head, _ := buffered.Peek(maxHead)
	f.noteHead(head)
	if strings.HasPrefix(string(head), "\uFEFF") {
		_, _ = buffered.Discard(len("\uFEFF"))
	}
	budget := &budgetReader{r: buffered, left: maxLine}
	return &documentReader{f, jsontext.NewDecoder(budget, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), budget}
}

// read reads the object. It passes the value of each member to member, and each
// element of the array members in arrays to element. It returns nil at the end of the
// object, and the error of the JSON or of the reader.
func (d *documentReader) read(member func(name string, value json.RawMessage), arrays []string, element func(name string, value json.RawMessage)) error {
	if d.dec.PeekKind() != '{' {
		if _, err := d.dec.ReadToken(); err != nil {
			return err
		}
		return errors.New("not a JSON object")
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return err
	}
	for d.dec.PeekKind() != '}' {
		token, err := d.dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		isArray := false
		for _, a := range arrays {
			isArray = isArray || a == name
		}
		if isArray && d.dec.PeekKind() == '[' {
			if err := d.readArray(name, element); err != nil {
				return err
			}
			continue
		}
		value, err := d.value()
		if err != nil {
			return err
		}
		member(name, value)
	}
	_, err := d.dec.ReadToken()
	return err
}

// readArray passes each element of the array that comes next to element.
func (d *documentReader) readArray(name string, element func(name string, value json.RawMessage)) error {
	if _, err := d.dec.ReadToken(); err != nil {
		return err
	}
	for d.dec.PeekKind() != ']' {
		value, err := d.value()
		if err != nil {
			return err
		}
		element(name, value)
	}
	_, err := d.dec.ReadToken()
	return err
}

// value returns the next value, with invalid UTF-8 replaced. It is a copy.
func (d *documentReader) value() (json.RawMessage, error) {
	d.budget.left = maxLine
	value, err := d.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	return json.RawMessage(strings.ToValidUTF8(string(value), "\uFFFD")), nil
}

// finishDocument ends the reading of a document that ended with err. A document that
// ends early or is damaged keeps its whole parts; the report has the rest as a refused
// line. unit names the parts.
func (f *sessionFile) finishDocument(err error, unit string) (*Transcript, error) {
	f.line++
	syntax, isSyntax := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case err == nil && !f.recognized:
		return nil, f.foreignError()
	case err == nil:
	case errors.Is(err, io.EOF) && len(f.head) == 0:
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		f.refuse("torn: the document ends within %s %d", unit, f.line)
	case errors.Is(err, errLong):
		f.refuse("%s %d: %v", unit, f.line, err)
	case isSyntax:
		f.refuse("not JSON at byte %d, in %s %d: %v", syntax.ByteOffset, unit, f.line, syntax.Err)
	case !f.recognized && err.Error() == "not a JSON object":
		f.refuse("%v", err)
	default:
		return nil, fmt.Errorf("read %s after %s %d: %w", f.report.File, unit, f.line-1, err)
	}
	return f.finish()
}
