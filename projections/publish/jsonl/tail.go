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
	// size is the number of bytes in whole lines.
	size int64
	// ids has the IDs of all records after the consumer's position, and of some
	// before it.
	ids map[string]bool
}

const (
	// chunkSize is the number of bytes that lineEnds reads at once.
	chunkSize = 64 << 10
	// headSize is more than the first two members of a line take.
	headSize = 512
	// maxLate is the number of lines in a row at or before the consumer's position
	// after which tail assumes that all earlier lines are too. Lines are not in the
	// order of positions: the workers of a relay write different streams at different
	// speeds, and a retried dead letter is written late.
	maxLate = 4096
)

// tail reads the lines of a file backwards, until maxLate lines in a row have a
// position not after the given one. For the zero position it reads the whole file. If
// a line does not have the form that this package writes, the error is an ErrForeign.
// The cost depends on the number of lines after the position, not on the size of the
// file.
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

// checkPrefix returns an ErrForeign if a file without a line end does not begin as a
// line does. Such a file holds at most a partial line, or zeros that a power cut
// left.
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

// readLineHead decodes the ID and the position of the line between two offsets. If
// the line does not begin with an ID and a position, the error is an ErrForeign with
// the offset.
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

// A lineEnds iterates over the line ends of a file backwards, and at last over the
// start of the file. It holds one chunk in memory.
type lineEnds struct {
	file io.ReaderAt
	// chunk has the bytes of the file, beginning at the offset from, that previous has
	// not searched yet.
	chunk []byte
	from  int64
	// begun reports that previous has returned the start of the file.
	begun bool
	// found reports that the file has a line end.
	found bool
}

// previous returns the offset after the previous line end, and at last 0, the start
// of the file. The boolean is false after that, and always for a file without a line
// end.
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
