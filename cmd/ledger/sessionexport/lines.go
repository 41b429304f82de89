package sessionexport

import (
	"bufio"
	"encoding/json"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// linesFormat is the version of the lines: it rises when a key changes its meaning.
const linesFormat = 1

// A sessionLine is the first line: the session and its state at the revision.
type sessionLine struct {
	Type      string           `json:"type"` // session
	Format    int              `json:"format"`
	Session   domain.SessionID `json:"session"`
	Agent     domain.AgentID   `json:"agent"`
	Location  string           `json:"location"`
	Model     string           `json:"model"`
	Parent    *string          `json:"parent"`
	Origin    events.Origin    `json:"origin"`
	Opened    render.Timestamp `json:"opened"`
	LastEvent render.Timestamp `json:"last_event"`
	Revision  events.Revision  `json:"revision"`
	State     string           `json:"state"`
	Calls     int              `json:"calls"`
	Open      int              `json:"open"`
	Redacted  bool             `json:"redacted"`
}

// A recordLine is an event as it is recorded.
type recordLine struct {
	Event    domain.EventID   `json:"event"`
	Revision events.Revision  `json:"revision"`
	Position events.Position  `json:"position"`
	Time     render.Timestamp `json:"time"`
	Kind     string           `json:"kind"`
	Version  int              `json:"version"`
	Data     json.RawMessage  `json:"data"`
}

// An entryLine is an entry: an event, with the calls that it asks for.
type entryLine struct {
	Type string `json:"type"` // entry
	recordLine
	Calls []callLine `json:"calls,omitempty"`
}

// A callLine is a call with the events about it.
type callLine struct {
	Turn        *string           `json:"turn"`
	Message     domain.MessageID  `json:"message"`
	Call        domain.CallID     `json:"call"`
	Tool        string            `json:"tool"`
	Parent      *string           `json:"parent"`
	Outcome     string            `json:"outcome"` // open: it has no end
	Starts      []recordLine      `json:"starts"`
	Loops       []recordLine      `json:"loops"`
	Permissions []requestLine     `json:"permissions"`
	Questions   []requestLine     `json:"questions"`
	End         *recordLine       `json:"end"`
	Late        []recordLine      `json:"late"`
	Pruned      []domain.Retained `json:"pruned"` // the outputs that were deleted since
}

// A requestLine is a request to a person or the rules with its answer.
type requestLine struct {
	Asked    recordLine  `json:"asked"`
	Answered *recordLine `json:"answered"`
}

// An endLine is the last line. An export without it is not complete.
type endLine struct {
	Type     string            `json:"type"` // end
	Entries  int               `json:"entries"`
	Calls    int               `json:"calls"`
	Outcomes map[string]int    `json:"outcomes"`
	Hidden   []redaction.Count `json:"hidden"`
}

// writeLines writes a session as JSON lines.
func (e *export) writeLines(out *bufio.Writer, known calls.Session) error {
	s, err := e.open(known)
	if err != nil {
		return err
	}
	head := sessionLine{
		Type: "session", Format: linesFormat, Session: s.ID, Agent: s.Agent, Location: s.Location, Model: s.Model, Parent: textOrNull(s.Parent), Origin: s.Origin,
		Opened: render.Timestamp(s.Opened), LastEvent: render.Timestamp(s.LastEvent), Revision: s.Revision, State: s.state(), Calls: s.Calls, Open: s.Open,
		Redacted: e.opts.Redactor != nil,
	}
	if err := writeLine(out, head); err != nil {
		return err
	}
	end := endLine{Type: "end", Outcomes: map[string]int{}}
	err = e.read(s, func(entry timeline.Entry) error {
		record, err := recordOf(entry.Place, entry.Event)
		if err != nil {
			return err
		}
		line := entryLine{Type: "entry", recordLine: record}
		for _, c := range entry.Calls {
			call, err := callLineOf(s, c)
			if err != nil {
				return err
			}
			line.Calls = append(line.Calls, call)
			end.Calls++
			end.Outcomes[call.Outcome]++
		}
		end.Entries++
		return writeLine(out, line)
	})
	if err != nil {
		return err
	}
	end.Hidden = e.opts.Redactor.Counts()
	return writeLine(out, end)
}

// writeLine writes a value as JSON on one line.
func writeLine(out *bufio.Writer, v any) error {
	data, err := render.EncodeJSON(v)
	if err != nil {
		return err
	}
	_, err = out.Write(append(data, '\n'))
	return err
}

// textOrNull returns the text of an ID, or nil if it is zero.
func textOrNull(id interface {
	IsZero() bool
	String() string
}) *string {
	if id.IsZero() {
		return nil
	}
	text := id.String()
	return &text
}

// recordOf returns the line of an event.
func recordOf(at timeline.Place, e events.Event) (recordLine, error) {
	r, err := events.Encode(events.Draft{ID: at.Event, Time: at.Time, Event: e})
	if err != nil {
		return recordLine{}, err
	}
	return recordLine{at.Event, at.Revision, at.Position, render.Timestamp(at.Time), r.Kind, r.Version, r.Data}, nil
}

// callLineOf returns the line of a call.
func callLineOf(s session, c *timeline.Call) (line callLine, err error) {
	line = callLine{
		Turn: textOrNull(c.Turn), Message: c.Message, Call: c.Asked.ID, Tool: c.Tool(), Parent: render.OrNull(string(c.Parent)), Outcome: outcomeOf(c),
		Starts: []recordLine{}, Loops: []recordLine{}, Permissions: []requestLine{}, Questions: []requestLine{}, Late: []recordLine{}, Pruned: []domain.Retained{},
	}
	record := func(at timeline.Place, e events.Event) recordLine {
		r, failed := recordOf(at, e)
		if failed != nil {
			err = failed
		}
		return r
	}
	for _, start := range c.Starts {
		line.Starts = append(line.Starts, record(start.Place, start.CallStarted))
	}
	for _, l := range c.Loops {
		line.Loops = append(line.Loops, record(l.Place, l.LoopDetected))
	}
	for _, p := range c.Permissions {
		request := requestLine{Asked: record(p.Place, p.PermissionRequested)}
		if p.Decision != nil {
			answer := record(p.Decision.Place, p.Decision.PermissionDecided)
			request.Answered = &answer
		}
		line.Permissions = append(line.Permissions, request)
	}
	for _, q := range c.Questions {
		request := requestLine{Asked: record(q.Place, q.QuestionAsked)}
		if q.Answer != nil {
			answer := record(q.Answer.Place, q.Answer.QuestionAnswered)
			request.Answered = &answer
		}
		line.Questions = append(line.Questions, request)
	}
	if c.End != nil {
		end := record(c.End.Place, c.End.CallSettled)
		line.End = &end
		for _, kept := range c.End.Retained {
			if _, gone := s.pruned[kept.Ref]; gone {
				line.Pruned = append(line.Pruned, kept)
			}
		}
	}
	for _, l := range c.Late {
		line.Late = append(line.Late, record(l.Place, l.LateResultObserved))
	}
	return line, err
}
