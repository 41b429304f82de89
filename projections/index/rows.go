package index

import (
	"database/sql/driver"
	"encoding"
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// A callRow is a row of the table calls.
type callRow struct {
	calls.Call
	id     int64
	stored bool // the database has a row of the call
	// inputBytes and shownBytes are the sizes of the whole input and of the whole text that
	// the model reads.
	inputBytes, shownBytes int64
	dirty                  bool // that row is not current
}

// callColumns are the columns of a callRow, in the order of put and of scan.
var callColumns = []string{
	"id", "session", "message", "call", "turn", "parent", "tool", "title", "agent", "location", "imported",
	"state", "outcome", "began", "interruption", "input", "input_complete", "shown", "error", "detail",
	"registration", "layer", "fingerprint", "effective_registration", "agrees", "changed_by", "rule_action", "rule_resource", "rule_source", "process",
	"asked_time", "asked_position", "asked_revision", "asked_event",
	"started_time", "started_position", "started_revision", "started_event",
	"settled_time", "settled_position", "settled_revision", "settled_event",
	"ran_ms", "waited_ms", "requests", "late_results", "input_bytes", "shown_bytes",
}

// put adds the columns of the row to arguments.
func (r *callRow) put(d *database, to *arguments) error {
	s, input := &r.Settlement, string(r.Input)
	if r.Input == nil {
		input = r.InputPreview
	}
	return to.put(d,
		r.id, r.Session, r.Message, string(r.ID), r.Turn, string(r.Parent), r.Tool, r.Title, string(r.Agent), r.Location, r.Imported,
		string(r.State), s.Outcome, s.Began, s.Interruption, input, r.InputPreview == "", r.Preview, s.Text, s.Detail,
		r.Offered.Registration, r.Offered.Layer, r.Offered.Fingerprint, s.Effective.Registration, s.Agrees, s.ChangedBy, s.Rule.Action, s.Rule.Resource, s.Rule.Source, r.Process,
		r.Asked, r.AskedAt.Position, r.AskedAt.Revision, r.AskedAt.Event,
		r.Started, r.StartedAt.Position, r.StartedAt.Revision, r.StartedAt.Event,
		r.Call.Settled, r.SettledAt.Position, r.SettledAt.Revision, r.SettledAt.Event,
		s.RanMS, r.WaitedMS, r.Requests, r.Late, r.inputBytes, r.shownBytes,
	)
}

// scan is the inverse of put, as far as put and the fold read the fields.
func (r *callRow) scan(row []driver.Value) error {
	c := &columnReader{row: row}
	s := &r.Settlement
	r.id = c.integer()
	c.text(&r.Session, &r.Message)
	r.ID = domain.CallID(c.string())
	c.text(&r.Turn)
	r.Parent, r.Tool, r.Title = domain.CallID(c.string()), c.string(), c.string()
	r.Agent, r.Location, r.Imported = domain.AgentID(c.string()), c.string(), c.flag()
	r.State = calls.Stage(c.string())
	c.text(&s.Outcome)
	s.Began = c.flag()
	c.text(&s.Interruption)
	if input := c.string(); c.flag() && input != "" {
		r.Input = []byte(input)
	} else {
		r.InputPreview = input
	}
	r.Preview, s.Text, s.Detail = c.string(), c.string(), c.string()
	c.text(&r.Offered.Registration, &r.Offered.Layer, &r.Offered.Fingerprint, &s.Effective.Registration)
	s.Agrees = c.flag()
	c.text(&s.ChangedBy)
	s.Rule.Action, s.Rule.Resource, s.Rule.Source = c.string(), c.string(), c.string()
	c.text(&r.Process)
	for _, stage := range []struct {
		time *time.Time
		at   *calls.Place
	}{{&r.Asked, &r.AskedAt}, {&r.Started, &r.StartedAt}, {&r.Call.Settled, &r.SettledAt}} {
		*stage.time = c.time()
		stage.at.Position, stage.at.Revision = c.position(), events.Revision(c.integer())
		c.text(&stage.at.Event)
	}
	r.SettledBy = r.SettledAt.Event
	s.RanMS, r.WaitedMS, r.Requests, r.Late = c.integer(), c.integer(), int(c.integer()), int(c.integer())
	r.inputBytes, r.shownBytes = c.integer(), c.integer()
	r.stored = true
	return c.err
}

// A sessionRow is a row of the table sessions.
type sessionRow struct {
	calls.Session
	number           int64
	openedLocation   string
	parentMessage    domain.MessageID
	parentCall       domain.CallID
	versionControl   events.VersionControl // of the opening
	openedPosition   events.Position
	lastPosition     events.Position
	turns            int64
	tokens           events.Tokens
	providerFailures int64
	unknownEvents    int64
	stored           bool // the database has a row of the session
	dirty            bool // that row is not current
	// known reports that every call, message and turn of the session which the database has is
	// in the cache, so that none has to be looked up.
	known bool
}

// sessionColumns are the columns of a sessionRow, in the order of put and of scan.
var sessionColumns = []string{
	"session", "number", "agent", "location", "opened_location", "model", "parent", "parent_message", "parent_call", "origin", "origin_format", "origin_source",
	"vcs", "vcs_commit", "vcs_branch", "vcs_state", "opened_time", "opened_position", "last_time", "last_position", "revision", "title", "prompts", "turns", "replies", "calls", "open_calls", "failed_calls",
	"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "provider_failures", "unknown_events", "interrupted", "closed",
}

// put adds the columns of the row to arguments.
func (r *sessionRow) put(d *database, to *arguments) error {
	return to.put(d,
		r.ID, r.number, string(r.Agent), r.Location, r.openedLocation, r.Model, r.Parent, r.parentMessage, string(r.parentCall), string(r.Origin.Kind), r.Origin.Format, r.Origin.Source,
		r.versionControl.System, r.versionControl.Commit, r.versionControl.Branch, string(r.versionControl.State), r.Opened, r.openedPosition, r.LastEvent, r.lastPosition, r.Revision, r.Title, r.Prompts, r.turns, r.Replies, r.Calls, r.Open, r.Failed,
		r.tokens.Input, r.tokens.Output, r.tokens.CacheRead, r.tokens.CacheWrite, r.providerFailures, r.unknownEvents, r.Interrupted, r.Closed,
	)
}

// scan is the inverse of put.
func (r *sessionRow) scan(row []driver.Value) error {
	c := &columnReader{row: row}
	c.text(&r.ID)
	r.number, r.Agent, r.Location, r.openedLocation, r.Model = c.integer(), domain.AgentID(c.string()), c.string(), c.string(), c.string()
	c.text(&r.Parent, &r.parentMessage)
	r.parentCall = domain.CallID(c.string())
	r.Origin = events.Origin{Kind: events.OriginKind(c.string()), Format: c.string(), Source: c.string()}
	r.versionControl = events.VersionControl{System: c.string(), Commit: c.string(), Branch: c.string(), State: events.CopyState(c.string())}
	r.Opened, r.openedPosition, r.LastEvent, r.lastPosition = c.time(), c.position(), c.time(), c.position()
	r.Revision, r.Title = events.Revision(c.integer()), c.string()
	r.Prompts, r.turns, r.Replies = int(c.integer()), c.integer(), int(c.integer())
	r.Calls, r.Open, r.Failed = int(c.integer()), int(c.integer()), int(c.integer())
	r.tokens = events.Tokens{Input: c.integer(), Output: c.integer(), CacheRead: c.integer(), CacheWrite: c.integer()}
	r.providerFailures, r.unknownEvents, r.Interrupted, r.Closed = c.integer(), c.integer(), c.flag(), c.flag()
	r.stored = true
	return c.err
}

// change returns the statement that replaces the columns of a row. The first column is the
// key of the row. The arguments are the columns in order.
func change(table string, columns []string) string {
	var b strings.Builder
	b.WriteString("UPDATE " + table + " SET ")
	for i, name := range columns[1:] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s = ?%d", name, i+2)
	}
	b.WriteString(" WHERE " + columns[0] + " = ?1")
	return b.String()
}

