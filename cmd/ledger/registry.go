package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/spf13/cobra"
)

// registryCommand returns the group ledger registry.
func (a *app) registryCommand() *cobra.Command {
	return a.group("registry", "The registry: what each name meant, at any moment", a.registryAt())
}

// A registryFilter selects a moment and layers for ledger registry at.
type registryFilter struct {
	at       string // position, time or now, as given
	location string // folder whose layers are shown; empty: not given
	session  string // ID of the session whose layers are shown; empty: not given
	all      bool   // include closed layers and registrations
}

// registryAt returns the command ledger registry at.
func (a *app) registryAt() *cobra.Command {
	var filter registryFilter
	cmd := &cobra.Command{
		Use: "at [POSITION|TIME|now]", Short: "Show which registrations were in effect, and which they hid",
		Long: `Show the layers and their registrations as they were once the event at a
position was on record, or once all events up to a time were, by their own
clocks. A time is RFC 3339, a date or a time of the day in the local zone, or how
long ago, such as 10m.

Without --location or --session each layer is judged by itself. With them, the
layers that a turn there sees are laid over each other: application, location,
session.`,
		Example: "  ledger registry at now\n  ledger registry at 1204 --session @last\n  ledger registry at 2026-09-01T12:00:00Z --all -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter.at = append(args, "now")[0]
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.showRegistry(cmd.Context(), s, filter) })
		},
	}
	cmd.Flags().StringVar(&filter.location, "location", "", "as seen in this directory or workspace")
	cmd.Flags().StringVar(&filter.session, "session", "", "as seen by this session, in its location")
	cmd.Flags().BoolVar(&filter.all, "all", false, "closed layers and registrations, too")
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.MarkFlagDirname("location"))
	return cmd
}

// A registryRow is the result of ledger registry at.
type registryRow struct {
	Position *events.Position `json:"position"` // the position asked for; null for a time or now
	Time     render.Timestamp `json:"time"`     // the time asked for; null for a position or now
	Layers   []layerRow       `json:"layers"`   // in the order in which they were opened
}

// A layerRow is a layer with its registrations.
type layerRow struct {
	Layer         domain.LayerID    `json:"layer"`
	Placement     string            `json:"placement"` // application, location or session
	Location      *string           `json:"location"`
	Session       *domain.SessionID `json:"session"`
	Process       *domain.ProcessID `json:"process"`
	Observed      bool              `json:"observed"` // an import inferred the layer from the use of its tools
	Opened        render.Timestamp  `json:"opened"`
	Closed        *domain.EventID   `json:"closed"`
	Reason        *string           `json:"reason"`
	Registrations []registrationRow `json:"registrations"` // oldest first
	known         catalog.Layer     // the layer itself, for the table
}

// A registrationRow is one registration: the tools that one event registered.
type registrationRow struct {
	Registration domain.RegistrationID `json:"registration"`
	Scope        domain.ScopeID        `json:"scope"`
	Registered   render.Timestamp      `json:"registered"`
	Closed       *domain.EventID       `json:"closed"`
	Reason       *string               `json:"reason"`
	Tools        []registeredRow       `json:"tools"`
	Refused      []events.RefusedTool  `json:"refused"` // tools whose registration failed, with the reasons
}

// A registeredRow is one tool of a registration and its effect: in effect, hidden by
// another registration of the same name, or closed.
type registeredRow struct {
	Tool        domain.Name             `json:"tool"`
	Description *string                 `json:"description"`
	Action      *string                 `json:"action"`
	Fingerprint *string                 `json:"fingerprint"`
	Idempotent  bool                    `json:"idempotent"`
	Effective   bool                    `json:"effective"` // calls of the name reach this registration
	HiddenBy    *domain.RegistrationID  `json:"hidden_by"` // the registration in effect in its place
	Hides       []domain.RegistrationID `json:"hides"`     // hidden registrations; the first takes effect when this one closes
}

