package views

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
	"github.com/settlement-ledger/ledger/projections/index"
)

// A RegistryFilter selects the time and the layers that `ledger registry at` shows.
type RegistryFilter struct {
	Moment   string // position, time or now, as given
	Location string // folder whose layers are shown; empty: not given
	Session  string // ID of the session whose layers are shown; empty: not given
	Closed   bool   // include closed layers and registrations
}

// A registryRow is the JSON result of `ledger registry at`.
type registryRow struct {
	Position *events.Position `json:"position"` // the position asked for; null for a time or now
	Time     render.Timestamp `json:"time"`     // the time asked for; null for a position or now
	Layers   []layerRow       `json:"layers"`   // in the order in which they were opened
}

// A layerRow is a layer with its registrations.
type layerRow struct {
	Layer         domain.LayerID       `json:"layer"`
	Placement     string               `json:"placement"` // application, location or session
	Location      *string              `json:"location"`
	Session       *domain.SessionID    `json:"session"`
	Process       *domain.ProcessID    `json:"process"`
	Observed      bool                 `json:"observed"` // an import inferred the layer from the use of its tools
	Opened        render.Timestamp     `json:"opened"`
	Closed        *domain.EventID      `json:"closed"`
	Reason        *string              `json:"reason"`
	Registrations []registrationRow    `json:"registrations"` // oldest first
	layer         catalog.LayerHistory // the layer itself, for the table
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

// A registeredRow is one tool of a registration. It is in effect, hidden by another
// registration with a tool of the same name, or neither if its registration is closed.
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

// ShowRegistry prints the layers that q selects and the effect of their
// registrations.
func ShowRegistry(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, q RegistryFilter) error {
	m, err := query.ParseMoment(ctx, out, s, q.Moment)
	if err != nil {
		return err
	}
	if q.Location != "" {
		if q.Location, err = query.AbsoluteLocation("location", q.Location); err != nil {
			return err
		}
	}
	var session calls.Session
	if q.Session != "" {
		if session, err = query.Session(r, q.Session); err != nil {
			return err
		}
		q.Location = cmp.Or(q.Location, session.Location)
	}
	state, err := r.Layers(index.LayerQuery{Moment: m, Closed: q.Closed, Scoped: q.Location != "" || q.Session != "", Location: q.Location, Session: session.ID})
	if err != nil {
		return err
	}
	row := registryRow{Position: render.OrNull(m.Position), Time: render.Timestamp(m.Time), Layers: []layerRow{}}
	selected := slices.DeleteFunc(state.Layers(), func(l catalog.LayerHistory) bool { return !q.selects(l, session.ID) })
	overlay := q.overlay(selected)
	for _, l := range selected {
		row.Layers = append(row.Layers, newLayerRow(state, l, overlay, q.Closed))
	}
	return out.Object(row, func() { printRegistry(out, row, q.Closed) })
}

// selects reports whether q selects the layer l. session is the ID that q.Session was
// resolved to, or zero. If q names neither a location nor a session, it selects all
// layers. Otherwise it selects the layers that a turn of that session or location uses.
// Closed layers are selected only if q.Closed is set.
func (q RegistryFilter) selects(l catalog.LayerHistory, session domain.SessionID) bool {
	if !l.Closed.IsZero() && !q.Closed {
		return false
	}
	switch {
	case q.Location == "" && q.Session == "" || l.Placement == domain.Application:
		return true
	case l.Placement == domain.Location:
		return l.Location == q.Location
	}
	return !session.IsZero() && l.Session == session
}

// overlay returns the IDs of layers in ascending precedence: application, location,
// session. A tool of a later layer in this list hides a tool of the same name in an
// earlier one. If q names neither a location nor a session, overlay returns nil: each
// layer is then shown by itself.
func (q RegistryFilter) overlay(layers []catalog.LayerHistory) []domain.LayerID {
	if q.Location == "" && q.Session == "" {
		return nil
	}
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(a, b catalog.LayerHistory) int { return cmp.Compare(a.Placement, b.Placement) })
	ids := make([]domain.LayerID, len(layers))
	for i, l := range layers {
		ids[i] = l.ID
	}
	return ids
}

