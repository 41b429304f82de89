package index

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// An eventPoint is an event with its place in the log.
type eventPoint struct {
	Event    domain.EventID
	Position events.Position
	Stream   events.Stream
	Revision events.Revision
}

// A progress is the row of index_state.
type progress struct {
	schema int64
	texts  bool // the index has full text
	events int64
	first  eventPoint // without Stream and Revision
	last   eventPoint
	time   string // of last
}

const readProgress = "SELECT schema_version, full_text, events, first_event, first_position, last_event, last_position, last_stream, last_revision, last_time FROM index_state WHERE id = 1"

// scan reads the row of readProgress.
func (p *progress) scan(row []driver.Value) error {
	c := &columnReader{row: row}
	p.schema, p.texts, p.events = c.integer(), c.flag(), c.integer()
	c.text(&p.first.Event)
	p.first.Position = c.exact()
	c.text(&p.last.Event)
	p.last.Position = c.exact()
	p.last.Stream, p.last.Revision, p.time = events.Stream(c.string()), events.Revision(c.integer()), c.string()
	return c.err
}

// exact parses the next column as a position with both parts; null is the zero position.
func (c *columnReader) exact() (p events.Position) {
	if text := c.string(); text != "" {
		c.fail(p.UnmarshalText([]byte(text)))
	}
	return p
}

// exactPosition returns the text of a position, or the empty text of the zero one.
func exactPosition(p events.Position) string {
	if p.IsZero() {
		return ""
	}
	return p.String()
}

// errUnfit: the index does not belong to this log or this program, and is replaced.
var errUnfit = errors.New("index does not fit")

// otherSchema returns the errUnfit of an index whose schema has another version.
func otherSchema(version int64) error {
	return fmt.Errorf("%w: its schema has version %d, and this program writes version %d", errUnfit, version, schemaVersion)
}

// check returns nil if the index continues this log: it has the schema of this program,
// and the log has the first and the last event of the index at their places. Otherwise it
// returns an errUnfit with the reason, or the error of the log. It reads at most two
// events.
func (p *progress) check(ctx context.Context, l *events.Ledger) error {
	if p.schema != schemaVersion {
		return otherSchema(p.schema)
	}
	if p.events == 0 {
		return nil
	}
	for e, err := range l.Scan(ctx, events.Query{}) {
		if err != nil {
			return err
		}
		if e.ID != p.first.Event || e.Position != p.first.Position {
			return fmt.Errorf("%w: it begins with %s, and the log with %s", errUnfit, p.first.Event, e.ID)
		}
		break
	}
	for e, err := range l.Read(ctx, p.last.Stream, p.last.Revision-1) {
		if err != nil {
			return err
		}
		if e.ID == p.last.Event && e.Position == p.last.Position {
			return nil
		}
		break
	}
	return fmt.Errorf("%w: the log does not have its last event, %s at %s", errUnfit, p.last.Event, p.last.Position)
}

// learned returns an errUnfit if the index skipped an event of a kind that this program
// knows.
func learned(d *database) error {
	return d.query(func(row []driver.Value) error {
		c := &columnReader{row: row}
		kind, version, at := c.string(), int(c.integer()), c.integer()
		if events.KnowsVersion(kind, version) {
			return fmt.Errorf("%w: it skipped %s of version %d at position %d, which this program knows", errUnfit, kind, version, at)
		}
		return nil
	}, "SELECT kind, version, min(position) FROM unknown_events GROUP BY kind, version")
}
