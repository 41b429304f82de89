package tables

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// A callRow is a row of the table calls. The first columns are those of ledger call ls.
type callRow struct {
	Session      string     `parquet:"session,zstd,dict"`
	Turn         *string    `parquet:"turn,zstd,dict"`
	Message      string     `parquet:"message,zstd,dict"`
	Call         string     `parquet:"call,zstd"`
	Tool         string     `parquet:"tool,zstd,dict"`
	Parent       *string    `parquet:"parent,zstd"`
	Title        *string    `parquet:"title,zstd"`
	Agent        *string    `parquet:"agent,zstd,dict"`
	State        string     `parquet:"state,zstd,dict"`
	Outcome      string     `parquet:"outcome,zstd,dict"`
	Began        bool       `parquet:"began,zstd"`
	Registration *string    `parquet:"registration,zstd,dict"`
	Settlement   *string    `parquet:"settlement,zstd"`
	Asked        *time.Time `parquet:"asked,zstd,timestamp(microsecond)"`
	Started      *time.Time `parquet:"started,zstd,timestamp(microsecond)"`
	Settled      *time.Time `parquet:"settled,zstd,timestamp(microsecond)"`
	DurationMS   *int64     `parquet:"duration_ms,zstd"`
	Text         *string    `parquet:"text,zstd"`
	Imported     bool       `parquet:"imported,zstd"`
	Late         int64      `parquet:"late,zstd"`
	Input        *string    `parquet:"input,zstd" form:"json"`

	Location              *string `parquet:"location,zstd,dict"`
	RanMS                 *int64  `parquet:"ran_ms,zstd"`
	WaitedMS              int64   `parquet:"waited_ms,zstd"`
	Requests              int64   `parquet:"requests,zstd"`
	Interruption          *string `parquet:"interruption,zstd,dict"`
	Detail                *string `parquet:"detail,zstd"`
	Process               *string `parquet:"process,zstd,dict"`
	Layer                 *string `parquet:"layer,zstd,dict"`
	Fingerprint           *string `parquet:"fingerprint,zstd,dict"`
	EffectiveRegistration *string `parquet:"effective_registration,zstd,dict"`
	Agrees                bool    `parquet:"agrees,zstd"`
	ChangedBy             *string `parquet:"changed_by,zstd,dict"`
	RuleAction            *string `parquet:"rule_action,zstd,dict"`
	RuleResource          *string `parquet:"rule_resource,zstd,dict"`
	RuleSource            *string `parquet:"rule_source,zstd,dict"`
	AskedPosition         *int64  `parquet:"asked_position,zstd"`
	SettledPosition       *int64  `parquet:"settled_position,zstd"`
}

// A turnRow is a row of the table turns.
type turnRow struct {
	Session          string     `parquet:"session,zstd,dict"`
	Turn             string     `parquet:"turn,zstd"`
	Message          *string    `parquet:"message,zstd"`
	Agent            *string    `parquet:"agent,zstd,dict"`
	Model            *string    `parquet:"model,zstd,dict"`
	Provider         *string    `parquet:"provider,zstd,dict"`
	Client           *string    `parquet:"client,zstd,dict"`
	Time             *time.Time `parquet:"time,zstd,timestamp(microsecond)"`
	Position         int64      `parquet:"position,zstd"`
	Event            string     `parquet:"event,zstd"`
	Disabled         bool       `parquet:"disabled,zstd"`
	Observed         bool       `parquet:"observed,zstd"`
	Tools            []string   `parquet:"tools,list" parquet-element:",zstd,dict"`
	Hidden           []string   `parquet:"hidden,list" parquet-element:",zstd,dict"`
	System           *string    `parquet:"system,zstd,dict"`
	Instruction      *string    `parquet:"instruction,zstd,dict"`
	Rules            *string    `parquet:"rules,zstd,dict"`
	Parameters       *string    `parquet:"parameters,zstd,dict"`
	Schemas          *string    `parquet:"schemas,zstd,dict"`
	Compacted        *string    `parquet:"compacted,zstd,dict"`
	Replied          *time.Time `parquet:"replied,zstd,timestamp(microsecond)"`
	Finish           *string    `parquet:"finish,zstd,dict"`
	Calls            *int64     `parquet:"calls,zstd"`
	InputTokens      *int64     `parquet:"input_tokens,zstd"`
	OutputTokens     *int64     `parquet:"output_tokens,zstd"`
	CacheReadTokens  *int64     `parquet:"cache_read_tokens,zstd"`
	CacheWriteTokens *int64     `parquet:"cache_write_tokens,zstd"`
}

