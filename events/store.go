package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// A Store keeps records for ever, in order. Package eventstest states and
// checks its laws. Whoever opened a Store closes it. All methods are safe for
// concurrent use.
//
// The iterators share one rule: an error comes with a zero Entry, once, last;
// cancellation yields context.Cause; leaving the loop frees everything. The
// bytes of an Entry belong to whoever received it.
type Store interface {
	// Append adds records to the end of a stream whose length is exactly
	// after. It adds all of them or none, and returns once they are durable.
	// It keeps no reference to what it is given. A stream of another length is
	// a *Conflict and changes nothing, unless the stream already holds these
	// same records right there: then it succeeds and changes nothing. Records
	// are the same if all their fields are. No records, a stream or a record
	// that is not valid is ErrBadRecord; one over the limit of the store is
	// ErrTooLarge; a closed store is ErrClosed. Any other error leaves it open
	// whether the records were added: appending the same again tells.
	Append(ctx context.Context, s Stream, after Revision, records ...Record) error

	// Read yields the entries of a stream that follow its first after ones,
	// in order, and stops at the end. A stream that was never appended to is
	// empty.
	Read(ctx context.Context, s Stream, after Revision) iter.Seq2[Entry, error]

	// ReadAll yields the entries of all streams that follow a position, in
	// the order of their positions, and stops at the end.
	ReadAll(ctx context.Context, after Position) iter.Seq2[Entry, error]

	// Follow yields what ReadAll yields and then waits for more, until its
	// context ends, the store is closed (ErrClosed) or the loop is left. It
	// misses nothing and repeats nothing. At most one Following may be given.
	Follow(ctx context.Context, after Position, options ...Following) iter.Seq2[Entry, error]
}

// Following says how to follow. The zero Following is what Follow does without.
type Following struct {
	// Filter says which entries are yielded. One that is not valid ends the
	// loop with ErrBadQuery.
	Filter Filter

	// CaughtUp, if not nil, is called on the goroutine of the loop each time
	// that everything appended before the call to Follow, or since the last
	// time, has been yielded or passed over, and before it waits for more. It is
	// given the position of the last entry that was, or the one that was
	// started from.
	CaughtUp func(Position)
}

// The errors of a Store. Callers match them with errors.Is.
var (
	ErrConflict    = errors.New("stream has another length")
	ErrClosed      = errors.New("store is closed")
	ErrInUse       = errors.New("store is in use")
	ErrNewerFormat = errors.New("store has a newer format")
	ErrNotAStore   = errors.New("not a store")
	ErrTooLarge    = errors.New("record is too large")
	ErrBadRecord   = errors.New("record is not valid")
	ErrDamaged     = errors.New("record is damaged")
)

// ErrNotTried says that a [Writer] did not try to add drafts to its stream, as
// the context had ended or the outcome of an earlier append is still open. They
// are not on record. It is no error of a Store.
var ErrNotTried = errors.New("append was not tried")

// Refused reports whether an error of [Store.Append], [Ledger.Append] or
// [Writer.Append] says that nothing was added. Any other error leaves the outcome
// of the append open.
func Refused(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrBadRecord) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, ErrClosed) || errors.Is(err, ErrNotTried)
}

// A Conflict says that a stream did not have the length that an append named.
// It does not say which length it has. It is an ErrConflict.
type Conflict struct {
	Stream Stream
	After  Revision
}

// Error names the stream and the length.
func (c *Conflict) Error() string {
	return fmt.Sprintf("append to %s after revision %d: %v", c.Stream, c.After, ErrConflict)
}

// Is reports whether target is ErrConflict.
func (c *Conflict) Is(target error) bool { return target == ErrConflict }

// A DamagedRecord says where a record stands that cannot be read. Reading can go on
// behind it, from its position. It is an ErrDamaged. A store whose positions can
// be counted need not say.
type DamagedRecord struct {
	Position Position
	Err      error // what is wrong, and where
}

// Error says what is wrong.
func (d *DamagedRecord) Error() string { return d.Err.Error() }

// Unwrap returns what is wrong.
func (d *DamagedRecord) Unwrap() error { return d.Err }

// Is reports whether target is ErrDamaged.
func (d *DamagedRecord) Is(target error) bool { return target == ErrDamaged }

// A Stream names a sequence of records: a category, a hyphen and an ID. It is
// EventStoreDB's category convention. The zero Stream is not valid.
type Stream string

// The categories of streams.
const (
	ProcessCategory = "process"
	LayerCategory   = "layer"
	SessionCategory = "session"
)

// ProcessStream returns the stream of a process.
func ProcessStream(id domain.ProcessID) Stream { return Stream(ProcessCategory + "-" + id.String()) }

// LayerStream returns the stream of a layer.
func LayerStream(id domain.LayerID) Stream { return Stream(LayerCategory + "-" + id.String()) }