// newLayerRow returns the row of a layer. overlay is the list of layers that the method
// overlay returned. If it is nil, the effect of a tool depends on this layer alone.
// Closed registrations are included only if the parameter all is set.
func newLayerRow(state *catalog.State, l catalog.LayerHistory, overlay []domain.LayerID, all bool) layerRow {
	row := layerRow{
		Layer: l.ID, Placement: l.Placement.String(), Location: render.OrNull(l.Location), Session: render.OrNull(l.Session), Process: render.OrNull(l.Process),
		Observed: l.Observed, Opened: render.Timestamp(l.Opened), Closed: render.OrNull(l.Closed), Reason: render.OrNull(l.Reason),
		Registrations: []registrationRow{}, layer: l,
	}
	if overlay == nil {
		overlay = []domain.LayerID{l.ID}
	}
	for _, r := range l.Registrations {
		if r.Closed.IsZero() || all {
			row.Registrations = append(row.Registrations, newRegistrationRow(state, r, overlay))
		}
	}
	return row
}

// newRegistrationRow returns the row of a registration. The effect of each tool is
// computed from the layers in overlay, which are in ascending precedence.
func newRegistrationRow(state *catalog.State, r catalog.Registration, overlay []domain.LayerID) registrationRow {
	row := registrationRow{
		Registration: r.ID, Scope: r.Scope, Registered: render.Timestamp(r.At), Closed: render.OrNull(r.Closed), Reason: render.OrNull(r.Reason),
		Tools: []registeredRow{}, Refused: append([]events.RefusedTool{}, r.Refused...),
	}
	for _, t := range r.Tools {
		tool := registeredRow{
			Tool: t.Name, Description: render.OrNull(t.Description), Action: render.OrNull(t.Action), Fingerprint: render.OrNull(t.Fingerprint.String()),
			Idempotent: t.Idempotent, Hides: []domain.RegistrationID{},
		}
		tool.setEffect(state.Overlay(overlay, t.Name), r)
		row.Tools = append(row.Tools, tool)
	}
	return row
}

// setEffect sets Effective, HiddenBy and Hides of t, a tool of the registration r.
// active are the active registrations with a tool of this name; the first is in effect
// and hides the others. A closed registration is not in active, so setEffect leaves the
// fields of its tools at zero.
func (t *registeredRow) setEffect(active []catalog.ToolEntry, r catalog.Registration) {
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

// printRegistry prints the registry for a person, one table for each layer.
func printRegistry(out *render.Printer, row registryRow, all bool) {
	if len(row.Layers) == 0 && all {
		out.Line("No layers.")
	} else if len(row.Layers) == 0 {
		out.Line("No layers are open; --all lists closed ones.")
	}
	for i, l := range row.Layers {
		if i > 0 {
			out.Line("")
		}
		out.Line("%s  %s", out.Styled(render.Bold, layerText(l.layer)), out.Styled(render.Dim, layerNote(out, l)))
		t := render.Table{Head: []string{"~  TOOL", "REGISTRATION", "?FINGERPRINT", "?REGISTERED", "~MEANS"}, Empty: "  No registrations."}
		for _, r := range l.Registrations {
			for _, tool := range r.Tools {
				t.Add("  "+string(tool.Tool), render.ShortID(r.Registration), fingerprintText(tool.Fingerprint), out.ShortTime(render.TimeOf(r.Registered)), effectText(out, l, r, tool))
			}
			for _, refused := range r.Refused {
				t.Add("  "+render.OneLine(refused.Name, 30), render.ShortID(r.Registration), "", out.ShortTime(render.TimeOf(r.Registered)), out.Styled(render.Red, "✗ refused: ")+render.OneLine(refused.Reason, render.TextWidth))
			}
		}
		out.Table(t)
	}
}

// layerNote returns a description of how a layer was opened and closed.
func layerNote(out *render.Printer, l layerRow) string {
	notes := []string{"opened " + out.ShortTime(render.TimeOf(l.Opened))}
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

// effectText returns the effect of a tool for the last column of the table.
func effectText(out *render.Printer, l layerRow, r registrationRow, t registeredRow) string {
	switch {
	case r.Closed != nil:
		return out.Styled(render.Dim, "closed: "+render.Printable(render.ValueOf(r.Reason)))
	case l.Closed != nil:
		return out.Styled(render.Dim, "closed with its layer")
	case t.HiddenBy != nil:
		return out.Styled(render.Yellow, "hidden by "+render.ShortID(*t.HiddenBy))
	case len(t.Hides) == 0:
		return out.Styled(render.Green, "✓ in effect")
	}
	hidden := make([]string, len(t.Hides))
	for i, id := range t.Hides {
		hidden[i] = render.ShortID(id)
	}
	return out.Styled(render.Green, "✓ in effect") + ", hides " + strings.Join(hidden, ", ")
}
