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

// A Store stores records permanently and in order. Package eventstest checks
// its laws. The caller that opened a Store closes it. All methods are safe for
// concurrent use.
//
// The iterators share these rules. An error comes with a zero Entry, once, as
// the last value. Cancellation yields context.Cause. Leaving the loop releases
// its resources. The bytes of an Entry belong to the caller.
type Store interface {
	// Append adds records to the end of a stream. The argument after is the length that
	// the stream must have. Append adds all records or none, and returns once they are
	// durable. It keeps no reference to its arguments.
	//
	// If the stream has another length, Append returns a *Conflict and changes nothing. A
	// repeated append is an exception: if the stream already has the same records, equal
	// in all fields, after that revision, Append succeeds and changes nothing.
	//
	// Append returns ErrBadRecord for an empty list, an invalid stream or an invalid
	// record, ErrTooLarge for a record over the limit of the store, and ErrClosed from a
	// closed store. After any other error the outcome is unknown, and the caller may
	// retry the same append.
	Append(ctx context.Context, s Stream, after Revision, records ...Record) error

	// Read yields the entries of a stream after a revision, in order, up to the
	// end. A stream without records is empty.
	Read(ctx context.Context, s Stream, after Revision) iter.Seq2[Entry, error]

	// ReadAll yields the entries of all streams after a position, in the order
	// of their positions, up to the end.
	ReadAll(ctx context.Context, after Position) iter.Seq2[Entry, error]

	// Follow yields the entries of ReadAll and then waits for later ones, until
	// ctx ends, the store is closed (ErrClosed) or the loop is left. It yields
	// every entry exactly once. The caller may pass at most one Following.
	Follow(ctx context.Context, after Position, options ...Following) iter.Seq2[Entry, error]
}

// Following is the optional configuration of Follow. The zero Following is the
// default.
type Following struct {
	// Filter selects the entries to yield. An invalid filter ends the loop with
	// ErrBadQuery.
	Filter Filter

	// CaughtUp, if not nil, is called on the goroutine of the loop each time the
	// follower has yielded or skipped every pending entry, before it waits. Its
	// argument is the position of the last such entry, or the start position.
	CaughtUp func(Position)
}

// The errors of a Store. Callers match them with errors.Is.
var (
	// ErrConflict reports that the stream does not have the length that the append
	// named. The error is a *Conflict.
	ErrConflict = errors.New("stream has another length")
	// ErrClosed reports a call of a closed store, or a store closed during a call.
	ErrClosed = errors.New("store is closed")
	// ErrInUse reports that another process, or another backup, uses the store.
	ErrInUse = errors.New("store is in use")
	// ErrNewerFormat reports a store in a format that this program does not know yet.
	ErrNewerFormat = errors.New("store has a newer format")
	// ErrNotAStore reports a folder that holds something other than a store.
	ErrNotAStore = errors.New("not a store")
	// ErrTooLarge reports a record or an append over the size limit of the store.
	ErrTooLarge = errors.New("record is too large")
	// ErrBadRecord reports an invalid stream, an invalid record or an append
	// without records.
	ErrBadRecord = errors.New("record is not valid")
	// ErrDamaged reports a record that cannot be read or decoded.
	ErrDamaged = errors.New("record is damaged")
)

// ErrNotTried reports that a [Writer] did not append drafts, because the
// context had ended or the outcome of an earlier append is still unknown. The
// drafts are not stored. A Store does not return it.
var ErrNotTried = errors.New("append was not tried")

// Refused reports whether an error of [Store.Append], [Ledger.Append] or
// [Writer.Append] guarantees that nothing was added. After any other error the
// outcome of the append is unknown.
func Refused(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrBadRecord) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, ErrClosed) || errors.Is(err, ErrNotTried)
}

// A Conflict reports that a stream does not have the length that an append
// named. It does not contain the actual length. It matches ErrConflict.
type Conflict struct {
	Stream Stream
	After  Revision // the length that the append named
}

// Error names the stream and the revision.
func (c *Conflict) Error() string {
	return fmt.Sprintf("append to %s after revision %d: %v", c.Stream, c.After, ErrConflict)
}

// Is reports whether target is ErrConflict.
func (c *Conflict) Is(target error) bool { return target == ErrConflict }