// SessionStream returns the stream of a session.
func SessionStream(id domain.SessionID) Stream { return Stream(SessionCategory + "-" + id.String()) }

// Category returns what stands before the first hyphen.
func (s Stream) Category() string {
	category, _, _ := strings.Cut(string(s), "-")
	return category
}

// Session returns the session whose stream s is, and whether there is one.
func (s Stream) Session() (domain.SessionID, bool) {
	return streamID[domain.SessionID](s, SessionCategory)
}

// Layer returns the layer whose stream s is, and whether there is one.
func (s Stream) Layer() (domain.LayerID, bool) { return streamID[domain.LayerID](s, LayerCategory) }

// Process returns the process whose stream s is, and whether there is one.
func (s Stream) Process() (domain.ProcessID, bool) {
	return streamID[domain.ProcessID](s, ProcessCategory)
}

func streamID[T any, P interface {
	*T
	UnmarshalText([]byte) error
}](s Stream, category string) (id T, ok bool) {
	rest, ok := strings.CutPrefix(string(s), category+"-")
	if !ok || rest == "" {
		return id, false
	}
	return id, P(&id).UnmarshalText([]byte(rest)) == nil
}

// A Revision is the length of a stream. An empty stream has revision 0, and
// the entry that made a stream n long has revision n.
type Revision uint64

// A Position is a place in the order of all records of a store. It can be
// compared, printed and parsed, and never computed with. Positions of one
// store only increase. The zero Position stands before everything.
type Position struct{ commit, prepare uint64 }

// NewPosition is for implementations of Store, whose order has these two
// parts, the first being the greater; one that has a single sequence gives it
// twice.
func NewPosition(commit, prepare uint64) Position { return Position{commit, prepare} }

// Parts returns what NewPosition was given, for implementations of Store.
func (p Position) Parts() (commit, prepare uint64) { return p.commit, p.prepare }

// Compare returns -1, 0 or 1 as p stands before, at or behind q.
func (p Position) Compare(q Position) int {
	switch {
	case p == q:
		return 0
	case p.commit < q.commit || p.commit == q.commit && p.prepare < q.prepare:
		return -1
	}
	return 1
}

// IsZero reports whether p stands before everything.
func (p Position) IsZero() bool { return p == Position{} }

// String returns the commit part, and the prepare part behind a slash where it
// is another. [ParsePosition] is its inverse.
func (p Position) String() string {
	text := strconv.FormatUint(p.commit, 10)
	if p.prepare != p.commit {
		text += "/" + strconv.FormatUint(p.prepare, 10)
	}
	return text
}

// MarshalText gives what String gives.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText accepts what ParsePosition accepts.
func (p *Position) UnmarshalText(text []byte) error {
	parsed, err := ParsePosition(string(text))
	if err == nil {
		*p = parsed
	}
	return err
}

// ParsePosition is the inverse of [Position.String].
func ParsePosition(text string) (Position, error) {
	first, second, two := strings.Cut(text, "/")
	commit, err := strconv.ParseUint(first, 10, 64)
	prepare := commit
	if err == nil && two {
		prepare, err = strconv.ParseUint(second, 10, 64)
	}
	if err != nil {
		return Position{}, fmt.Errorf("parse position %q: %w", text, err)
	}
	return Position{commit, prepare}, nil
}

// A Record is one event as it is kept: bytes and what is needed to find and
// read them. Data and Metadata are JSON documents; Metadata may be empty.
type Record struct {
	ID       domain.EventID
	Kind     string    // such as CallSettled; never empty
	Version  int       // of the kind's wire form, from 1
	Time     time.Time // when it happened, by the clock of who recorded it: UTC, to the microsecond
	Data     []byte
	Metadata []byte
}

// Valid returns an ErrBadRecord that says what is wrong with r, or nil.
func (r Record) Valid() error {
	switch {
	case r.ID.IsZero():
		return fmt.Errorf("%w: it has no ID", ErrBadRecord)
	case r.Kind == "":
		return fmt.Errorf("%w: %s has no kind", ErrBadRecord, r.ID)
	case r.Version < 1 || r.Version > 1<<16-1:
		return fmt.Errorf("%w: %s %s has version %d, not 1 to 65535", ErrBadRecord, r.Kind, r.ID, r.Version)
	case r.Time.Location() != time.UTC || !r.Time.Equal(r.Time.Truncate(time.Microsecond)):
		return fmt.Errorf("%w: %s %s has a time that is not UTC to the microsecond", ErrBadRecord, r.Kind, r.ID)
	}
	return nil
}

// An Entry is a record in its place.
type Entry struct {
	Record
	Stream   Stream
	Revision Revision // the length of the stream with this record
	Position Position
}
