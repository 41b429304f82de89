package main

import (
	"context"
	"encoding/json"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/spf13/cobra"
)

// callShow returns the command call show.
func (a *app) callShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [CALL]", Short: "Show a call: what was asked, offered, permitted, read, and each of its events",
		Long: `Show all that is on record of a call. CALL is the provider's id of the call,
MESSAGE/CALL where that id came in several messages, or the event of its
settlement; shortened or not.`,
		Example: "  ledger call show @last\n  ledger call show toolu_01A\n  ledger call show msg_…4K2P9Q/call_1 -o json",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.CallWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.showCall(cmd.Context(), s, query.OrLast(args)) })
		},
	}
}

// A callDetail is the result of call show: all recorded facts about a call. showCall fills it
// from the fold of all calls and from the events of the session's stream, in their order.
type callDetail struct {
	callRow
	InputRan     json.RawMessage     `json:"input_ran"`    // the input after hooks changed it; null: no hook did
	Offered      *offeredRow         `json:"offered"`      // the registration that the turn offered
	Effective    *offeredRow         `json:"effective"`    // the registration in effect when the call was resolved
	Agrees       *bool               `json:"agrees"`       // whether both have the same known fingerprint; null: not resolved
	ChangedBy    *placeRow           `json:"changed_by"`   // the event that took the offered registration out of effect
	Interruption *string             `json:"interruption"` // the cause; null: the call was not interrupted
	Rule         *domain.Rule        `json:"rule"`         // the rule that denied the call
	Allowed      []domain.Rule       `json:"allowed"`      // the rules that granted its permissions without asking a person
	Detail       *string             `json:"detail"`       // error text for the operator, which the model does not read
	Reading      *readingRow         `json:"reading"`      // the result as the model reads it; null: not settled
	Content      domain.Contents     `json:"content"`      // of the settlement
	Structured   json.RawMessage     `json:"structured"`   // of the settlement
	Retained     []retainedRow       `json:"retained"`     // the outputs in managed storage
	Lost         int64               `json:"lost"`         // bytes of output that the tool dropped
	Progress     *domain.Progress    `json:"progress"`     // the last progress report of an unsuccessful call
	Permissions  []permissionRow     `json:"permissions"`  // in the order of the requests
	LateResults  []lateRow           `json:"late_results"` // observed after the settlement
	Process      *domain.ProcessID   `json:"process"`      // the process that ran the call
	Timeline     []placeRow          `json:"timeline"`     // the events of the session that concern the call
	settled      *events.CallSettled // nil: the call has no settlement
	known        calls.Call          // the call in the fold
}

// An offeredRow is a registration in results: one that a turn offered, or one in effect.
type offeredRow struct {
	Tool         domain.Name           `json:"tool"`
	Registration domain.RegistrationID `json:"registration"`
	Layer        domain.LayerID        `json:"layer"`
	Fingerprint  *string               `json:"fingerprint"` // of the definition; null: unknown
}

// offeredRowOf converts a registration. It returns nil for the zero Offered.
func offeredRowOf(o domain.Offered) *offeredRow {
	if o.IsZero() {
		return nil
	}
	return &offeredRow{o.Name, o.Registration, o.Layer, render.OrNull(o.Fingerprint.String())}
}

// A readingRow is the result that the model reads. One field besides Type is set.
type readingRow struct {
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
}

// A lateRow is a result that the ledger observed after the settlement of the call.
type lateRow struct {
	Event   domain.EventID   `json:"event"`
	Time    render.Timestamp `json:"time"`
	Outcome string           `json:"outcome"` // of the late result; the settlement keeps its own
	Text    *string          `json:"text"`
}

// showCall prints the call that id names; @last is the call that the model asked for last.
func (a *app) showCall(ctx context.Context, s *stores.Store, id string) error {
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return err
	}
	c, err := query.Call(state, id)
	if err != nil {
		return err
	}
	d := callDetail{
		callRow: rowOf(query.CallWithInput{Call: c}, true), known: c, Process: render.OrNull(c.Process),
		Retained: []retainedRow{}, Permissions: []permissionRow{}, Allowed: []domain.Rule{}, LateResults: []lateRow{}, Timeline: []placeRow{},
	}
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(c.Session), 0) {
		if err != nil {
			return err
		}
		if d.take(v) {
			d.Timeline = append(d.Timeline, placeRowOf(v))
		}
	}
	if err := d.blame(ctx, s); err != nil {
		return err
	}
	return a.Object(d, func() { a.callPage(d) })
}

// take applies an event of the session to d, and reports whether the event concerns the call.
// showCall passes it all events of the stream in their order.
func (d *callDetail) take(v events.Envelope) bool {
	mine := func(message domain.MessageID, call domain.CallID) bool { return message == d.Message && call == d.Call }
	switch e := v.Event.(type) {
	case events.TurnMaterialized:
		return !d.known.Turn.IsZero() && e.Turn == d.known.Turn
	case events.ReplyReceived:
		return e.Message == d.Message && d.takeAsked(e)
	case events.CallStarted:
		return mine(e.Message, e.Call) && d.takeStart(e)
	case events.CallSettled:
		return mine(e.Message, e.Call) && d.takeEnd(e)
	case events.LateResultObserved:
		if mine(e.Message, e.Call) {
			d.LateResults = append(d.LateResults, lateRow{v.ID, render.Timestamp(v.Time), e.Outcome.String(), render.OrNull(e.Text)})
			return true
		}
	case events.LoopDetected:
		return mine(e.Message, e.Call)
	case events.PermissionRequested:
		return mine(e.Message, e.Call) && d.takeRequest(e, v)
	case events.PermissionDecided:
		return d.takeDecision(e, v)
	case events.OutputPruned:
		return d.takePruned(e)
	}
	return false
}

