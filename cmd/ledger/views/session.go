package views

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// ListSessions prints the selected sessions in the order of the log.
func ListSessions(out *render.Printer, r *index.Snapshot, filter query.Filter) error {
	selected, err := filter.Resolve(out, r, query.SessionList)
	if err != nil {
		return err
	}
	q := index.SessionQuery{Session: selected.Session, Agent: filter.Agent, Calls: selected.Calls, Where: selected.Where, Limit: filter.Limit, Skip: filter.Skip}
	q.From, q.To = filter.When.Bounds()
	sessions, err := r.Sessions(q)
	if err != nil {
		return err
	}
	outcomes, err := r.OutcomesOf(sessions)
	if err != nil {
		return err
	}
	rows := make([]listedSession, len(sessions))
	for i, s := range sessions {
		rows[i] = newListedSession(s, outcomes[s.ID])
	}
	return render.Rows(out, rows, func() {
		t := sessionTable(out, sessions, rows)
		t.Empty = filter.Empty(out, query.SessionList)
		out.Table(t)
	})
}

// sessionTable returns the table of sessions for a person.
func sessionTable(out *render.Printer, sessions []index.Session, rows []listedSession) render.Table {
	t := render.Table{Head: []string{"SESSION", "~AGENT", "?ORIGIN", "?PROJECT", "STATE", "?>PROMPTS", ">CALLS", "?>TOKENS IN", "?>OUT", "?>LASTED", "LAST EVENT", "~OUTCOMES", "~TITLE"}}
	for i, s := range sessions {
		tokens := s.Tokens
		t.Add(render.ShortID(s.ID), render.OneLine(string(s.Agent), 20), originText(s.Origin), render.OneLine(render.ValueOf(rows[i].Project), 20), sessionState(out, s.Session), fmt.Sprint(s.Prompts), fmt.Sprint(s.Calls),
			fmt.Sprint(tokens.Input+tokens.CacheRead+tokens.CacheWrite), fmt.Sprint(tokens.Output), render.Duration(s.LastEvent.Sub(s.Opened)), out.ShortTime(s.LastEvent),
			countedOutcomes(out, rows[i].Outcomes), render.OneLine(s.Title, render.TextWidth))
	}
	return t
}

// sessionState returns the state of a session for a person. A session is shown as
// resting if it is neither closed nor interrupted and has no open call.
func sessionState(out *render.Printer, s calls.Session) string {
	switch {
	case s.Closed:
		return out.Styled(render.Dim, "closed")
	case s.Interrupted:
		return out.Styled(render.Yellow, "■ interrupted")
	case s.Open > 0:
		return out.Outcome(render.OpenOutcome)
	}
	return "rests"
}

// A sessionDetail is the JSON result of `ledger session show`: a session with its
// timeline.
type sessionDetail struct {
	sessionRow
	// VersionControl is the working copy in the location as the session opened; null: none on record.
	VersionControl *versionControlRow `json:"version_control"`
	Timeline       []timelineEntry    `json:"timeline"`
	// Ancestry are the sessions that a fork continues, its parent first.
	Ancestry []ancestor `json:"ancestry"`
}

// A versionControlRow is the state of a working copy in JSON results.
type versionControlRow struct {
	System string  `json:"system"` // git
	Commit *string `json:"commit"`
	Branch *string `json:"branch"`
	State  *string `json:"state"` // clean or dirty; null: not known
}

// newVersionControlRow returns the row of a working copy, or nil for none.
func newVersionControlRow(v events.VersionControl) *versionControlRow {
	if v.IsZero() {
		return nil
	}
	return &versionControlRow{v.System, render.OrNull(v.Commit), render.OrNull(v.Branch), render.OrNull(string(v.State))}
}

// text returns the working copy on one line for a person.
func (v *versionControlRow) text() string {
	if v == nil {
		return ""
	}
	return render.Printable(strings.Join(strings.Fields(v.System+" "+render.ValueOf(v.Branch)+" "+render.ValueOf(v.Commit)+" "+render.ValueOf(v.State)), " "))
}