// showRegistry prints the layers that q selects and the effect of their
// registrations.
func (a *app) showRegistry(ctx context.Context, s *stores.Store, q registryFilter) error {
	m, err := query.ParseMoment(ctx, a.Printer, s, q.at)
	if err != nil {
		return err
	}
	state, err := query.CatalogAt(ctx, s, m)
	if err != nil {
		return err
	}
	if q.location != "" {
		if q.location, err = query.AbsoluteLocation("location", q.location); err != nil {
			return err
		}
	}
	var session calls.Session
	if q.session != "" {
		if session, _, err = query.LoadSession(ctx, s, q.session); err != nil {
			return err
		}
		q.location = cmp.Or(q.location, session.Location)
	}
	row := registryRow{Position: render.OrNull(m.Position), Time: render.Timestamp(m.Time), Layers: []layerRow{}}
	selected := slices.DeleteFunc(state.Layers(), func(l catalog.Layer) bool { return !q.takes(l, session.ID) })
	overlay := q.overlay(selected)
	for _, l := range selected {
		row.Layers = append(row.Layers, layerRowOf(state, l, overlay, q.all))
	}
	return a.Object(row, func() { a.registryPage(row, q.all) })
}

// takes reports whether q selects l. session is the session of q, or zero. Without a
// location and a session q selects all layers; with them, the layers that a turn
// there sees.
func (q registryFilter) takes(l catalog.Layer, session domain.SessionID) bool {
	if !l.Closed.IsZero() && !q.all {
		return false
	}
	switch {
	case q.location == "" && q.session == "" || l.Placement == domain.Application:
		return true
	case l.Placement == domain.Location:
		return l.Location == q.location
	}
	return !session.IsZero() && l.Session == session
}

// overlay returns the IDs of the layers that hide each other, lowest precedence
// first. It returns nil for a filter that looks at each layer alone.
func (q registryFilter) overlay(layers []catalog.Layer) []domain.LayerID {
	if q.location == "" && q.session == "" {
		return nil
	}
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(a, b catalog.Layer) int { return cmp.Compare(a.Placement, b.Placement) })
	ids := make([]domain.LayerID, len(layers))
	for i, l := range layers {
		ids[i] = l.ID
	}
	return ids
}

// layerRowOf returns the row of a layer. A nil overlay means the layer alone. Closed
// registrations are included only if all is set.
func layerRowOf(state *catalog.State, l catalog.Layer, overlay []domain.LayerID, all bool) layerRow {
	row := layerRow{
		Layer: l.ID, Placement: l.Placement.String(), Location: render.OrNull(l.Location), Session: render.OrNull(l.Session), Process: render.OrNull(l.Process),
		Observed: l.Observed, Opened: render.Timestamp(l.Opened), Closed: render.OrNull(l.Closed), Reason: render.OrNull(l.Reason),
		Registrations: []registrationRow{}, known: l,
	}
	if overlay == nil {
		overlay = []domain.LayerID{l.ID}
	}
	for _, r := range l.Registrations {
		if r.Closed.IsZero() || all {
			row.Registrations = append(row.Registrations, registrationRowOf(state, r, overlay))
		}
	}
	return row
}

// registrationRowOf returns the row of a registration, with the effect of each tool
// among the layers of the overlay.
func registrationRowOf(state *catalog.State, r catalog.Registration, overlay []domain.LayerID) registrationRow {
	row := registrationRow{
		Registration: r.ID, Scope: r.Scope, Registered: render.Timestamp(r.At), Closed: render.OrNull(r.Closed), Reason: render.OrNull(r.Reason),
		Tools: []registeredRow{}, Refused: append([]events.RefusedTool{}, r.Refused...),
	}
	for _, t := range r.Tools {
		tool := registeredRow{
			Tool: t.Name, Description: render.OrNull(t.Description), Action: render.OrNull(t.Action), Fingerprint: render.OrNull(t.Fingerprint.String()),
			Idempotent: t.Idempotent, Hides: []domain.RegistrationID{},
		}
		tool.judge(state.Overlay(overlay, t.Name), r)
		row.Tools = append(row.Tools, tool)
	}
	return row
}

