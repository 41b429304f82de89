package index

import (
	"fmt"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// arguments are values that are ready to be bound. Their texts are in memory of SQLite,
// which Go does not move.
type arguments struct {
	values []argument
	memory uintptr // covered by text
	text   []byte
}

// An argument is one value.
type argument struct {
	kind     int32 // the type as SQLite numbers it: null, integer or text
	number   int64
	from, to int // of the text
}

// clear removes all values and keeps the memory.
func (a *arguments) clear() { a.values, a.text = a.values[:0], a.text[:0] }

// free releases the memory.
func (a *arguments) free(d *database) { sqlite3.Xsqlite3_free(d.tls, a.memory) }

// reserve makes room for n bytes of text.
func (a *arguments) reserve(d *database, n int) error {
	if cap(a.text)-len(a.text) >= n {
		return nil
	}
	size := max(2*cap(a.text), len(a.text)+n, 512)
	memory := sqlite3.Xsqlite3_malloc64(d.tls, uint64(size))
	if memory == 0 {
		return d.failed(sqlite3.SQLITE_NOMEM)
	}
	text := libc.GoBytes(memory, size)[:len(a.text)]
	copy(text, a.text)
	a.free(d)
	a.memory, a.text = memory, text
	return nil
}

// put adds values as SQLite stores them. The empty text, a zero time, a zero ID and a zero
// position become null, a bool 0 or 1, a position its first part, and a word of the domain
// its text. put keeps no reference to a value, so that the caller's is not allocated.
func (a *arguments) put(d *database, values ...any) error {
	for _, v := range values {
		if err := a.putOne(d, v); err != nil {
			return err
		}
	}
	return nil
}

// putOne adds one value.
func (a *arguments) putOne(d *database, v any) error {
	switch v := v.(type) {
	case nil:
		a.values = append(a.values, argument{kind: sqlite3.SQLITE_NULL})
	case int64:
		a.number(v)
	case int:
		a.number(int64(v))
	case bool:
		a.number(oneIf(v))
	case events.Position:
		a.nonzero(place(v))
	case events.Revision:
		a.nonzero(int64(v))
	case string:
		return putText(a, d, v)
	case []byte:
		return putText(a, d, v)
	case domain.SessionID:
		return putShort(a, d, v)
	case domain.MessageID:
		return putShort(a, d, v)
	case domain.TurnID:
		return putShort(a, d, v)
	case domain.EventID:
		return putShort(a, d, v)
	case domain.RegistrationID:
		return putShort(a, d, v)
	case domain.ScopeID:
		return putShort(a, d, v)
	case domain.LayerID:
		return putShort(a, d, v)
	case domain.ProcessID:
		return putShort(a, d, v)
	case domain.PermissionID:
		return putShort(a, d, v)
	case time.Time:
		return putShort(a, d, columnTime(v))
	case domain.Fingerprint:
		return putText(a, d, v.String())
	case domain.Outcome:
		return putText(a, d, v.String())
	case domain.Interruption:
		return putText(a, d, v.String())
	case domain.Placement:
		return putText(a, d, v.String())
	case domain.Ref:
		return putText(a, d, v.String())
	default:
		return fmt.Errorf("argument %d has no column type", len(a.values)+1)
	}
	return nil
}

// number adds an integer.
func (a *arguments) number(n int64) {
	a.values = append(a.values, argument{kind: sqlite3.SQLITE_INTEGER, number: n})
}

// nonzero adds an integer, or null for 0.
func (a *arguments) nonzero(n int64) {
	if n == 0 {
		a.values = append(a.values, argument{kind: sqlite3.SQLITE_NULL})
		return
	}
	a.number(n)
}

// putText adds a text, or null for the empty one.
func putText[T string | []byte](a *arguments, d *database, v T) error {
	if err := a.reserve(d, len(v)); err != nil {
		return err
	}
	from := len(a.text)
	a.text = append(a.text, v...)
	a.added(from)
	return nil
}

// maxShortText bounds the texts of IDs and times.
const maxShortText = 64

// putShort adds the text of an ID or a time, or null for the empty one.
func putShort[V interface{ AppendText([]byte) ([]byte, error) }](a *arguments, d *database, v V) error {
	if err := a.reserve(d, maxShortText); err != nil {
		return err
	}
	from := len(a.text)
	var err error
	a.text, err = v.AppendText(a.text)
	a.added(from)
	return err
}

// added adds the end of the text as a value.
func (a *arguments) added(from int) {
	kind := int32(sqlite3.SQLITE_TEXT)
	if len(a.text) == from {
		kind = sqlite3.SQLITE_NULL
	}
	a.values = append(a.values, argument{kind: kind, from: from, to: len(a.text)})
}

// timeLayout is the form of a time in the index: UTC with microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// A columnTime is a time, whose text is that of the index.
type columnTime time.Time

// AppendText appends the time in timeLayout, and nothing for the zero time.
func (t columnTime) AppendText(b []byte) ([]byte, error) {
	if time.Time(t).IsZero() {
		return b, nil
	}
	return time.Time(t).UTC().AppendFormat(b, timeLayout), nil
}

// columnValues returns arguments as the texts and int64 numbers that put adds for them.
func columnValues(args []any) []any {
	all := make([]any, len(args))
	for i, v := range args {
		switch v := v.(type) {
		case int:
			all[i] = int64(v)
		case bool:
			all[i] = oneIf(v)
		case time.Time:
			all[i] = v.UTC().Format(timeLayout)
		case fmt.Stringer: // IDs and words of the domain
			all[i] = v.String()
		default:
			all[i] = v
		}
	}
	return all
}

// oneIf returns 1 for true and 0 for false.
func oneIf(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

// place returns the first part of a position, by which the index orders events.
func place(p events.Position) int64 {
	commit, _ := p.Parts()
	return int64(commit)
}