// A timelineEntry is one entry of a timeline: an event of the session, or a call at the
// place of the reply that first asked for it.
type timelineEntry struct {
	Time     render.Timestamp  `json:"time"`
	Position events.Position   `json:"position"`
	Event    domain.EventID    `json:"event"`
	Kind     string            `json:"kind"` // of the event; Call for a call
	Turn     *domain.TurnID    `json:"turn"`
	Message  *domain.MessageID `json:"message"`
	Text     *string           `json:"text"`
	Reason   *string           `json:"reason"` // why a reply was refused
	Call     *callRow          `json:"call"`   // null: the entry is an event
	summary  string            // the summary for the table
	call     calls.Call        // the call, if Call is set
}

// ShowSession prints the session that id identifies.
func ShowSession(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, id string, opts ShowOptions) error {
	full := opts.FullInputs
	session, err := query.Session(r, id)
	if err != nil {
		return err
	}
	asked, err := r.Calls(index.CallQuery{Session: session.ID})
	if err != nil {
		return err
	}
	state := map[calls.Key]calls.Call{}
	for _, c := range asked {
		state[c.Key()] = c
	}
	detail := sessionDetail{sessionRow: newSessionRow(session), Timeline: []timelineEntry{}}
	if detail.Ancestry, err = ancestry(ctx, s.Ledger, session.ID); err != nil {
		return err
	}
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(session.ID), 0) {
		if err != nil {
			return err
		}
		if v.Revision > session.Revision {
			break // the index does not have the events after
		}
		if e, ok := v.Event.(events.SessionOpened); ok {
			detail.VersionControl = newVersionControlRow(e.VersionControl)
		}
		detail.Timeline = append(detail.Timeline, timelineEntries(state, session.ID, v, full)...)
	}
	return out.Object(detail, func() { printSession(out, session, detail, full) })
}

// timelineEntries returns the entries that an event adds to the timeline. A call is one
// entry, at the reply that asked for it, so the events of its start and its end add
// none. They add entries of their own only if no reply on record asked for the call. state
// has the calls of the session that a reply asked for.
func timelineEntries(state map[calls.Key]calls.Call, session domain.SessionID, v events.Envelope, full bool) []timelineEntry {
	h := timelineEntry{Time: render.Timestamp(v.Time), Position: v.Position, Event: v.ID, Kind: v.Event.Kind(), summary: summary(v.Event)}
	switch e := v.Event.(type) {
	case events.PromptAdmitted:
		h.Message, h.Text = render.OrNull(e.Message), render.OrNull(e.Text)
	case events.TurnMaterialized:
		h.Turn, h.Message = render.OrNull(e.Turn), render.OrNull(e.Message)
	case events.ReplyReceived:
		h.Turn, h.Message, h.Text, h.summary = render.OrNull(e.Turn), render.OrNull(e.Message), render.OrNull(e.Text), replyText(e)
		return append([]timelineEntry{h}, callEntries(state, session, e.Message, e.Calls, v, full)...)
	case events.CallsAdded:
		return append([]timelineEntry{h}, callEntries(state, session, e.Message, e.Calls, v, full)...)
	case events.ReplyRefused:
		h.Turn, h.Message, h.Text, h.Reason = render.OrNull(e.Turn), render.OrNull(e.Message), render.OrNull(e.Text), render.OrNull(e.Reason)
	case events.CallStarted:
		if _, asked := state[calls.Key{Session: session, Message: e.Message, Call: e.Call}]; asked {
			return nil
		}
	case events.CallSettled:
		if _, asked := state[calls.Key{Session: session, Message: e.Message, Call: e.Call}]; asked {
			return nil
		}
		h.Kind = "CallSettled (never asked)"
	}
	return []timelineEntry{h}
}