// A columnReader reads the columns of a row in order. After an error it returns zero
// values.
type columnReader struct {
	row []driver.Value
	err error
}

// next returns the next column.
func (c *columnReader) next() driver.Value {
	v := c.row[0]
	c.row = c.row[1:]
	return v
}

// string returns the next column; null is the empty string.
func (c *columnReader) string() string {
	text, _ := c.next().(string)
	return text
}

// integer returns the next column; null is 0.
func (c *columnReader) integer() int64 {
	n, _ := c.next().(int64)
	return n
}

// flag reports whether the next column is 1.
func (c *columnReader) flag() bool { return c.integer() == 1 }

// position returns the next column as a position with two equal parts.
func (c *columnReader) position() events.Position {
	n := uint64(c.integer())
	return events.NewPosition(n, n)
}

// time parses the next column; null is the zero time.
func (c *columnReader) time() time.Time {
	text := c.string()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(timeLayout, text)
	c.fail(err)
	return at
}

// text decodes the next columns, one into each target; null is the empty text.
func (c *columnReader) text(targets ...encoding.TextUnmarshaler) {
	for _, to := range targets {
		c.fail(to.UnmarshalText([]byte(c.string())))
	}
}

// fail keeps the first error, which means that the row is not one that this package wrote.
func (c *columnReader) fail(err error) {
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("%w: %w", ErrDamagedIndex, err)
	}
}
