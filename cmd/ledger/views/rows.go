package views

import (
	"encoding/json"
	"path/filepath"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// SchemaVersion is the version of the JSON keys of all results. It rises when a key
// changes its meaning or is removed; a new key does not change it.
const SchemaVersion = 1

// A callRow is one call in JSON results.
type callRow struct {
	Session      domain.SessionID       `json:"session"`
	Turn         *domain.TurnID         `json:"turn"`
	Message      domain.MessageID       `json:"message"`
	Call         domain.CallID          `json:"call"`
	Tool         string                 `json:"tool"`
	Parent       *domain.CallID         `json:"parent"` // the call that made this one; null: the model asked for it
	Title        *string                `json:"title"`  // one line about the call, of its tool
	Agent        *domain.AgentID        `json:"agent"`
	State        calls.Stage            `json:"state"`        // asked, begun or settled
	Outcome      string                 `json:"outcome"`      // open for a call without a settlement
	Began        bool                   `json:"began"`        // the tool may have run
	Registration *domain.RegistrationID `json:"registration"` // the one that the turn offered
	Settlement   *domain.EventID        `json:"settlement"`   // the event that settled the call
	Asked        render.Timestamp       `json:"asked"`        // when the reply with the call was recorded
	Started      render.Timestamp       `json:"started"`      // when the call began; null: it did not begin
	Settled      render.Timestamp       `json:"settled"`      // when it was settled; null: it is open
	DurationMS   *int64                 `json:"duration_ms"`  // from the start to the return of the tool, or else to the end
	Text         *string                `json:"text"`         // the beginning of the result, as the model reads it
	Imported     bool                   `json:"imported"`     // the call came from an import
	Late         int                    `json:"late"`         // results that arrived after the settlement
	Input        json.RawMessage        `json:"input"`
	Shortened    bool                   `json:"input_shortened"` // Input is a part of the input
}

// newCallRow returns the row of a call, with the whole input if full is set and a
// shortened one otherwise.
func newCallRow(c query.CallWithInput, full bool) callRow {
	row := callRow{
		Session: c.Session, Turn: render.OrNull(c.Turn), Message: c.Message, Call: c.ID, Tool: c.Tool, Agent: render.OrNull(c.Agent),
		Parent: render.OrNull(c.Parent), Title: render.OrNull(c.Title),
		State: c.State, Outcome: render.OutcomeOf(c.Call), Began: !c.Started.IsZero() || c.Settlement.Began,
		Registration: render.OrNull(c.Registration()), Settlement: render.OrNull(c.SettledBy),
		Asked: render.Timestamp(c.Asked), Started: render.Timestamp(c.Started), Settled: render.Timestamp(c.Settled), DurationMS: render.DurationMS(c.Call),
		Text: render.OrNull(c.Preview), Imported: c.Imported, Late: c.Late, Input: c.Input,
	}
	if !full {
		row.Input, row.Shortened = shortenInput(c.Input)
	}
	return row
}

// newCallRows returns the rows of calls, with whole inputs if full is set and shortened
// ones otherwise.
func newCallRows(all []query.CallWithInput, full bool) []callRow {
	rows := make([]callRow, len(all))
	for i, c := range all {
		rows[i] = newCallRow(c, full)
	}
	return rows
}

// An originRow is the origin of a session: a run of this ledger, or an import with
// its format and source.
type originRow struct {
	Kind   events.OriginKind `json:"kind"` // run or import
	Format *string           `json:"format"`
	Source *string           `json:"source"`
}

// A sessionRow is one session in JSON results.
type sessionRow struct {
	Session     domain.SessionID  `json:"session"`
	Agent       *domain.AgentID   `json:"agent"`
	Location    *string           `json:"location"`
	Model       *string           `json:"model"`
	Parent      *domain.SessionID `json:"parent"`
	Origin      originRow         `json:"origin"`
	Opened      render.Timestamp  `json:"opened"`
	LastEvent   render.Timestamp  `json:"last_event"`
	Revision    events.Revision   `json:"revision"`
	Prompts     int               `json:"prompts"`
	Replies     int               `json:"replies"`
	Calls       int               `json:"calls"`
	Open        int               `json:"open"`   // calls without a settlement
	Failed      int               `json:"failed"` // settled calls with another outcome than succeeded
	Interrupted bool              `json:"interrupted"`
	Closed      bool              `json:"closed"`
	Title       *string           `json:"title"` // the beginning of the first prompt
}

// newSessionRow returns the row of a session.
func newSessionRow(s calls.Session) sessionRow {
	return sessionRow{
		Session: s.ID, Agent: render.OrNull(s.Agent), Location: render.OrNull(s.Location), Model: render.OrNull(s.Model), Parent: render.OrNull(s.Parent),
		Origin: originRow{s.Origin.Kind, render.OrNull(s.Origin.Format), render.OrNull(s.Origin.Source)},
		Opened: render.Timestamp(s.Opened), LastEvent: render.Timestamp(s.LastEvent), Revision: s.Revision,
		Prompts: s.Prompts, Replies: s.Replies, Calls: s.Calls, Open: s.Open, Failed: s.Failed,
		Interrupted: s.Interrupted, Closed: s.Closed, Title: render.OrNull(s.Title),
	}
}

// A sessionListRow is one session of `ledger session ls` in JSON results.
type sessionListRow struct {
	sessionRow
	Turns            int64          `json:"turns"`
	Tokens           tokensRow      `json:"tokens"`
	DurationMS       int64          `json:"duration_ms"` // from the first to the last event
	Outcomes         map[string]int `json:"outcomes"`    // the number of calls of each outcome; open: without a settlement
	Project          *string        `json:"project"`     // the last element of the location
	ProviderFailures int64          `json:"provider_failures"`
	UnknownEvents    int64          `json:"unknown_events"` // of kinds that this program does not know
}

// A tokensRow has the tokens of replies, as their provider counts them.
type tokensRow struct {
	Input      int64 `json:"input"` // without those of the cache
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

// newSessionListRow returns the row of a session with the outcomes of its calls.
func newSessionListRow(s index.Session, outcomes map[string]int) sessionListRow {
	if outcomes == nil {
		outcomes = map[string]int{}
	}
	project := ""
	if s.Location != "" {
		project = filepath.Base(s.Location)
	}
	return sessionListRow{
		sessionRow: newSessionRow(s.Session), Turns: s.Turns, Tokens: tokensRow(s.Tokens), DurationMS: max(0, s.LastEvent.Sub(s.Opened).Milliseconds()),
		Outcomes: outcomes, Project: render.OrNull(project), ProviderFailures: s.ProviderFailures, UnknownEvents: s.UnknownEvents,
	}
}

// An eventRow is one record in JSON results, with its payload as stored.
type eventRow struct {
	Position events.Position  `json:"position"`
	Stream   events.Stream    `json:"stream"`
	Revision events.Revision  `json:"revision"`
	Event    domain.EventID   `json:"event"`
	Kind     string           `json:"kind"`
	Version  int              `json:"version"`
	Time     render.Timestamp `json:"time"`
	Data     json.RawMessage  `json:"data"`
	Metadata json.RawMessage  `json:"metadata"`
	Damaged  *string          `json:"damaged"` // why decoding failed; Data that is not JSON is then a string
}

// newEventRow returns the row of a record. damage is the error with which the record
// failed to decode, or nil.
func newEventRow(e events.Entry, damage error) eventRow {
	row := eventRow{
		Position: e.Position, Stream: e.Stream, Revision: e.Revision, Event: e.ID, Kind: e.Kind, Version: e.Version,
		Time: render.Timestamp(e.Time), Data: render.RawJSON(e.Data), Metadata: render.RawJSON(e.Metadata),
	}
	if damage != nil {
		row.Damaged = render.OrNull(damage.Error())
	}
	return row
}

// An eventPlace says where an event is in the log, and summarizes the event.
type eventPlace struct {
	Event    domain.EventID   `json:"event"`
	Kind     string           `json:"kind"`
	Stream   events.Stream    `json:"stream"`
	Revision events.Revision  `json:"revision"`
	Position events.Position  `json:"position"`
	Time     render.Timestamp `json:"time"`
	What     string           `json:"what"` // the summary, on one line
}

// newEventPlace returns the eventPlace of an event.
func newEventPlace(v events.Envelope) eventPlace {
	return eventPlace{v.ID, v.Event.Kind(), v.Stream, v.Revision, v.Position, render.Timestamp(v.Time), summary(v.Event)}
}