// turnStatement selects the columns of turnRow, in order. Its order is that of an index.
const turnStatement = `SELECT turns.session, turns.turn, turns.message, turns.agent, turns.model, turns.provider, turns.client, turns.time, turns.position, turns.event,
	turns.disabled, turns.observed,
	(SELECT json_group_array(tool) FROM (SELECT tool FROM offered_tools WHERE offered_tools.offer = turns.offer ORDER BY place)),
	(SELECT json_group_array(tool) FROM (SELECT tool FROM hidden_tools WHERE hidden_tools.session = turns.session AND hidden_tools.turn = turns.turn ORDER BY place)),
	turns.system, turns.instruction, turns.rules, turns.parameters, turns.schemas, turns.compacted,
	messages.time, messages.finish, messages.calls, messages.input_tokens, messages.output_tokens, messages.cache_read_tokens, messages.cache_write_tokens
	FROM turns LEFT JOIN messages ON messages.session = turns.session AND messages.message = turns.message AND messages.kind = 'reply'
	WHERE %s ORDER BY turns.position, turns.session, turns.turn`

// A registrationRow is a row of the table registrations: a tool of a registration.
type registrationRow struct {
	Registration   string     `parquet:"registration,zstd,dict"`
	Tool           string     `parquet:"tool,zstd,dict"`
	Layer          string     `parquet:"layer,zstd,dict"`
	Placement      string     `parquet:"placement,zstd,dict"`
	Location       *string    `parquet:"location,zstd,dict"`
	Session        *string    `parquet:"session,zstd,dict"`
	Process        *string    `parquet:"process,zstd,dict"`
	Observed       bool       `parquet:"observed,zstd"`
	Scope          string     `parquet:"scope,zstd,dict"`
	Description    *string    `parquet:"description,zstd,dict"`
	Action         *string    `parquet:"action,zstd,dict"`
	Fingerprint    *string    `parquet:"fingerprint,zstd,dict"`
	Idempotent     bool       `parquet:"idempotent,zstd"`
	AsksFirst      bool       `parquet:"asks_first,zstd"`
	InputSchema    *string    `parquet:"input_schema,zstd,dict" form:"json"`
	OutputSchema   *string    `parquet:"output_schema,zstd,dict" form:"json"`
	Available      *string    `parquet:"available,zstd,dict" form:"json"`
	Registered     *time.Time `parquet:"registered,zstd,timestamp(microsecond)"`
	RegisteredAt   int64      `parquet:"registered_position,zstd"`
	Closed         *time.Time `parquet:"closed,zstd,timestamp(microsecond)"`
	ClosedPosition *int64     `parquet:"closed_position,zstd"`
	ClosedBy       *string    `parquet:"closed_event,zstd,dict"`
	Reason         *string    `parquet:"closed_reason,zstd,dict"`
	EndedPosition  *int64     `parquet:"ended_position,zstd"`
}

// registrationStatement selects the columns of registrationRow, in order. Its order is that of
// the primary keys.
const registrationStatement = `SELECT registrations.registration, registered_tools.tool, layers.layer, layers.placement, layers.location, layers.session, layers.process, layers.observed,
	registrations.scope, registered_tools.description, registered_tools.action, registered_tools.fingerprint, registered_tools.idempotent, registered_tools.asks_first,
	registered_tools.input_schema, registered_tools.output_schema, registered_tools.available, registrations.registered_time, registrations.registered_position,
	registrations.closed_time, registrations.closed_position, registrations.closed_event, registrations.closed_reason, registrations.ended_position
	FROM registrations CROSS JOIN layers ON layers.layer = registrations.layer CROSS JOIN registered_tools ON registered_tools.registration = registrations.registration
	WHERE %s ORDER BY registrations.registration, registered_tools.place`

// text returns nil for the empty text.
func text[T ~string](v T) *string { return render.OrNull(string(v)) }

// idText returns the text of an ID, or nil for the zero ID.
func idText[T interface {
	comparable
	fmt.Stringer
}](id T) *string {
	if id == *new(T) {
		return nil
	}
	return new(id.String())
}

// moment returns nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// place returns the first part of a position, or nil for zero.
func place(p events.Position) *int64 {
	if p.IsZero() {
		return nil
	}
	commit, _ := p.Parts()
	return new(int64(commit))
}

// A fullCall is a call with its whole texts.
type fullCall struct {
	query.CallWithInput
	text, detail string
}

