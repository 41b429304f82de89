package transcripts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the length in bytes from which a line is refused.
const maxLine = 256 << 20

// A textLine is one line of a file without its line end.
type textLine struct {
	text  []byte // valid until the next line is read
	ended bool   // by a line end, not by the end of the file
	long  bool   // longer than the limit: text is only its beginning
}

// A lineScanner reads the lines of a file in memory of one line.
type lineScanner struct {
	r     *bufio.Reader
	limit int
	buf   []byte
	first bool
}

// newLineScanner returns a scanner that cuts lines at limit bytes.
func newLineScanner(r io.Reader, limit int) *lineScanner {
	return &lineScanner{r: bufio.NewReaderSize(r, 64<<10), limit: limit, first: true}
}

// next returns the next line, and io.EOF after the last.
func (l *lineScanner) next() (textLine, error) {
	l.buf = l.buf[:0]
	var next textLine
	for {
		piece, err := l.r.ReadSlice('\n')
		if room := l.limit - len(l.buf); len(piece) > room {
			next.long, piece = true, piece[:room]
		}
		l.buf = append(l.buf, piece...)
		switch {
		case err == nil:
			next.ended = true
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case !errors.Is(err, io.EOF):
			return textLine{}, err
		case len(l.buf) == 0:
			return textLine{}, io.EOF
		}
		break
	}
	next.text = l.buf
	if l.first {
		next.text, l.first = bytes.TrimPrefix(next.text, []byte("\uFEFF")), false
	}
	next.text = bytes.TrimSpace(next.text)
	return next, nil
}
