package views

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A callDetail is the JSON result of `ledger call show`: all recorded facts about a
// call. ShowCall fills it from the projection of all calls and from the events of the
// session's stream.
type callDetail struct {
	callRow
	InputRan     json.RawMessage     `json:"input_ran"`    // the input after hooks changed it; null: no hook did
	Offered      *offeredRow         `json:"offered"`      // the registration that the turn offered
	Effective    *offeredRow         `json:"effective"`    // the registration in effect when the call was resolved
	Agrees       *bool               `json:"agrees"`       // whether both have the same known fingerprint; null: not resolved
	ChangedBy    *eventPlace         `json:"changed_by"`   // the event that took the offered registration out of effect
	Interruption *string             `json:"interruption"` // the cause; null: the call was not interrupted
	Rule         *domain.Rule        `json:"rule"`         // the rule that denied the call
	Allowed      []domain.Rule       `json:"allowed"`      // the rules that granted its permissions without asking a person
	Detail       *string             `json:"detail"`       // error text for the operator, which the model does not read
	Reading      *modelResult        `json:"reading"`      // the result as the model reads it; null: not settled
	Content      domain.Contents     `json:"content"`      // of the settlement
	Structured   json.RawMessage     `json:"structured"`   // of the settlement
	Retained     []retainedRow       `json:"retained"`     // the outputs in managed storage
	Lost         int64               `json:"lost"`         // bytes of output that the tool dropped
	Progress     *domain.Progress    `json:"progress"`     // the last progress report of an unsuccessful call
	Permissions  []permissionRow     `json:"permissions"`  // in the order of the requests
	LateResults  []lateRow           `json:"late_results"` // observed after the settlement
	Process      *domain.ProcessID   `json:"process"`      // the process that ran the call
	AsksFirst    bool                `json:"asks_first"`   // the tool asks before its first side effect
	Files        []domain.FileAccess `json:"files"`        // the files that the call read or changed
	Questions    []questionRow       `json:"questions"`    // to a person, in order
	Added        []domain.CallID     `json:"added"`        // the calls that this call made
	Timeline     []eventPlace        `json:"timeline"`     // the events of the session that concern the call
	settled      *events.CallSettled // nil: the call has no settlement
	call         calls.Call          // the call in the fold
}

// An offeredRow is a registration in results: one that a turn offered, or one in effect.
type offeredRow struct {
	Tool         domain.Name           `json:"tool"`
	Registration domain.RegistrationID `json:"registration"`
	Layer        domain.LayerID        `json:"layer"`
	Fingerprint  *string               `json:"fingerprint"` // of the definition; null: unknown
}

// newOfferedRow returns the row of an offered registration, or nil for the zero Offered.
func newOfferedRow(o domain.Offered) *offeredRow {
	if o.IsZero() {
		return nil
	}
	return &offeredRow{o.Name, o.Registration, o.Layer, render.OrNull(o.Fingerprint.String())}
}

// A modelResult is the result that the model reads. One field besides Type is set.
type modelResult struct {
	Type       string          `json:"type"` // error, text, content or json
	Error      *string         `json:"error"`
	Text       *string         `json:"text"`
	Content    domain.Contents `json:"content"`
	Structured json.RawMessage `json:"structured"`
}

// A retainedRow is an output in managed storage.
type retainedRow struct {
	domain.Retained
	Command string           `json:"command"` // the command line that prints the output
	Pruned  render.Timestamp `json:"pruned"`  // when the output was deleted; null: never
}

