package storefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// fileFormat and fileVersion identify a file in its first line.
const (
	fileFormat  = "settlement-ledger store"
	fileVersion = 1
)

// chunkBytes is the number of bytes of an output in one line.
const chunkBytes = 192 << 10

// maxLine bounds a line. A record has at most 64 MiB, which are 86 MiB in base64.
const maxLine = 192 << 20

// timeLayout is the form of times: UTC to the microsecond.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// A heading is the first line.
type heading struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	Store   *domain.EventID `json:"store"`   // the first event of the log, which identifies it; null: the log is empty
	Through events.Position `json:"through"` // the position of the last record in the store that was exported
}

// A line is any line. The fields of its kind are set.
type line struct {
	heading

	Stream         *string         `json:"stream"`
	StreamBase64   []byte          `json:"stream_base64"`
	Revision       events.Revision `json:"revision"`
	ID             domain.EventID  `json:"id"`
	Time           string          `json:"time"`
	TimeUS         *int64          `json:"time_us"`
	Kind           *string         `json:"kind"`
	KindBase64     []byte          `json:"kind_base64"`
	Data           json.RawMessage `json:"data"`
	DataBase64     []byte          `json:"data_base64"`
	Metadata       json.RawMessage `json:"metadata"`
	MetadataBase64 []byte          `json:"metadata_base64"`

	Output  *domain.Retained `json:"output"`  // the bytes of the output follow in chunks
	Missing *domain.Retained `json:"missing"` // an output that the export did not find
	Chunk   []byte           `json:"chunk"`   // the next bytes of the output
	End     *ending          `json:"end"`
}

// An ending is the value of the last line.
type ending struct {
	Records     uint64 `json:"records"`
	Streams     uint64 `json:"streams"`
	Outputs     uint64 `json:"outputs"`
	OutputBytes int64  `json:"output_bytes"`
	Missing     uint64 `json:"missing"`
	Digest      string `json:"digest"` // of all records, as docs/formats.md specifies it
}

// A chain computes the sum of each line: the beginning of the SHA-256 over the SHA-256 of the
// line before and the bytes of the line before its sum.
type chain [sha256.Size]byte

// sumDigits is the number of hexadecimal digits of a sum.
const sumDigits = 16

// next adds the bytes of a line and returns its sum.
func (c *chain) next(body []byte) string {
	h := sha256.New()
	_, _ = h.Write(c[:])
	_, _ = h.Write(body)
	h.Sum(c[:0])
	return hex.EncodeToString(c[:sumDigits/2])
}

// The texts around the sum at the end of a line.
const (
	beforeSum = `,"sum":"`
	afterSum  = `"}`
)

// seal completes a line that lacks its closing brace, and adds it to the chain.
func (c *chain) seal(body []byte) []byte {
	sum := c.next(body)
	body = append(body, beforeSum...)
	body = append(body, sum...)
	return append(body, afterSum+"\n"...)
}

// check reports whether a line without its line end has the sum that follows from the lines
// before, and adds it to the chain.
func (c *chain) check(text []byte) bool {
	at := len(text) - len(beforeSum) - sumDigits - len(afterSum)
	if at < 0 {
		return false
	}
	body, tail := text[:at], text[at:]
	return string(tail) == beforeSum+c.next(body)+afterSum
}

// object returns the JSON of v without its closing brace.
func object(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return text[:len(text)-1], nil
}

// appendRecord appends the line of a record, without its closing brace.
func appendRecord(b []byte, e events.Entry) []byte {
	b = appendText(append(b, '{'), "stream", string(e.Stream))
	b = append(b, `,"revision":`...)
	b = strconv.AppendUint(b, uint64(e.Revision), 10)
	b = append(b, `,"id":"`...)
	b = append(b, e.ID.String()...)
	if y := e.Time.Year(); y >= 0 && y <= 9999 {
		b = append(b, `","time":"`...)
		b = e.Time.AppendFormat(b, timeLayout)
		b = append(b, `",`...)
	} else {
		b = append(b, `","time_us":`...)
		b = strconv.AppendInt(b, e.Time.UnixMicro(), 10)
		b = append(b, ',')
	}
	b = appendText(b, "kind", e.Kind)
	b = append(b, `,"version":`...)
	b = strconv.AppendInt(b, int64(e.Version), 10)
	b = appendDocument(append(b, ','), "data", e.Data)
	if len(e.Metadata) > 0 {
		b = appendDocument(append(b, ','), "metadata", e.Metadata)
	}
	return b
}

// appendText appends a member with a text: a JSON string, or base64 if it is not UTF-8.
func appendText(b []byte, name, text string) []byte {
	if !utf8.ValidString(text) {
		return appendBase64(b, name, []byte(text))
	}
	quoted, err := json.Marshal(text)
	if err != nil { // encoding a string never fails
		panic(err)
	}
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":`...)
	return append(b, quoted...)
}

// appendDocument appends a member with a document: as it is, or base64 if it is no JSON value
// that a line can have.
func appendDocument(b []byte, name string, data []byte) []byte {
	if !embeddable(data) {
		return appendBase64(b, name, data)
	}
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":`...)
	return append(b, data...)
}

// maxShallow is the largest document that cannot have the nesting that the decoder refuses.
const maxShallow = 16 << 10

// embeddable reports whether a document is one JSON value in UTF-8, without line ends and
// without white space around it, so that the decoder returns the same bytes. A document that
// is deeply nested is not.
func embeddable(data []byte) bool {
	if len(data) == 0 || bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 || !utf8.Valid(data) || !json.Valid(data) {
		return false
	}
	if white(data[0]) || white(data[len(data)-1]) {
		return false
	}
	return len(data) <= maxShallow || json.Valid(append(append([]byte{'['}, data...), ']'))
}

// white reports whether a byte is white space in JSON.
func white(c byte) bool { return c == ' ' || c == '\t' }

// appendBase64 appends a member whose name says that its value is in base64.
func appendBase64(b []byte, name string, data []byte) []byte {
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `_base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

// record returns the record of a line, and false if the line has none.
func (l *line) record() (events.Entry, bool, error) {
	e := events.Entry{Revision: l.Revision}
	switch {
	case l.Stream != nil:
		e.Stream = events.Stream(*l.Stream)
	case l.StreamBase64 != nil:
		e.Stream = events.Stream(l.StreamBase64)
	default:
		return e, false, nil
	}
	e.ID, e.Version, e.Kind = l.ID, l.Version, string(l.KindBase64)
	if l.Kind != nil {
		e.Kind = *l.Kind
	}
	if l.TimeUS != nil {
		e.Time = time.UnixMicro(*l.TimeUS).UTC()
	} else if at, err := time.Parse(timeLayout, l.Time); err != nil {
		return e, true, fmt.Errorf("%w: its time is %q", events.ErrBadRecord, l.Time)
	} else {
		e.Time = at
	}
	if e.Data = l.Data; e.Data == nil {
		e.Data = l.DataBase64
	}
	if e.Metadata = l.Metadata; e.Metadata == nil {
		e.Metadata = l.MetadataBase64
	}
	return e, true, e.Valid()
}