// takeAsked applies the reply that asked for the call, and reports whether the reply did.
func (d *callDetail) takeAsked(e events.ReplyReceived) bool {
	for _, asked := range e.Calls {
		if asked.ID == d.Call {
			if d.Input == nil {
				d.Input = render.RawJSON(asked.Input)
			}
			return true
		}
	}
	return false
}

// takeStart applies the start of the call.
func (d *callDetail) takeStart(e events.CallStarted) bool {
	d.InputRan = firstOf(d.InputRan, e.Input)
	if d.settled == nil {
		d.Offered, d.Effective = offeredRowOf(e.Offered), offeredRowOf(e.Effective)
		d.Agrees = new(!e.Offered.Fingerprint.IsZero() && e.Offered.Fingerprint == e.Effective.Fingerprint)
	}
	return true
}

// firstOf returns a, or b if a is empty.
func firstOf(a, b json.RawMessage) json.RawMessage {
	if len(a) > 0 {
		return a
	}
	return b
}

// takeEnd applies the settlement. It ignores a second settlement, which breaks the law that
// a call settles once.
func (d *callDetail) takeEnd(e events.CallSettled) bool {
	if d.settled != nil {
		return true
	}
	d.settled = &e
	d.InputRan = firstOf(e.Input, d.InputRan)
	if !e.Offered.IsZero() || !e.Effective.IsZero() {
		d.Offered, d.Effective = offeredRowOf(e.Offered), offeredRowOf(e.Effective)
	}
	d.Agrees, d.Interruption, d.Rule, d.Detail = &e.Agrees, render.OrNull(e.Interruption.String()), render.OrNull(e.Rule), render.OrNull(e.Detail)
	d.Allowed = append(d.Allowed, e.Allowed...)
	d.Content, d.Structured, d.Progress, d.Lost = e.Content, e.Structured, e.Progress, e.Lost
	r := e.Settlement(d.known.SettledBy).ToolResult()
	d.Reading = &readingRow{r.Type(), render.OrNull(r.Error), render.OrNull(r.Text), r.Content, r.Structured}
	for _, kept := range e.Retained {
		d.Retained = append(d.Retained, retainedRow{Retained: kept, Command: "ledger output " + kept.Ref.String()})
	}
	return true
}

// takeRequest adds a permission request of the call.
func (d *callDetail) takeRequest(e events.PermissionRequested, v events.Envelope) bool {
	d.Permissions = append(d.Permissions, permissionRow{
		Permission: e.Permission, Action: e.Action, Resources: e.Resources, Save: append([]string{}, e.Save...), Shown: render.OrNull(e.Shown), Requested: render.Timestamp(v.Time),
	})
	return true
}

// takeDecision applies a decision to its request, and reports whether the request is one of
// the call's.
func (d *callDetail) takeDecision(e events.PermissionDecided, v events.Envelope) bool {
	for i := range d.Permissions {
		p := &d.Permissions[i]
		if p.Permission == e.Permission {
			p.Effect, p.By, p.Rule, p.Scope = render.OrNull(e.Effect.String()), render.OrNull(string(e.By)), render.OrNull(e.Rule), render.OrNull(e.Scope)
			p.Feedback, p.WaitedMS, p.Decided = render.OrNull(e.Feedback), &e.WaitedMS, render.Timestamp(v.Time)
			p.Person = render.OrNull(e.Person)
			return true
		}
	}
	return false
}

// takePruned applies the deletion of an output, and reports whether the output is the call's.
func (d *callDetail) takePruned(e events.OutputPruned) bool {
	for i := range d.Retained {
		if d.Retained[i].Ref == e.Retained.Ref {
			d.Retained[i].Pruned = render.Timestamp(e.Pruned)
			return true
		}
	}
	return false
}

// blame sets ChangedBy to the event that the settlement names as the change of the offered
// registration. It reads the streams of the layers of the offered and the effective
// registration.
func (d *callDetail) blame(ctx context.Context, s *stores.Store) error {
	if d.settled == nil || d.settled.ChangedBy.IsZero() {
		return nil
	}
	layers := []domain.LayerID{d.settled.Offered.Layer, d.settled.Effective.Layer}
	v, found, err := findEvent(ctx, s, layers, d.settled.ChangedBy)
	if err != nil {
		return err
	}
	if !found {
		d.ChangedBy = &placeRow{Event: d.settled.ChangedBy, What: "not on record in the layers of the call"}
		return nil
	}
	d.ChangedBy = render.OrNull(placeRowOf(v))
	return nil
}

// findEvent searches the streams of layers for an event, and reports whether it found it. It
// skips zero layers.
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