// A permissionRow is a permission request and its decision. The fields from Effect on are
// null while the request is pending.
type permissionRow struct {
	Permission domain.PermissionID `json:"permission"`
	Action     string              `json:"action"`
	Resources  []string            `json:"resources"`
	Save       []string            `json:"save"`  // the patterns that the answer "always" saves
	Shown      *domain.Preview     `json:"shown"` // the preview displayed with the request; null: no preview
	Requested  render.Timestamp    `json:"requested"`
	Effect     *string             `json:"effect"` // allow or deny
	By         *string             `json:"by"`     // the kind of authority that decided, such as rule
	Rule       *domain.Rule        `json:"rule"`
	Scope      *string             `json:"scope"` // once, always or reject; null: no person decided
	Feedback   *string             `json:"feedback"`
	WaitedMS   *int64              `json:"waited_ms"` // milliseconds from the request to the decision
	Person     *string             `json:"person"`    // the OS user who decided
	Decided    render.Timestamp    `json:"decided"`
	// Approvals are the saved approvals that allowed resources of the request.
	Approvals []events.UsedApproval `json:"approvals"`
}

// A lateRow is a result that the ledger observed after the settlement of the call.
type lateRow struct {
	Event   domain.EventID   `json:"event"`
	Time    render.Timestamp `json:"time"`
	Outcome string           `json:"outcome"` // of the late result; the settlement keeps its own
	Text    *string          `json:"text"`
}

// ShowCall prints the call that id identifies. The ID @last identifies the call that the
// model asked for last.
func ShowCall(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, id string) error {
	c, err := query.Call(r, id)
	if err != nil {
		return err
	}
	d := newCallDetail(c)
	first, err := firstEventOf(r, c)
	if err != nil {
		return err
	}
	if err := d.read(s.Ledger.Read(ctx, events.SessionStream(c.Session), first-1)); err != nil {
		return err
	}
	if err := d.findChange(ctx, s); err != nil {
		return err
	}
	return out.Object(d, func() { printCall(out, d) })
}

// newCallDetail returns the facts of the index about a call.
func newCallDetail(c calls.Call) callDetail {
	return callDetail{
		callRow: newCallRow(query.CallWithInput{Call: c}, true), call: c, Process: render.OrNull(c.Process),
		Retained: []retainedRow{}, Permissions: []permissionRow{}, Files: []domain.FileAccess{}, Questions: []questionRow{}, Added: []domain.CallID{}, Allowed: []domain.Rule{}, LateResults: []lateRow{}, Timeline: []eventPlace{},
	}
}

// read applies events of the session's stream, in order, until no later one concerns the
// call.
func (d *callDetail) read(all iter.Seq2[events.Envelope, error]) error {
	concerns := calls.NewSelection(d.call.Key())
	for v, err := range all {
		if err != nil {
			return err
		}
		if _, next := v.Event.(events.TurnMaterialized); next && d.complete() {
			return nil
		}
		if concerns.Role(v.Event) != "" {
			d.apply(v)
			d.Timeline = append(d.Timeline, newEventPlace(v))
		}
	}
	return nil
}

// firstEventOf returns a revision of the session before which no event concerns a call: that
// of its turn. In an import, results may come before the reply that asks for them.
func firstEventOf(r *index.Snapshot, c calls.Call) (events.Revision, error) {
	if c.Imported || c.Asked.IsZero() || c.Late > 0 || c.Turn.IsZero() {
		return 1, nil
	}
	found, err := r.FindTurns(c.Turn.String())
	if err != nil || len(found.All) != 1 || found.All[0].Session != c.Session {
		return 1, err
	}
	return min(found.All[0].Revision, c.AskedAt.Revision), nil
}

// complete reports whether no turn after the applied events has an event of the call: the
// call and its requests have ended, no output of it can be removed, and the index has no
// late result. Another program may write events of an imported session in any order.
func (d *callDetail) complete() bool {
	return d.settled != nil && !d.call.Imported && d.call.Late == 0 && len(d.Retained) == 0 &&
		!slices.ContainsFunc(d.Permissions, func(p permissionRow) bool { return time.Time(p.Decided).IsZero() }) &&
		!slices.ContainsFunc(d.Questions, func(q questionRow) bool { return time.Time(q.Answered).IsZero() })
}