// judge sets the effect of t, a tool of r. active are the active registrations of
// the name, and the first of them is in effect. A closed registration is not among
// them and keeps the zero effect.
func (t *registeredRow) judge(active []catalog.ToolEntry, r catalog.Registration) {
	if len(active) == 0 {
		return
	}
	if active[0].Registration == r.ID && active[0].Layer == r.Layer {
		t.Effective = true
		for _, hidden := range active[1:] {
			t.Hides = append(t.Hides, hidden.Registration)
		}
		return
	}
	if slices.ContainsFunc(active, func(e catalog.ToolEntry) bool { return e.Registration == r.ID && e.Layer == r.Layer }) {
		t.HiddenBy = render.OrNull(active[0].Registration)
	}
}

// registryPage prints the registry for a person, one table for each layer.
func (a *app) registryPage(row registryRow, all bool) {
	if len(row.Layers) == 0 && all {
		a.Line("No layers.")
	} else if len(row.Layers) == 0 {
		a.Line("No layers are open; --all lists closed ones.")
	}
	for i, l := range row.Layers {
		if i > 0 {
			a.Line("")
		}
		a.Line("%s  %s", a.Styled(render.Bold, layerText(l.known)), a.Styled(render.Dim, a.layerNote(l)))
		t := render.Table{Head: []string{"~  TOOL", "REGISTRATION", "?FINGERPRINT", "?REGISTERED", "~MEANS"}, Empty: "  No registrations."}
		for _, r := range l.Registrations {
			for _, tool := range r.Tools {
				t.Add("  "+string(tool.Tool), render.ShortID(r.Registration), fingerprintText(tool.Fingerprint), a.ShortTime(render.TimeOf(r.Registered)), a.meaning(l, r, tool))
			}
			for _, refused := range r.Refused {
				t.Add("  "+render.OneLine(refused.Name, 30), render.ShortID(r.Registration), "", a.ShortTime(render.TimeOf(r.Registered)), a.Styled(render.Red, "✗ refused: ")+render.OneLine(refused.Reason, render.TextWidth))
			}
		}
		a.Table(t)
	}
}

// layerNote returns a description of how a layer was opened and closed.
func (a *app) layerNote(l layerRow) string {
	notes := []string{"opened " + a.ShortTime(render.TimeOf(l.Opened))}
	if l.Process != nil {
		notes = append(notes, "by "+render.ShortID(*l.Process))
	}
	if l.Observed {
		notes = append(notes, "observed by an import")
	}
	if l.Closed != nil {
		notes = append(notes, "closed by "+render.ShortID(*l.Closed)+": "+render.Printable(render.ValueOf(l.Reason)))
	}
	return strings.Join(notes, ", ")
}

// meaning returns the effect of a tool for the last column of the table.
func (a *app) meaning(l layerRow, r registrationRow, t registeredRow) string {
	switch {
	case r.Closed != nil:
		return a.Styled(render.Dim, "closed: "+render.Printable(render.ValueOf(r.Reason)))
	case l.Closed != nil:
		return a.Styled(render.Dim, "closed with its layer")
	case t.HiddenBy != nil:
		return a.Styled(render.Yellow, "hidden by "+render.ShortID(*t.HiddenBy))
	case len(t.Hides) == 0:
		return a.Styled(render.Green, "✓ in effect")
	}
	hidden := make([]string, len(t.Hides))
	for i, id := range t.Hides {
		hidden[i] = render.ShortID(id)
	}
	return a.Styled(render.Green, "✓ in effect") + ", hides " + strings.Join(hidden, ", ")
}
