package views

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// SessionOptions selects what `ledger session show` prints of a session.
type SessionOptions struct {
	Full    bool   // whole texts, inputs and outputs
	AsModel bool   // the messages that the model was shown
	Turn    string // of AsModel: in the request of this turn; empty: at the end
	At      string // as the session was at this event, position or time; empty: now
}

// check returns a usage error for options that contradict each other.
func (o SessionOptions) check() error {
	switch {
	case o.Turn != "" && !o.AsModel:
		return fault.Usage("--turn selects a request that --as-model shows: give both")
	case o.Turn != "" && o.At != "":
		return fault.Usage("--turn and --at exclude each other: give one of them")
	case o.Full && o.AsModel:
		return fault.Usage("--full and --as-model exclude each other: --as-model always shows whole texts")
	}
	return nil
}

// ShowSession prints the session that id identifies.
func ShowSession(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, id string, opts SessionOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	session, err := query.Session(r, id)
	if err != nil {
		return err
	}
	var at *timeline.Place
	if opts.At != "" {
		if session, at, err = sessionAt(ctx, out, s, session, opts.At); err != nil {
			return err
		}
	}
	if opts.AsModel {
		return showAsModel(ctx, out, s, r, session, opts.Turn)
	}
	page := &sessionPage{ctx: ctx, out: out, s: s, r: r, session: session, at: at, full: opts.Full}
	if page.ancestry, err = ancestry(ctx, s.Ledger, session.ID); err != nil {
		return err
	}
	if page.workingCopy, err = openedWorkingCopy(ctx, s.Ledger, session.ID); err != nil {
		return err
	}
	if out.Format == render.AsTable {
		return page.print()
	}
	return render.ObjectWithList(out, page.head(), "timeline", page.rows())
}

// A sessionHead is the JSON result of `ledger session show` but its timeline.
type sessionHead struct {
	sessionRow
	// VersionControl is the working copy in the location as the session opened; null: none on record.
	VersionControl *versionControlRow `json:"version_control"`
	// Ancestry are the sessions that a fork continues, its parent first.
	Ancestry []ancestor     `json:"ancestry"`
	At       *sessionMoment `json:"at"` // the event up to which the session is shown; null: all
}

// A sessionMoment is the last event of a session as it was.
type sessionMoment struct {
	Event    domain.EventID   `json:"event"`
	Position events.Position  `json:"position"`
	Revision events.Revision  `json:"revision"`
	Time     render.Timestamp `json:"time"`
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
	Reason   *string           `json:"reason"`  // why a reply was refused
	Version  *int              `json:"version"` // of an event that this program does not know; null: it does
	Call     *timelineCall     `json:"call"`    // null: the entry is an event
	event    events.Event      // nil for a call
}

// A timelineCall is a call in the timeline of a session, with the events about it.
type timelineCall struct {
	callRow
	Deciders         []decider       `json:"deciders"`          // who allowed or denied it, in order
	Reading          *modelResult    `json:"reading"`           // the result as the model reads it; null: not settled
	ReadingShortened bool            `json:"reading_shortened"` // Reading is a part of the result
	Permissions      []permissionRow `json:"permissions"`
	Questions        []questionRow   `json:"questions"`
	LateResults      []lateRow       `json:"late_results"`
	Retained         []retainedRow   `json:"retained"`
	Outputs          []wholeOutput   `json:"outputs"` // the retained outputs; null: not asked for with --full
	loops            []timeline.Loop
	detail           callDetail
	whole            json.RawMessage // the input, not shortened
}

// A decider is an authority that allowed or denied a call. Rule is the rule with its file
// and line.
type decider struct {
	Effect string       `json:"effect"` // allow or deny
	By     string       `json:"by"`     // rule, approval, user, headless or recovery
	Rule   *domain.Rule `json:"rule"`
	Person *string      `json:"person"`
	Scope  *string      `json:"scope"` // once, always or reject; null: no person was asked
}

