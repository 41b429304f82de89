package jsonl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/settlement-ledger/ledger/events"
)

// A tailLines is the result of reading a file from its end.
type tailLines struct {
	size int64           // of the whole lines
	ids  map[string]bool // of the records behind a position, and some before it
}

const (
	chunkSize = 64 << 10
	headSize  = 512 // more than the first two members of a line take
	// maxLate is how many lines in a row may not be behind a position while
	// there are some before them that are: what was set aside and is published
	// late, and what lanes are ahead of each other.
	maxLate = 4096
)

// tail reads a file backwards until maxLate lines in a row are at or before
// position at.
func tail(file io.ReaderAt, size int64, at events.Position) (tailLines, error) {
	f := tailLines{ids: map[string]bool{}}
	ends := &lineEnds{file: file, from: size}
	end, ok, err := ends.previous()
	if err != nil {
		return tailLines{}, err
	}
	if !ok {
		return f, f.checkPrefix(file, size)
	}
	late := 0
	for f.size = end; ; {
		begin, more, err := ends.previous()
		if err != nil || !more {
			return f, err
		}
		id, position, err := readLineHead(file, begin, end)
		if err != nil {
			return tailLines{}, err
		}
		if late++; position.Compare(at) > 0 {
			late = 0
		}
		if late > maxLate && !at.IsZero() {
			return f, nil
		}
		f.ids[id] = true
		end = begin
	}
}

// checkPrefix returns an ErrForeign if the start of a file without a line end
// is not the start of a line.
func (tailLines) checkPrefix(file io.ReaderAt, size int64) error {
	const opening = `{"id":"evt_`
	b := make([]byte, min(size, int64(len(opening))))
	if _, err := file.ReadAt(b, 0); err != nil && err != io.EOF {
		return err
	}
	if !bytes.HasPrefix([]byte(opening), b) && len(bytes.Trim(b, "\x00")) > 0 {
		return fmt.Errorf("%w: it begins with %q", ErrForeign, b)
	}
	return nil
}

// readLineHead decodes the first two members of the line between two offsets.
func readLineHead(file io.ReaderAt, begin, end int64) (id string, at events.Position, err error) {
	b := make([]byte, min(end-begin, headSize))
	if _, err := file.ReadAt(b, begin); err != nil && err != io.EOF {
		return "", at, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	want := []json.Token{json.Delim('{'), "id", nil, "position", nil}
	for i := range want {
		got, err := d.Token()
		if text, ok := got.(string); err == nil && ok && want[i] == nil {
			want[i] = text
			continue
		}
		if err != nil || got != want[i] {
			return "", at, fmt.Errorf("%w: the line at byte %d begins with %.40q", ErrForeign, begin, b)
		}
	}
	if at, err = events.ParsePosition(want[4].(string)); err != nil {
		return "", at, fmt.Errorf("%w: the line at byte %d: %w", ErrForeign, begin, err)
	}
	return want[2].(string), at, nil
}

// A lineEnds iterates over the line ends of a file backwards, and then over
// the start of the file.
type lineEnds struct {
	file  io.ReaderAt
	chunk []byte // what is left to look through, of the bytes that begin at from
	from  int64
	begun bool // the beginning of the file was given
	found bool // an end of a line was found
}

// previous returns the offset after the previous line end, and finally 0. The
// boolean is false when there are no more.
func (e *lineEnds) previous() (int64, bool, error) {
	for {
		if at := bytes.LastIndexByte(e.chunk, '\n'); at >= 0 {
			e.chunk, e.found = e.chunk[:at], true
			return e.from + int64(at) + 1, true, nil
		}
		if e.from == 0 {
			more := !e.begun && e.found
			e.begun = true
			return 0, more, nil
		}
		size := min(e.from, chunkSize)
		e.from -= size
		e.chunk = make([]byte, size)
		if _, err := e.file.ReadAt(e.chunk, e.from); err != nil && err != io.EOF {
			return 0, false, err
		}
	}
}