// apply applies an event of the call to d. read calls it with each of them in order.
func (d *callDetail) apply(v events.Envelope) {
	switch e := v.Event.(type) {
	case events.ReplyReceived:
		d.applyReply(e)
	case events.CallsAdded:
		d.applyAdded(e)
	case events.CallStarted:
		d.applyStart(e)
	case events.CallSettled:
		d.applySettlement(e)
	case events.LateResultObserved:
		d.LateResults = append(d.LateResults, lateRow{v.ID, render.Timestamp(v.Time), e.Outcome.String(), render.OrNull(e.Text)})
	case events.QuestionAsked:
		d.Questions = append(d.Questions, questionRow{Question: e.Question, Questions: e.Questions, Asked: render.Timestamp(v.Time)})
	case events.QuestionAnswered:
		d.applyAnswer(e, v)
	case events.PermissionRequested:
		d.applyRequest(e, v)
	case events.PermissionDecided:
		d.applyDecision(e, v)
	case events.OutputPruned:
		d.applyPruned(e)
	}
}

// A questionRow is one request of a call to answer questions. The fields from Answers on
// are null while it waits for an answer.
type questionRow struct {
	Question  domain.PermissionID       `json:"question"`
	Questions []domain.Question         `json:"questions"`
	Asked     render.Timestamp          `json:"asked"`
	Answers   []events.AnsweredQuestion `json:"answers"`
	Dismissed bool                      `json:"dismissed"`
	Feedback  *string                   `json:"feedback"`
	By        *string                   `json:"by"`
	Person    *string                   `json:"person"`
	WaitedMS  *int64                    `json:"waited_ms"`
	Answered  render.Timestamp          `json:"answered"`
}

// applyAnswer adds the answers to questions of the call.
func (d *callDetail) applyAnswer(e events.QuestionAnswered, v events.Envelope) {
	for i := range d.Questions {
		q := &d.Questions[i]
		if q.Question == e.Question {
			q.Answers, q.Dismissed, q.Feedback = e.Answers, e.Dismissed, render.OrNull(e.Feedback)
			q.By, q.Person, q.WaitedMS, q.Answered = render.OrNull(string(e.By)), render.OrNull(e.Person), &e.WaitedMS, render.Timestamp(v.Time)
			return
		}
	}
}

// applyAdded adds the calls that the call made, or the input of the call if another call
// made it.
func (d *callDetail) applyAdded(e events.CallsAdded) {
	for _, added := range e.Calls {
		switch {
		case e.Parent == d.Call:
			d.Added = append(d.Added, added.ID)
		case added.ID == d.Call:
			d.Input = firstOf(d.Input, render.RawJSON(added.Input))
		}
	}
}

// applyReply sets the input of the call to that in a reply, unless it is set.
func (d *callDetail) applyReply(e events.ReplyReceived) {
	for _, asked := range e.Calls {
		if asked.ID == d.Call && d.Input == nil {
			d.Input = render.RawJSON(asked.Input)
		}
	}
}

// applyStart adds the CallStarted event of the call: the input that the tool ran with
// and, before the settlement, the offered and the effective registration.
func (d *callDetail) applyStart(e events.CallStarted) {
	d.InputRan, d.AsksFirst = firstOf(d.InputRan, e.Input), e.AsksFirst
	if d.settled == nil {
		d.Offered, d.Effective = newOfferedRow(e.Offered), newOfferedRow(e.Effective)
		d.Agrees = new(!e.Offered.Fingerprint.IsZero() && e.Offered.Fingerprint == e.Effective.Fingerprint)
	}
}

// firstOf returns a, or b if a is empty.
func firstOf(a, b json.RawMessage) json.RawMessage {
	if len(a) > 0 {
		return a
	}
	return b
}