// String returns the authority in a few words, such as "rule build.rules:3" or "user ann".
func (d decider) String() string {
	text := d.By
	switch {
	case d.Rule != nil && d.Rule.Source != "":
		text += " " + d.Rule.Source
	case d.Person != nil:
		text += " " + *d.Person
	}
	return text
}

// decidersOf returns the authorities that decided on a call: the decisions on its permission
// requests, the rules that allowed requests without a question, and the rule that denied it.
func decidersOf(c *timeline.Call) []decider {
	all := []decider{}
	add := func(effect domain.Effect, by events.Decider, rule domain.Rule, person, scope string) {
		d := decider{effect.String(), string(by), render.OrNull(rule), render.OrNull(person), render.OrNull(scope)}
		same := func(o decider) bool { return o.Effect == d.Effect && o.String() == d.String() }
		if !slices.ContainsFunc(all, same) {
			all = append(all, d)
		}
	}
	for _, p := range c.Permissions {
		if p.Decision != nil {
			add(p.Decision.Effect, p.Decision.By, p.Decision.Rule, p.Decision.Person, p.Decision.Scope)
		}
	}
	if c.End == nil {
		return all
	}
	for _, rule := range c.End.Allowed {
		add(domain.Allow, events.ByRule, rule, "", "")
	}
	if c.End.Rule != (domain.Rule{}) {
		add(domain.Deny, events.ByRule, c.End.Rule, "", "")
	}
	return all
}

// A sessionPage prints one session.
type sessionPage struct {
	ctx     context.Context
	out     *render.Printer
	s       *stores.Store
	r       *index.Snapshot
	session calls.Session
	at      *timeline.Place // nil: the session is shown as it is now
	full    bool
	// ancestry are the sessions that a fork continues, and workingCopy the one in the
	// location as the session opened.
	ancestry    []ancestor
	workingCopy *versionControlRow
}

// head returns the JSON of the session without its timeline.
func (p *sessionPage) head() sessionHead {
	h := sessionHead{sessionRow: newSessionRow(p.session), VersionControl: p.workingCopy, Ancestry: p.ancestry}
	if p.at != nil {
		h.At = &sessionMoment{p.at.Event, p.at.Position, p.at.Revision, render.Timestamp(p.at.Time)}
	}
	return h
}

