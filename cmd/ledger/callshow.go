package main

import (
	"context"
	"encoding/json"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/spf13/cobra"
)

func (a *app) callShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [CALL]", Short: "Show a call: what was asked, offered, permitted, read, and each of its events",
		Long: `Show all that is on record of a call. CALL is the provider's id of the call,
MESSAGE/CALL where that id came in several messages, or the event of its
settlement; shortened or not.`,
		Example: "  ledger call show @last\n  ledger call show toolu_01A\n  ledger call show msg_…4K2P9Q/call_1 -o json",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.completeCalls,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.showCall(cmd.Context(), s, orLast(args)) })
		},
	}
}

// A callDetail is all that is on record of a call.
type callDetail struct {
	callRow
	InputRan     json.RawMessage     `json:"input_ran"` // where hooks changed it
	Offered      *offeredRow         `json:"offered"`   // by the turn
	Effective    *offeredRow         `json:"effective"` // when it was resolved
	Agrees       *bool               `json:"agrees"`    // both definitions are known, and the same
	ChangedBy    *placeRow           `json:"changed_by"`
	Interruption *string             `json:"interruption"`
	Rule         *domain.Rule        `json:"rule"`
	Allowed      []domain.Rule       `json:"allowed"` // the rules that allowed what it asked for, without a question
	Detail       *string             `json:"detail"`  // for the operator
	Reading      *readingRow         `json:"reading"`
	Content      domain.Contents     `json:"content"`
	Structured   json.RawMessage     `json:"structured"`
	Retained     []retainedRow       `json:"retained"`
	Lost         int64               `json:"lost"` // bytes that the tool dropped before it returned the rest
	Progress     *domain.Progress    `json:"progress"`
	Permissions  []permissionRow     `json:"permissions"`
	LateResults  []lateRow           `json:"late_results"`
	Process      *domain.ProcessID   `json:"process"` // that ran it
	Timeline     []placeRow          `json:"timeline"`
	settled      *events.CallSettled // nil: it has no settlement
	known        calls.Call          //
}

// An offeredRow is a registration that a turn offered, or that was in effect.
type offeredRow struct {
	Tool         domain.Name           `json:"tool"`
	Registration domain.RegistrationID `json:"registration"`
	Layer        domain.LayerID        `json:"layer"`
	Fingerprint  *string               `json:"fingerprint"` // null: the definition is not known
}

func offeredRowOf(o domain.Offered) *offeredRow {
	if o.IsZero() {
		return nil
	}
	return &offeredRow{o.Name, o.Registration, o.Layer, render.OrNull(o.Fingerprint.String())}
}

// A readingRow is what a model reads of a settlement.
type readingRow struct {
	Type       string          `json:"type"` // error, text, content or json: which of the others is set
	Error      *string         `json:"error"`
	Text       *string         `json:"text"`
	Content    domain.Contents `json:"content"`
	Structured json.RawMessage `json:"structured"`
}

// A retainedRow is an output that is kept whole.
type retainedRow struct {
	domain.Retained
	Command string           `json:"command"` // that reads it
	Pruned  render.Timestamp `json:"pruned"`
}

// A permissionRow is one asking of permission, and the answer.
type permissionRow struct {
	Permission domain.PermissionID `json:"permission"`
	Action     string              `json:"action"`
	Resources  []string            `json:"resources"`
	Save       []string            `json:"save"`  // patterns that an answer for always allows
	Shown      *domain.Preview     `json:"shown"` // null: no text was shown
	Requested  render.Timestamp    `json:"requested"`
	Effect     *string             `json:"effect"` // null: not decided
	By         *string             `json:"by"`
	Rule       *domain.Rule        `json:"rule"`
	Scope      *string             `json:"scope"`
	Feedback   *string             `json:"feedback"`
	WaitedMS   *int64              `json:"waited_ms"`
	Person     *string             `json:"person"` // the OS user who decided
	Decided    render.Timestamp    `json:"decided"`
}

// A lateRow is a result that came after the settlement.
type lateRow struct {
	Event   domain.EventID   `json:"event"`
	Time    render.Timestamp `json:"time"`
	Outcome string           `json:"outcome"`
	Text    *string          `json:"text"`
}

func (a *app) showCall(ctx context.Context, s *stores.Store, id string) error {
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return err
	}
	c, err := callOf(state, id)
	if err != nil {
		return err
	}
	d := callDetail{
		callRow: rowOf(askedCall{Call: c}, true), known: c, Process: render.OrNull(c.Process),
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

// take takes what an event of the session says of the call, and reports
// whether it says something.
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

func (d *callDetail) takeStart(e events.CallStarted) bool {
	d.InputRan = firstOf(d.InputRan, e.Input)
	if d.settled == nil {
		d.Offered, d.Effective = offeredRowOf(e.Offered), offeredRowOf(e.Effective)
		d.Agrees = new(!e.Offered.Fingerprint.IsZero() && e.Offered.Fingerprint == e.Effective.Fingerprint)
	}
	return true
}

// firstOf returns the first document that there is.
func firstOf(a, b json.RawMessage) json.RawMessage {
	if len(a) > 0 {
		return a
	}
	return b
}

// takeEnd takes the settlement. Of two, which breaks the law, the first counts.
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

func (d *callDetail) takeRequest(e events.PermissionRequested, v events.Envelope) bool {
	d.Permissions = append(d.Permissions, permissionRow{
		Permission: e.Permission, Action: e.Action, Resources: e.Resources, Save: append([]string{}, e.Save...), Shown: render.OrNull(e.Shown), Requested: render.Timestamp(v.Time),
	})
	return true
}

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

func (d *callDetail) takePruned(e events.OutputPruned) bool {
	for i := range d.Retained {
		if d.Retained[i].Ref == e.Retained.Ref {
			d.Retained[i].Pruned = render.Timestamp(e.Pruned)
			return true
		}
	}
	return false
}

// blame finds the event that made what was in effect differ from what was
// offered, in the streams of the layers that the two lie in.
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

// findEvent returns an event of one of these layers, and whether it is on record.
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