// callEntries returns an entry for each call that the event v asks for, except the calls
// that an earlier event already asked for.
func callEntries(state map[calls.Key]calls.Call, session domain.SessionID, message domain.MessageID, asks []domain.Call, v events.Envelope, full bool) []timelineEntry {
	var all []timelineEntry
	for _, asked := range asks {
		c, ok := state[calls.Key{Session: session, Message: message, Call: asked.ID}]
		// A reply may contain the same call ID twice; the timeline shows the call once.
		again := slices.ContainsFunc(all, func(h timelineEntry) bool { return h.call.ID == asked.ID })
		if !ok || c.AskedAt.Event != v.ID || again {
			continue
		}
		input := render.RawJSON(asked.Input)
		row := newCallRow(query.CallWithInput{Call: c, Input: input}, full)
		all = append(all, timelineEntry{
			Time: render.Timestamp(c.Asked), Position: v.Position, Event: v.ID, Kind: "Call", Turn: render.OrNull(c.Turn), Message: render.OrNull(c.Message),
			Call: &row, call: c, summary: inputText(input, full),
		})
	}
	return all
}

// printSession prints a session and its timeline for a person.
func printSession(out *render.Printer, s calls.Session, detail sessionDetail, full bool) {
	parent := ""
	if !s.Parent.IsZero() {
		parent = s.Parent.String()
	}
	out.Fields(
		"session", s.ID.String(), "agent", render.Printable(string(s.Agent)), "model", render.Printable(s.Model), "location", render.Printable(s.Location), "working copy", detail.VersionControl.text(),
		"origin", strings.TrimSpace(originText(s.Origin)+" "+render.Printable(s.Origin.Source)), "parent", parent,
		"continues", ancestryText(detail.Ancestry), "opened", out.LongTime(s.Opened), "last event", out.LongTime(s.LastEvent), "state", sessionState(out, s),
		"calls", fmt.Sprintf("%d: %d open, %d not succeeded", s.Calls, s.Open, s.Failed),
	)
	out.Line("")
	t := render.Table{Head: []string{">AT", "WHAT", "~", "?", "?>TOOK", "~", "~"}, Empty: "Nothing happened.", Unlimited: full}
	for _, h := range detail.Timeline {
		at := elapsed(time.Time(h.Time).Sub(s.Opened))
		if h.Call != nil {
			t.Add(at, "  "+out.Outcome(h.Call.Outcome), render.OneLine(h.Call.Tool, 30), render.ShortCallID(h.Call.Call), render.Took(h.call), h.summary, render.OneLine(h.call.Preview, render.TextWidth))
			continue
		}
		t.Add(at, out.Styled(render.Bold, kindLabels[h.Kind]+unlabeledKind(h.Kind)), nameOf(h), "", "", render.OneLine(h.summary, render.TextWidth+20), "")
	}
	out.Table(t)
}

// kindLabels maps kinds of events to the words that the timeline shows for them.
var kindLabels = map[string]string{
	"SessionOpened": "opened", "PromptAdmitted": "prompt", "TurnMaterialized": "turn", "ReplyReceived": "reply",
	"ReplyRefused":       "reply refused",
	"SessionInterrupted": "interrupted", "SessionClosed": "closed", "PermissionRequested": "asks permission",
	"PermissionDecided": "permission", "LateResultObserved": "late result", "LoopDetected": "loop", "OutputPruned": "pruned",
	"SettingChanged": "setting", "SessionSpawned": "spawned by", "ContextAdded": "context", "ContextCompacted": "compacted",
	"CommandRan": "command", "SessionForked": "forked", "ProviderFailed": "provider failed",
	"AgentSwitched": "agent", "TextRecorded": "text", "TodosReplaced": "todos", "CallsAdded": "adds calls",
	"QuestionAsked": "question", "QuestionAnswered": "answer",
	"ApprovalSaved": "approval", "ApprovalRevoked": "approval revoked",
}

// unlabeledKind returns kind if kindLabels has no label for it, and an empty string
// otherwise.
func unlabeledKind(kind string) string {
	if kindLabels[kind] != "" {
		return ""
	}
	return kind
}

// nameOf returns the short ID of the turn if the entry is a TurnMaterialized event.
// Other commands accept this ID. For any other entry nameOf returns an empty string.
func nameOf(h timelineEntry) string {
	if h.Turn != nil && h.Kind == "TurnMaterialized" {
		return render.ShortID(*h.Turn)
	}
	return ""
}

// elapsed returns a duration since the start of the session, with its sign.
func elapsed(d time.Duration) string {
	if d < 0 {
		return "-" + render.Duration(-d)
	}
	return "+" + render.Duration(d)
}