// rows yields the entries of the timeline. Each call is an entry behind the reply or the
// call that asks for it, and the events about it are in that entry.
func (p *sessionPage) rows() iter.Seq2[timelineEntry, error] {
	return func(yield func(timelineEntry, error) bool) {
		if p.session.Revision == 0 {
			return
		}
		for e, err := range timeline.Read(p.ctx, p.s.Ledger, p.session.ID, p.session.Revision) {
			if err != nil {
				yield(timelineEntry{}, err)
				return
			}
			listed, err := p.entryRows(e)
			if err != nil {
				yield(timelineEntry{}, err)
				return
			}
			for _, row := range listed {
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// entryRows returns the rows of one entry: its event and its calls.
func (p *sessionPage) entryRows(e timeline.Entry) ([]timelineEntry, error) {
	h := timelineEntry{Time: render.Timestamp(e.Time), Position: e.Position, Event: e.Place.Event, Kind: e.Event.Kind(), event: e.Event}
	switch e := e.Event.(type) {
	case events.PromptAdmitted:
		h.Message, h.Text = render.OrNull(e.Message), render.OrNull(e.Text)
	case events.TurnMaterialized:
		h.Turn, h.Message = render.OrNull(e.Turn), render.OrNull(e.Message)
	case events.ReplyReceived:
		h.Turn, h.Message, h.Text = render.OrNull(e.Turn), render.OrNull(e.Message), render.OrNull(e.Text)
	case events.ReplyRefused:
		h.Turn, h.Message, h.Text, h.Reason = render.OrNull(e.Turn), render.OrNull(e.Message), render.OrNull(e.Text), render.OrNull(e.Reason)
	case events.CallStarted:
		if shown, err := p.askedElsewhere(e.Message, e.Call, h.Event); err != nil || shown {
			return nil, err
		}
	case events.CallSettled:
		shown, err := p.askedElsewhere(e.Message, e.Call, h.Event)
		if err != nil || shown {
			return nil, err
		}
		h.Kind = "CallSettled (never asked)"
	case events.Unknown:
		h.Version = &e.Version
	}
	rows := []timelineEntry{h}
	for _, c := range e.Calls {
		row, err := p.callEntry(c)
		if err != nil {
			return nil, err
		}
		rows = append(rows, timelineEntry{
			Time: render.Timestamp(e.Time), Position: e.Position, Event: e.Place.Event, Kind: "Call",
			Turn: render.OrNull(c.Turn), Message: render.OrNull(c.Message), Call: row,
		})
	}
	return rows, nil
}

// known returns what the index has about a call, as far as it happened before the end of
// the page. An import may have the result of a call before the reply that asks for it.
func (p *sessionPage) known(message domain.MessageID, id domain.CallID) (calls.Call, bool, error) {
	c, ok, err := p.r.Call(calls.Key{Session: p.session.ID, Message: message, Call: id})
	if errors.Is(err, index.ErrDamagedIndex) { // the page has begun, so it cannot be printed again
		f := fault.Of(err)
		err = &fault.Error{Exit: f.Exit, Code: f.Code, Err: fmt.Errorf("%v", err), Hint: "run ledger index rebuild, then the command again"}
	}
	return c, ok && c.AskedAt.Revision <= p.session.Revision, err
}

// askedElsewhere reports whether the page shows a start or a settlement in the entry of its
// call: a reply asks for the call, and the event is the one that counts.
func (p *sessionPage) askedElsewhere(message domain.MessageID, id domain.CallID, event domain.EventID) (bool, error) {
	c, ok, err := p.known(message, id)
	return ok && !c.Asked.IsZero() && (c.SettledBy == event || c.StartedAt.Event == event), err
}

// callEntry returns the row of a call.
func (p *sessionPage) callEntry(c *timeline.Call) (*timelineCall, error) {
	state := callState(p.session, c)
	if c.End == nil {
		if found, ok, err := p.known(c.Message, c.Asked.ID); err != nil {
			return nil, err
		} else if ok && found.State == calls.Settled && found.SettledAt.Revision <= p.session.Revision {
			state = found
		}
	}
	input := query.CallWithInput{Call: state, Input: render.RawJSON(c.Asked.Input)}
	d := callDetail{
		callRow: newCallRow(input, p.full), call: state, Retained: []retainedRow{}, Permissions: []permissionRow{},
		Questions: []questionRow{}, LateResults: []lateRow{}, Allowed: []domain.Rule{}, Files: []domain.FileAccess{},
	}
	for _, start := range c.Starts {
		d.applyStart(start.CallStarted)
	}
	envelope := func(at timeline.Place) events.Envelope { return events.Envelope{ID: at.Event, Time: at.Time} }
	for _, q := range c.Permissions {
		d.applyRequest(q.PermissionRequested, envelope(q.Place))
		if q.Decision != nil {
			d.applyDecision(q.Decision.PermissionDecided, envelope(q.Decision.Place))
		}
	}
	for _, q := range c.Questions {
		d.Questions = append(d.Questions, questionRow{Question: q.Question, Questions: q.Questions, Asked: render.Timestamp(q.Time)})
		if q.Answer != nil {
			d.applyAnswer(q.Answer.QuestionAnswered, envelope(q.Answer.Place))
		}
	}
	if c.End != nil {
		d.applySettlement(c.End.CallSettled)
	}
	for _, late := range c.Late {
		d.LateResults = append(d.LateResults, lateRow{late.Event, render.Timestamp(late.Time), late.Outcome.String(), render.OrNull(late.Text)})
	}
	row := &timelineCall{
		callRow: d.callRow, Deciders: decidersOf(c), Reading: d.Reading, Permissions: d.Permissions, Questions: d.Questions,
		LateResults: d.LateResults, Retained: d.Retained, loops: c.Loops, detail: d, whole: input.Input,
	}
	if !p.full {
		row.Reading, row.ReadingShortened = shortReading(d.Reading)
		return row, nil
	}
	if p.out.Format == render.AsTable {
		return row, nil // the page copies outputs without holding them
	}
	row.Outputs = []wholeOutput{}
	for _, kept := range d.Retained {
		o, err := readWhole(p.ctx, p.s, kept.Ref)
		if err != nil {
			return nil, err
		}
		row.Outputs = append(row.Outputs, o)
	}
	return row, nil
}

// callState returns the state of a call as package calls folds it.
func callState(session calls.Session, c *timeline.Call) calls.Call {
	place := func(at timeline.Place) (events.Envelope, calls.Place) {
		return events.Envelope{ID: at.Event, Time: at.Time}, calls.Place{Event: at.Event, Revision: at.Revision, Position: at.Position}
	}
	state := session.NewCall(c.Message, c.Asked.ID, c.Asked.Name)
	v, at := place(c.AskedAt)
	state.Ask(c.Turn, c.Parent, c.Asked, v, at)
	for _, start := range c.Starts {
		v, at := place(start.Place)
		state.Start(start.CallStarted, v, at)
	}
	if c.End != nil {
		v, at := place(c.End.Place)
		state.Settle(c.End.CallSettled, v, at)
	}
	state.Late = len(c.Late)
	return state
}

// rowsOfTable is the number of rows of the timeline that are laid out together. A longer
// timeline is printed as several tables, so that memory does not grow with the session.
const rowsOfTable = 1000

// maxOpenListed is the number of open calls that the page lists at its end.
const maxOpenListed = 20

// print prints the session and its timeline for a person.
func (p *sessionPage) print() error {
	out, s := p.out, p.session
	parent, at := "", ""
	if !s.Parent.IsZero() {
		parent = s.Parent.String()
	}
	if p.at != nil {
		at = fmt.Sprintf("%s, event %s at position %s", out.LongTime(p.at.Time), p.at.Event, p.at.Position)
	}
	var open []string
	fields := func() {
		out.Fields(
			"session", s.ID.String(), "agent", render.Printable(string(s.Agent)), "model", render.Printable(s.Model), "location", render.Printable(s.Location), "working copy", p.workingCopy.text(),
			"origin", strings.TrimSpace(originText(s.Origin)+" "+render.Printable(s.Origin.Source)), "parent", parent,
			"continues", ancestryText(p.ancestry), "opened", out.LongTime(s.Opened), "last event", out.LongTime(s.LastEvent), "as it was at", at, "state", sessionState(out, s),
			"calls", fmt.Sprintf("%d: %d open, %d not succeeded", s.Calls, s.Open, s.Failed),
		)
		out.Line("")
	}
	table, begun := newTimelineTable(), false
	begin := func() {
		if !begun {
			fields()
		}
		begun = true
	}
	for h, err := range p.rows() {
		if err != nil {
			return err
		}
		begin()
		if h.Call != nil && h.Call.Outcome == render.OpenOutcome && len(open) <= maxOpenListed {
			open = append(open, fmt.Sprintf("  %s  %s", render.OneLine(h.Call.Tool, 30), render.ShortCallID(h.Call.Call)))
		}
		if p.full {
			if err := p.printWhole(h); err != nil {
				return err
			}
			continue
		}
		p.addTo(&table, h)
		if len(table.Rows) >= rowsOfTable {
			out.Table(table)
			table = newTimelineTable()
		}
	}
	begin()
	if !p.full && (len(table.Rows) > 0 || s.Revision == 0) {
		out.Table(table)
	}
	if p.at != nil && len(open) > 0 {
		out.Line("\n%s", out.Styled(render.Bold, "open at that moment"))
		for i, line := range open {
			if i == maxOpenListed {
				line = fmt.Sprintf("  and %d more", s.Open-i)
			}
			out.Line("%s", line)
		}
	}
	return nil
}

// newTimelineTable returns an empty table of a timeline.
func newTimelineTable() render.Table {
	return render.Table{Head: []string{">AT", "WHAT", "~", "?", "?>TOOK", "~", "?~BY", "~"}, Empty: "Nothing happened."}
}

// addTo adds the rows of an entry to the table of the timeline.
func (p *sessionPage) addTo(t *render.Table, h timelineEntry) {
	at := elapsed(time.Time(h.Time).Sub(p.session.Opened))
	c := h.Call
	if c == nil {
		t.Add(at, p.out.Styled(render.Bold, KindLabel(h.Kind)), nameOf(h), "", "", render.OneLine(Summary(h.event), render.TextWidth+20), "", "")
		return
	}
	t.Add(at, "  "+p.out.Outcome(c.Outcome), render.OneLine(c.Tool, 30), render.ShortCallID(c.Call), render.Took(c.detail.call), inputText(c.whole, false),
		render.OneLine(decidersText(c.Deciders), 40), render.OneLine(c.detail.call.Preview, render.TextWidth))
	for _, row := range p.callNotes(c) {
		t.Add(elapsed(row.time.Sub(p.session.Opened)), "    "+row.what, "", "", "", render.OneLine(row.text, render.TextWidth+20), "", "")
	}
}

// A callNote is one event about a call that its row has no column for.
type callNote struct {
	time       time.Time
	what, text string
}

// callNotes returns the permission requests of a call that no rule answered, its questions,
// loops and late results, in the order of the log.
func (p *sessionPage) callNotes(c *timelineCall) (notes []callNote) {
	for _, q := range c.Permissions {
		asked := fmt.Sprintf("%s %s", q.Action, strings.Join(q.Resources, ", "))
		notes = append(notes, callNote{time.Time(q.Requested), kindLabels["PermissionRequested"], asked})
		if q.Effect != nil {
			text := strings.TrimSpace(fmt.Sprintf("%s %s by %s", *q.Effect, render.ValueOf(q.Scope), render.ValueOf(q.By)))
			if q.Rule != nil && q.Rule.Source != "" {
				text += " " + q.Rule.Source
			}
			text = strings.TrimSpace(text + " " + render.ValueOf(q.Person))
			if q.Feedback != nil {
				text += ": " + *q.Feedback
			}
			notes = append(notes, callNote{time.Time(q.Decided), kindLabels["PermissionDecided"], text})
		}
	}
	for _, q := range c.Questions {
		notes = append(notes, callNote{time.Time(q.Asked), kindLabels["QuestionAsked"], Describe(events.QuestionAsked{Questions: q.Questions})})
		if q.By != nil {
			answer := events.QuestionAnswered{Answers: q.Answers, Dismissed: q.Dismissed, Feedback: render.ValueOf(q.Feedback), By: events.Decider(*q.By)}
			notes = append(notes, callNote{time.Time(q.Answered), kindLabels["QuestionAnswered"], Describe(answer)})
		}
	}
	for _, l := range c.loops {
		notes = append(notes, callNote{l.Time, kindLabels["LoopDetected"], Describe(l.LoopDetected)})
	}
	for _, l := range c.LateResults {
		notes = append(notes, callNote{time.Time(l.Time), kindLabels["LateResultObserved"], l.Outcome + " " + render.ValueOf(l.Text)})
	}
	slices.SortStableFunc(notes, func(a, b callNote) int { return a.time.Compare(b.time) })
	return notes
}

// decidersText returns the authorities that decided on a call.
func decidersText(all []decider) string {
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = d.String()
	}
	return strings.Join(texts, ", ")
}

// Summary returns the summary of an event for a timeline, in which the calls of a reply
// have rows of their own.
func Summary(e events.Event) string {
	if reply, ok := e.(events.ReplyReceived); ok {
		return replyText(reply)
	}
	return summary(e)
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

// KindLabel returns the label of a kind, or the kind if it has none.
func KindLabel(kind string) string {
	return render.Printable(cmp.Or(kindLabels[kind], kind))
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