// applySettlement adds the settlement of the call. A call settles once by law:
// applySettlement ignores a second settlement.
func (d *callDetail) applySettlement(e events.CallSettled) {
	if d.settled != nil {
		return
	}
	d.settled = &e
	d.InputRan = firstOf(e.Input, d.InputRan)
	if !e.Offered.IsZero() || !e.Effective.IsZero() {
		d.Offered, d.Effective = newOfferedRow(e.Offered), newOfferedRow(e.Effective)
	}
	d.Agrees, d.Interruption, d.Rule, d.Detail = &e.Agrees, render.OrNull(e.Interruption.String()), render.OrNull(e.Rule), render.OrNull(e.Detail)
	d.Allowed, d.Files = append(d.Allowed, e.Allowed...), append(d.Files, e.Files...)
	d.Content, d.Structured, d.Progress, d.Lost = e.Content, e.Structured, e.Progress, e.Lost
	r := e.Settlement(d.call.SettledBy).ToolResult()
	d.Reading = &modelResult{r.Type(), render.OrNull(r.Error), render.OrNull(r.Text), r.Content, r.Structured}
	for _, kept := range e.Retained {
		d.Retained = append(d.Retained, retainedRow{Retained: kept, Command: "ledger output " + kept.Ref.String()})
	}
}

// applyRequest adds a permission request of the call.
func (d *callDetail) applyRequest(e events.PermissionRequested, v events.Envelope) {
	d.Permissions = append(d.Permissions, permissionRow{
		Permission: e.Permission, Action: e.Action, Resources: e.Resources, Save: append([]string{}, e.Save...), Shown: render.OrNull(e.Shown), Requested: render.Timestamp(v.Time),
		Approvals: []events.UsedApproval{},
	})
}

// applyDecision adds a permission decision to the request of the call that it decides.
func (d *callDetail) applyDecision(e events.PermissionDecided, v events.Envelope) {
	for i := range d.Permissions {
		p := &d.Permissions[i]
		if p.Permission == e.Permission {
			p.Effect, p.By, p.Rule, p.Scope = render.OrNull(e.Effect.String()), render.OrNull(string(e.By)), render.OrNull(e.Rule), render.OrNull(e.Scope)
			p.Feedback, p.WaitedMS, p.Decided = render.OrNull(e.Feedback), &e.WaitedMS, render.Timestamp(v.Time)
			p.Person, p.Approvals = render.OrNull(e.Person), append(p.Approvals, e.Approvals...)
		}
	}
}

// applyPruned records that an output of the call was deleted.
func (d *callDetail) applyPruned(e events.OutputPruned) {
	for i := range d.Retained {
		if d.Retained[i].Ref == e.Retained.Ref {
			d.Retained[i].Pruned = render.Timestamp(e.Pruned)
		}
	}
}

// findChange sets d.ChangedBy to the event that changed the offered registration, whose
// ID is in the settlement. It searches the layers of the offered and the effective
// registration. If the event is in neither layer, d.ChangedBy says so.
func (d *callDetail) findChange(ctx context.Context, s *stores.Store) error {
	if d.settled == nil || d.settled.ChangedBy.IsZero() {
		return nil
	}
	layers := []domain.LayerID{d.settled.Offered.Layer, d.settled.Effective.Layer}
	v, found, err := findEvent(ctx, s, layers, d.settled.ChangedBy)
	if err != nil {
		return err
	}
	if !found {
		d.ChangedBy = &eventPlace{Event: d.settled.ChangedBy, What: "not on record in the layers of the call"}
		return nil
	}
	d.ChangedBy = render.OrNull(newEventPlace(v))
	return nil
}

// findEvent searches the streams of the given layers for the event with this ID. The
// bool is false if no stream has the event. findEvent skips zero layer IDs.
func findEvent(ctx context.Context, s *stores.Store, layers []domain.LayerID, id domain.EventID) (events.Envelope, bool, error) {
	for _, layer := range layers {
		if layer.IsZero() {
			continue
		}
		for v, err := range s.Ledger.Read(ctx, events.LayerStream(layer), 0) {
			if err != nil || v.ID == id {
				return v, err == nil, err
			}
		}
	}
	return events.Envelope{}, false, nil
}
