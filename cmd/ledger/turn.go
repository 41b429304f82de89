package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/staleness"
	"github.com/spf13/cobra"
)

func (a *app) turnCommand() *cobra.Command {
	return a.group("turn", "Turns: what the model was offered", a.turnShow())
}

func (a *app) turnShow() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use: "show [TURN]", Short: "Show what a turn offered the model, what it hid, and what has gone stale since",
		Example: "  ledger turn show @last\n  ledger turn show trn_…4K2P9Q\n  ledger turn show 4K2P9Q -o json | jq '.tools[] | select(.stale)'",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.completeTurns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.showTurn(cmd.Context(), s, orLast(args), full) })
		},
	}
	fullFlag(cmd, &full)
	return cmd
}

// A turnDetail is what one turn offered.
type turnDetail struct {
	Turn     domain.TurnID    `json:"turn"`
	Session  domain.SessionID `json:"session"`
	Message  domain.MessageID `json:"message"` // the reply that it is for
	Agent    *domain.AgentID  `json:"agent"`
	Model    *string          `json:"model"`
	Event    domain.EventID   `json:"event"`
	Position events.Position  `json:"position"`
	Time     render.Timestamp `json:"time"`
	Rules    *string          `json:"rules"`    // digest of the permission rules in force; null: not on record
	Disabled bool             `json:"disabled"` // no tools were offered: the last step allowed
	Observed bool             `json:"observed"` // an import saw these used; others may have been offered
	Tools    []turnTool       `json:"tools"`    // in the order in which the model saw them
	Hidden   []hiddenTool     `json:"hidden"`
	Calls    []callRow        `json:"calls"`
	calls    []calls.Call
}

// A turnTool is a tool that a turn offered, and whether it still holds.
type turnTool struct {
	offeredRow
	Placement   *string          `json:"placement"`
	Location    *string          `json:"location"`
	Description *string          `json:"description"`
	Action      *string          `json:"action"`
	Idempotent  bool             `json:"idempotent"`
	Registered  render.Timestamp `json:"registered"`
	Stale       bool             `json:"stale"`
	Agrees      bool             `json:"agrees"`     // what is in effect has the same definition
	Effective   *offeredRow      `json:"effective"`  // null: nothing
	ChangedBy   *placeRow        `json:"changed_by"` // since when it is stale
}

// A hiddenTool is a tool that a turn did not offer, and the rule that hid it.
type hiddenTool struct {
	offeredRow
	Rule domain.Rule `json:"rule"`
}

func (a *app) showTurn(ctx context.Context, s *stores.Store, id string, full bool) error {
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return err
	}
	stale, err := stores.Current(ctx, s, staleness.Projection())
	if err != nil {
		return err
	}
	tools, err := stores.Current(ctx, s, catalog.Projection())
	if err != nil {
		return err
	}
	turn, err := pick("turn", id, turnCandidates(stale, state.Sessions()))
	if err != nil {
		return err
	}
	d := turnDetail{
		Turn: turn.Turn, Session: turn.Session, Event: turn.Event,
		Tools: []turnTool{}, Hidden: []hiddenTool{}, Calls: []callRow{},
	}
	var offered []domain.Offered
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(turn.Session), 0) {
		if err != nil {
			return err
		}
		if e, ok := v.Event.(events.TurnMaterialized); ok && e.Turn == turn.Turn {
			offered = d.take(e, v, offered)
		}
	}
	for _, o := range offered {
		tool, err := turnToolOf(ctx, s, tools, turn, o)
		if err != nil {
			return err
		}
		d.Tools = append(d.Tools, tool)
	}
	d.calls = slices.DeleteFunc(state.Calls(), func(c calls.Call) bool { return c.Turn != turn.Turn })
	asked, err := askedCalls(ctx, s, d.calls)
	if err != nil {
		return err
	}
	d.Calls = rowsOf(asked, full)
	return a.Object(d, func() {
		a.turnPage(d)
		a.turnCalls(asked, full)
	})
}

// take takes what an event says of the turn. The first counts; an import may
// add tools in further ones.
func (d *turnDetail) take(e events.TurnMaterialized, v events.Envelope, offered []domain.Offered) []domain.Offered {
	if v.ID == d.Event {
		d.Message, d.Agent, d.Model = e.Message, render.OrNull(e.Agent), render.OrNull(e.Model)
		d.Rules = render.OrNull(e.Rules)
		d.Position, d.Time, d.Disabled, d.Observed = v.Position, render.Timestamp(v.Time), e.Disabled, e.Observed
	}
	for _, o := range e.Tools {
		if !slices.Contains(offered, o) {
			offered = append(offered, o)
		}
	}
	for _, h := range e.Hidden {
		d.Hidden = append(d.Hidden, hiddenTool{*offeredRowOf(h.Offered), h.Rule})
	}
	return offered
}

