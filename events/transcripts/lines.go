package transcripts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the greatest length of a line in bytes. A longer line is refused.
const maxLine = 256 << 20

// A textLine is one line of a file without its line end and surrounding white space.
type textLine struct {
	// text is valid until the next line is read. Of a long line it is the beginning.
	text []byte
	// ended reports that the line has a line end. Only the last line of the file may
	// lack it.
	ended bool
	// long reports that the line exceeds the limit.
	long bool
}

// A lineScanner reads the lines of a file one at a time and holds at most limit bytes
// of a line. bufio.Scanner would stop at a longer line; a lineScanner skips the rest
// of that line.
type lineScanner struct {
	r     *bufio.Reader
	limit int
	buf   []byte
	// first reports that no line was read. The first line may begin with a byte order
	// mark.
	first bool
}

// newLineScanner returns a scanner that cuts lines at limit bytes.
func newLineScanner(r io.Reader, limit int) *lineScanner {
	return &lineScanner{r: bufio.NewReaderSize(r, 64<<10), limit: limit, first: true}
}

// next returns the next line. After the last line it returns io.EOF. An error of the
// reader is returned unchanged.
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