// A DamagedRecord reports a record that cannot be read, with its position, so
// that the caller can continue after it. It matches ErrDamaged. A store whose
// positions are consecutive may return a plain ErrDamaged instead, because the
// caller knows the next position.
type DamagedRecord struct {
	Position Position
	Err      error // the cause, with the location of the record
}

// Error returns the text of Err.
func (d *DamagedRecord) Error() string { return d.Err.Error() }

// Unwrap returns Err.
func (d *DamagedRecord) Unwrap() error { return d.Err }

// Is reports whether target is ErrDamaged.
func (d *DamagedRecord) Is(target error) bool { return target == ErrDamaged }

// A Stream names a sequence of records: a category, a hyphen and an ID, after
// EventStoreDB's convention. The zero Stream is not valid.
type Stream string

// The categories of streams.
const (
	ProcessCategory = "process" // one run of a program: its start, lease and end
	LayerCategory   = "layer"   // the registrations of one layer
	SessionCategory = "session" // the prompts, turns, replies and calls of one session
)

// ProcessStream returns the stream of a process.
func ProcessStream(id domain.ProcessID) Stream { return Stream(ProcessCategory + "-" + id.String()) }

// LayerStream returns the stream of a layer.
func LayerStream(id domain.LayerID) Stream { return Stream(LayerCategory + "-" + id.String()) }

// SessionStream returns the stream of a session.
func SessionStream(id domain.SessionID) Stream { return Stream(SessionCategory + "-" + id.String()) }

// Category returns the text before the first hyphen.
func (s Stream) Category() string {
	category, _, _ := strings.Cut(string(s), "-")
	return category
}

// Session returns the session that s belongs to, and whether s is a session's
// stream.
func (s Stream) Session() (domain.SessionID, bool) {
	return streamID[domain.SessionID](s, SessionCategory)
}

// Layer returns the layer that s belongs to, and whether s is a layer's
// stream.
func (s Stream) Layer() (domain.LayerID, bool) { return streamID[domain.LayerID](s, LayerCategory) }

// Process returns the process that s belongs to, and whether s is a process's
// stream.
func (s Stream) Process() (domain.ProcessID, bool) {
	return streamID[domain.ProcessID](s, ProcessCategory)
}

// streamID parses the ID after the category of a stream.
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

// A Revision is the length of a stream: 0 for an empty stream, and n for the
// stream that ends with its nth entry.
type Revision uint64

// A Position is the place of a record in the order of all records of a store.
// Positions increase from record to record. Callers compare, print and parse
// them, and never compute with them. The zero Position is before the first
// record.
type Position struct{ commit, prepare uint64 }

// NewPosition returns a position with two parts. Only implementations of Store
// call it. Positions are ordered by commit first, and then by prepare. A store
// with one sequence passes it as both parts.
func NewPosition(commit, prepare uint64) Position { return Position{commit, prepare} }

// Parts returns the two parts that were passed to NewPosition. Only
// implementations of Store call it.
func (p Position) Parts() (commit, prepare uint64) { return p.commit, p.prepare }

// Compare returns -1, 0 or 1 if p is before, equal to or after q.
func (p Position) Compare(q Position) int {
	switch {
	case p == q:
		return 0
	case p.commit < q.commit || p.commit == q.commit && p.prepare < q.prepare:
		return -1
	}
	return 1
}

// IsZero reports whether p is before the first record.
func (p Position) IsZero() bool { return p == Position{} }

// String returns the commit part and, if it differs, a slash and the prepare
// part. [ParsePosition] is its inverse.
func (p Position) String() string {
	text := strconv.FormatUint(p.commit, 10)
	if p.prepare != p.commit {
		text += "/" + strconv.FormatUint(p.prepare, 10)
	}
	return text
}

// MarshalText returns the text of String.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText accepts the texts of ParsePosition. It leaves p unchanged when
// it returns an error.
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

// A Record is an event as stored. Data and Metadata are JSON documents;
// Metadata may be empty.
type Record struct {
	ID       domain.EventID
	Kind     string    // such as CallSettled; never empty
	Version  int       // of the kind's wire form, from 1
	Time     time.Time // when the event happened, by the recording process: UTC, to the microsecond
	Data     []byte
	Metadata []byte
}

// Valid returns an ErrBadRecord with the reason, or nil if r is valid.
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

// An Entry is a record with its stream, revision and position.
type Entry struct {
	Record
	Stream   Stream
	Revision Revision // the length of the stream up to this record
	Position Position
}