// newCallRow returns the row of a call. hide hides the secrets of a text.
func newCallRow(c fullCall, hide func(string) string, texts bool) callRow {
	hidden := func(s string) *string {
		if s == "" {
			return nil
		}
		return new(hide(s))
	}
	s := c.Settlement
	row := callRow{
		Session: c.Session.String(), Turn: idText(c.Turn), Message: c.Message.String(), Call: string(c.ID), Tool: c.Tool, Parent: text(c.Parent), Title: hidden(c.Title), Agent: text(c.Agent),
		State: string(c.State), Outcome: render.OutcomeOf(c.Call), Began: !c.Started.IsZero() || s.Began, Registration: idText(c.Registration()), Settlement: idText(c.SettledBy),
		Asked: moment(c.Asked), Started: moment(c.Started), Settled: moment(c.Call.Settled), DurationMS: render.DurationMS(c.Call), Imported: c.Imported, Late: int64(c.Late),
		Location: hidden(c.Location), WaitedMS: c.WaitedMS, Requests: int64(c.Requests), Interruption: text(s.Interruption.String()), Detail: hidden(c.detail), Process: idText(c.Process),
		Layer: idText(c.Offered.Layer), Fingerprint: text(c.Offered.Fingerprint.String()), EffectiveRegistration: idText(s.Effective.Registration), Agrees: s.Agrees, ChangedBy: idText(s.ChangedBy),
		RuleAction: text(s.Rule.Action), RuleResource: hidden(s.Rule.Resource), RuleSource: hidden(s.Rule.Source), AskedPosition: place(c.AskedAt.Position), SettledPosition: place(c.SettledAt.Position),
	}
	if c.State == calls.Settled && s.Began {
		row.RanMS = &s.RanMS
	}
	if texts {
		row.Text, row.Input = hidden(c.text), hidden(string(c.Input))
	} else {
		row.Detail = nil
	}
	return row
}

// A cells reads the columns of a row of the index in order.
type cells struct {
	row  []driver.Value
	hide func(string) string
	err  error
}

// next returns the next column.
func (c *cells) next() driver.Value {
	v := c.row[0]
	c.row = c.row[1:]
	return v
}

// text returns the next column as a text, nil for null.
func (c *cells) text() *string {
	if s, ok := c.next().(string); ok {
		return &s
	}
	return nil
}

// hidden is text without secrets.
func (c *cells) hidden() *string {
	if s := c.text(); s != nil {
		return new(c.hide(*s))
	}
	return nil
}

// name returns the next column, which is not null.
func (c *cells) name() string {
	s, _ := c.next().(string)
	return s
}

// number returns the next column as a number, nil for null.
func (c *cells) number() *int64 {
	if n, ok := c.next().(int64); ok {
		return &n
	}
	return nil
}

// integer returns the next column, which is not null.
func (c *cells) integer() int64 {
	n, _ := c.next().(int64)
	return n
}

// flag reports whether the next column is 1.
func (c *cells) flag() bool { return c.integer() == 1 }

// time returns the next column as a time, nil for null.
func (c *cells) time() *time.Time {
	s := c.text()
	if s == nil {
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, *s)
	if err != nil {
		c.err = err
	}
	return &at
}

// list returns the next column, a JSON array of texts.
func (c *cells) list() []string {
	all := []string{}
	if err := json.Unmarshal([]byte(c.name()), &all); err != nil {
		c.err = err
	}
	return all
}

// newTurnRow returns the row of the columns of turnStatement.
func newTurnRow(c *cells) turnRow {
	return turnRow{
		Session: c.name(), Turn: c.name(), Message: c.text(), Agent: c.text(), Model: c.text(), Provider: c.text(), Client: c.text(), Time: c.time(), Position: c.integer(), Event: c.name(),
		Disabled: c.flag(), Observed: c.flag(), Tools: c.list(), Hidden: c.list(), System: c.text(), Instruction: c.text(), Rules: c.text(), Parameters: c.text(), Schemas: c.text(), Compacted: c.text(),
		Replied: c.time(), Finish: c.text(), Calls: c.number(), InputTokens: c.number(), OutputTokens: c.number(), CacheReadTokens: c.number(), CacheWriteTokens: c.number(),
	}
}

// newRegistrationRow returns the row of the columns of registrationStatement.
func newRegistrationRow(c *cells) registrationRow {
	return registrationRow{
		Registration: c.name(), Tool: c.name(), Layer: c.name(), Placement: c.name(), Location: c.hidden(), Session: c.text(), Process: c.text(), Observed: c.flag(), Scope: c.name(),
		Description: c.hidden(), Action: c.text(), Fingerprint: c.text(), Idempotent: c.flag(), AsksFirst: c.flag(), InputSchema: c.hidden(), OutputSchema: c.hidden(), Available: c.hidden(),
		Registered: c.time(), RegisteredAt: c.integer(), Closed: c.time(), ClosedPosition: c.number(), ClosedBy: c.text(), Reason: c.text(), EndedPosition: c.number(),
	}
}