// turnToolOf returns what is known of a tool that a turn offered.
func turnToolOf(ctx context.Context, s *stores.Store, state *catalog.State, turn staleness.Turn, o domain.Offered) (turnTool, error) {
	verdict := staleness.Judge(state, turn.Layers, o)
	t := turnTool{
		offeredRow: offeredRow{o.Name, o.Registration, o.Layer, render.OrNull(o.Fingerprint.String())},
		Stale:      verdict.Stale, Agrees: verdict.Agrees, Effective: offeredRowOf(verdict.Effective),
	}
	if layer, ok := state.Layer(o.Layer); ok {
		t.Placement, t.Location = render.OrNull(layer.Placement.String()), render.OrNull(layer.Location)
		for _, r := range layer.Registrations {
			if r.ID == o.Registration {
				t.describe(r, o.Name)
			}
		}
	}
	if verdict.ChangedBy.IsZero() {
		return t, nil
	}
	v, found, err := findEvent(ctx, s, turn.Layers, verdict.ChangedBy)
	if found {
		t.ChangedBy = render.OrNull(placeRowOf(v))
	}
	return t, err
}

func (t *turnTool) describe(r catalog.Registration, name domain.Name) {
	t.Registered = render.Timestamp(r.At)
	for _, tool := range r.Tools {
		if tool.Name == name {
			t.Description, t.Action, t.Idempotent = render.OrNull(tool.Description), render.OrNull(tool.Action), tool.Idempotent
		}
	}
}

func (a *app) turnPage(d turnDetail) {
	a.Fields(
		"turn", d.Turn.String(), "session", d.Session.String(), "for reply", d.Message.String(),
		"agent", render.Printable(word(d.Agent)), "model", render.Printable(render.ValueOf(d.Model)),
		"time", a.LongTime(render.TimeOf(d.Time)), "position", d.Position.String(), "rules", render.ValueOf(d.Rules), "calls", a.outcomeCounts(d.calls),
	)
	a.Line("")
	if d.Observed {
		a.Line("An import observed these tools by their names; others may have been offered.\n")
	}
	t := render.Table{Head: []string{"~TOOL", "REGISTRATION", "~LAYER", "?FINGERPRINT", "NOW", "~DESCRIPTION"}, Empty: "No tools were offered."}
	for _, tool := range d.Tools {
		t.Add(string(tool.Tool), render.ShortID(tool.Registration), strings.TrimSpace(render.ValueOf(tool.Placement)+" "+render.Printable(render.ValueOf(tool.Location))),
			fingerprintText(tool.Fingerprint), a.currency(tool), render.OneLine(render.ValueOf(tool.Description), render.TextWidth))
	}
	a.Table(t)
	for _, tool := range d.Tools {
		if tool.Stale {
			a.Line("\n%s is stale since %s", a.Styled(render.Bold, string(tool.Tool)), a.placeText(tool.ChangedBy))
		}
	}
	if len(d.Hidden) > 0 {
		a.Line("\n%s", a.Styled(render.Bold, "hidden from the model"))
		for _, h := range d.Hidden {
			a.Line("  %s  %s  by %s", h.Tool, render.ShortID(h.Registration), ruleText(&h.Rule))
		}
	}
}

// turnCalls shows what a turn was used to call.
func (a *app) turnCalls(all []askedCall, full bool) {
	if len(all) == 0 {
		return
	}
	a.Line("\n%s", a.Styled(render.Bold, "called"))
	t := render.Table{Head: []string{"CALL", "~TOOL", "OUTCOME", "~INPUT"}, Unlimited: full}
	for _, c := range all {
		t.Add(render.ShortCallID(c.ID), render.OneLine(c.Tool, 30), a.Outcome(render.OutcomeOf(c.Call)), inputText(c.input, full))
	}
	a.Table(t)
}

// currency says whether what was offered is still in effect.
func (a *app) currency(t turnTool) string {
	switch {
	case !t.Stale:
		return a.Styled(render.Green, "✓ in effect")
	case t.Effective == nil:
		return a.Styled(render.Yellow, "≠ gone")
	case t.Agrees:
		return a.Styled(render.Yellow, "≠ replaced by the same")
	}
	return a.Styled(render.Yellow, "≠ replaced")
}

func fingerprintText(f *string) string {
	if f == nil {
		return "not known"
	}
	return (*f)[:12]
}

// word returns a word that may be absent.
func word[T ~string](v *T) string {
	if v == nil {
		return ""
	}
	return string(*v)
}

func layerText(l catalog.Layer) string {
	text := l.Placement.String()
	if l.Location != "" {
		text += " " + render.Printable(l.Location)
	}
	if !l.Session.IsZero() {
		text += " " + render.ShortID(l.Session)
	}
	return fmt.Sprintf("%s layer %s", text, render.ShortID(l.ID))
}
