package views

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/staleness"
)

// A turnDetail is the JSON result of `ledger turn show`: the tools that the turn offered
// to the model, the tools that it hid from the model, and the calls of the turn.
type turnDetail struct {
	Turn     domain.TurnID    `json:"turn"`
	Session  domain.SessionID `json:"session"`
	Message  domain.MessageID `json:"message"` // the reply that the turn was made for
	Agent    *domain.AgentID  `json:"agent"`
	Model    *string          `json:"model"`
	Provider *string          `json:"provider"` // the program that serves the model
	Client   *string          `json:"client"`   // the program that runs the session
	Flags    []string         `json:"flags"`    // the names that the user set
	System   *string          `json:"system"`   // the system prompt; null: none is recorded
	Event    domain.EventID   `json:"event"`    // the TurnMaterialized of the turn, the first if an import has several
	Position events.Position  `json:"position"`
	Time     render.Timestamp `json:"time"`
	Rules    *string          `json:"rules"`    // digest of the permission rules in force; null: not recorded
	Disabled bool             `json:"disabled"` // no tool was offered, as the turn was the last step allowed
	Observed bool             `json:"observed"` // an import saw the use of these tools; the turn may have offered others
	// Parameters and Schemas are the request as the provider sent it, without messages;
	// null: not recorded.
	Parameters  json.RawMessage   `json:"parameters"`
	Schemas     json.RawMessage   `json:"schemas"`
	Instruction *string           `json:"instruction"` // a text behind the messages
	Compacted   *domain.EventID   `json:"compacted"`   // the ContextCompacted that says what the request leaves out
	Summarizes  *domain.MessageID `json:"summarizes"`  // the turn asked for a summary of the messages up to this one
	Tools       []turnTool        `json:"tools"`       // in the order in which the model saw them
	Hidden      []hiddenTool      `json:"hidden"`      // tools that rules or conditions hid from the model
	Calls       []callRow         `json:"calls"`
	// Before is the turn of the session before this one, and Changes are the differences
	// between the two; null: not asked for, or there is none.
	Before  *domain.TurnID `json:"before"`
	Changes []turnChange   `json:"changes"`
	calls   []calls.Call   // the same as Calls, for the table
	// described has the digests of the descriptions that were made for the turn, by tool.
	described map[domain.Name]string
	// system, parameters, schemas and instruction are the digests of texts, and then the
	// texts.
	system, parameters, schemas, instruction string
}

// A turnTool is a tool that a turn offered, compared with the registration that is
// in effect now.
type turnTool struct {
	offeredRow
	Placement   *string          `json:"placement"` // of the layer of the registration
	Location    *string          `json:"location"`  // of the layer of the registration
	Description *string          `json:"description"`
	Input       json.RawMessage  `json:"input_schema"`  // null: not recorded
	Output      json.RawMessage  `json:"output_schema"` // null: not recorded
	Action      *string          `json:"action"`
	Idempotent  bool             `json:"idempotent"`
	Registered  render.Timestamp `json:"registered"`
	Stale       bool             `json:"stale"`      // the offered registration is no longer in effect
	Agrees      bool             `json:"agrees"`     // the effective registration has the same definition
	Effective   *offeredRow      `json:"effective"`  // the registration now in effect; null: no registration
	ChangedBy   *eventPlace      `json:"changed_by"` // the event that made the tool stale
}

// A hiddenTool is a tool that a turn hid from the model, with the permission rule that
// hid it, or the conditions that the turn did not meet.
type hiddenTool struct {
	offeredRow
	Rule  *domain.Rule            `json:"rule"`  // null: no rule hid it
	Unmet []domain.UnmetCondition `json:"unmet"` // of each alternative of the tool the first
	Why   string                  `json:"why"`   // the reason as a text
}

// newHiddenTool returns the row of a hidden tool.
func newHiddenTool(h events.HiddenTool) hiddenTool {
	row := hiddenTool{offeredRow: *newOfferedRow(h.Offered), Rule: render.OrNull(h.Rule), Unmet: append([]domain.UnmetCondition{}, h.Unmet...)}
	if row.Rule != nil {
		row.Why = "by " + ruleText(row.Rule)
		return row
	}
	reasons := make([]string, len(h.Unmet))
	for i, c := range h.Unmet {
		reasons[i] = c.String()
	}
	row.Why = strings.Join(reasons, "; ")
	return row
}

// ShowTurn prints the turn that id identifies.
func ShowTurn(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, id string, opts ShowOptions) error {
	full := opts.FullInputs
	turn, err := query.Turn(r, id)
	if err != nil {
		return err
	}
	d, err := loadTurn(ctx, s, r, turn)
	if err != nil {
		return err
	}
	if opts.Schemas {
		if err := d.compare(ctx, s, r, turn); err != nil {
			return err
		}
	}
	if d.calls, err = r.Calls(index.CallQuery{Turn: turn.Turn}); err != nil {
		return err
	}
	asked, err := query.CallsWithInputs(ctx, s, d.calls)
	if err != nil {
		return err
	}
	d.Calls = newCallRows(asked, full)
	return out.Object(d, func() {
		printTurn(out, d)
		if opts.Schemas {
			printSchemas(out, d)
		}
		printTurnCalls(out, asked, full)
	})
}

// loadTurn returns a turn with its texts and tools, and without its calls.
func loadTurn(ctx context.Context, s *stores.Store, r *index.Snapshot, turn index.Turn) (d turnDetail, err error) {
	offer, tools, err := r.TurnOffer(turn)
	if err != nil {
		return d, err
	}
	d = turnDetail{
		Turn: turn.Turn, Session: turn.Session, Event: turn.Event,
		Tools: []turnTool{}, Hidden: []hiddenTool{}, Calls: []callRow{},
	}
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(turn.Session), turn.Revision-1) {
		if err != nil {
			return d, err
		}
		if e, ok := v.Event.(events.TurnMaterialized); ok && e.Turn == turn.Turn {
			d.apply(e, v)
		}
		if v.Revision >= turn.LastRevision {
			break
		}
	}
	texts := textReader{ctx, s, r, turn.Session}
	for _, part := range []struct {
		to     *string
		digest string
	}{{&d.system, d.system}, {&d.instruction, d.instruction}, {&d.parameters, d.parameters}, {&d.schemas, d.schemas}} {
		if *part.to, _, err = texts.read(part.digest); err != nil {
			return d, err
		}
	}
	d.System, d.Instruction = render.OrNull(d.system), render.OrNull(d.instruction)
	d.Parameters, d.Schemas = render.RawJSON([]byte(d.parameters)), render.RawJSON([]byte(d.schemas))
	for _, o := range offer.Offers {
		tool, err := newTurnTool(ctx, s, tools, offer.Layers, o)
		if err != nil {
			return d, err
		}
		if text, ok, err := texts.read(d.described[o.Name]); err != nil {
			return d, err
		} else if ok {
			tool.Description = &text
		}
		d.Tools = append(d.Tools, tool)
	}
	return d, nil
}

// A textReader reads the texts that a session records by their digests.
type textReader struct {
	ctx     context.Context
	s       *stores.Store
	r       *index.Snapshot
	session domain.SessionID
}

// read returns the text with a digest, and whether the session records it.
func (t textReader) read(digest string) (string, bool, error) {
	if digest == "" {
		return "", false, nil
	}
	at, err := t.r.TextPlace(t.session, digest)
	if err != nil || at == 0 {
		return "", false, err
	}
	for v, err := range t.s.Ledger.Read(t.ctx, events.SessionStream(t.session), at-1) {
		if err != nil {
			return "", false, err
		}
		if e, ok := v.Event.(events.TextRecorded); ok && e.Digest == digest {
			return e.Text, true, nil
		}
		break
	}
	return "", false, fmt.Errorf("%w: session %s does not record the text %s at revision %d", index.ErrDamagedIndex, t.session, digest, at)
}

// apply adds a TurnMaterialized event of the turn to d. Only the first event of the turn
// sets the scalar fields of d. An import can record further events, which add tools.
func (d *turnDetail) apply(e events.TurnMaterialized, v events.Envelope) {
	if v.ID == d.Event {
		d.Message, d.Agent, d.Model = e.Message, render.OrNull(e.Agent), render.OrNull(e.Model)
		d.Rules, d.Provider, d.Client = render.OrNull(e.Rules), render.OrNull(e.Provider), render.OrNull(e.Client)
		d.Flags, d.described = append([]string{}, e.Flags...), map[domain.Name]string{}
		d.system, d.parameters, d.schemas, d.instruction = e.System, e.Parameters, e.Schemas, e.Instruction
		d.Compacted, d.Summarizes = render.OrNull(e.Compacted), render.OrNull(e.Summarizes)
		for _, t := range e.Described {
			d.described[t.Name] = t.Text
		}
		d.Position, d.Time, d.Disabled, d.Observed = v.Position, render.Timestamp(v.Time), e.Disabled, e.Observed
	}
	for _, h := range e.Hidden {
		d.Hidden = append(d.Hidden, newHiddenTool(h))
	}
}

// newTurnTool returns the row of an offered tool, with the registration now in effect
// for its name. If that differs from the offered registration, the tool is stale and
// newTurnTool finds the event that made it stale in the layers of the turn.
func newTurnTool(ctx context.Context, s *stores.Store, state *catalog.State, layers []domain.LayerID, o staleness.OfferedTool) (turnTool, error) {
	t := turnTool{
		offeredRow: offeredRow{o.Name, o.Registration, o.Layer, render.OrNull(o.Fingerprint.String())},
		Input:      render.RawJSON(nil), Output: render.RawJSON(nil), Stale: o.Stale, Agrees: o.Agrees, Effective: newOfferedRow(o.Effective),
	}
	if layer, ok := state.Layer(o.Layer); ok {
		t.Placement, t.Location = render.OrNull(layer.Placement.String()), render.OrNull(layer.Location)
		for _, r := range layer.Registrations {
			if r.ID == o.Registration {
				t.describe(r, o.Name)
			}
		}
	}
	if o.ChangedBy.IsZero() {
		return t, nil
	}
	v, found, err := findEvent(ctx, s, layers, o.ChangedBy)
	if found {
		t.ChangedBy = render.OrNull(newEventPlace(v))
	}
	return t, err
}

// describe sets the description, the action and the other definition fields of t from
// the tool with this name in the registration r.
func (t *turnTool) describe(r catalog.Registration, name domain.Name) {
	t.Registered = render.Timestamp(r.At)
	for _, tool := range r.Tools {
		if tool.Name == name {
			t.Description, t.Action, t.Idempotent = render.OrNull(tool.Description), render.OrNull(tool.Action), tool.Idempotent
			t.Input, t.Output = render.RawJSON(tool.Input), render.RawJSON(tool.Output)
		}
	}
}

// printTurn prints a turn and its tools for a person.
func printTurn(out *render.Printer, d turnDetail) {
	parameters := ""
	if d.parameters != "" {
		parameters = string(d.Parameters)
	}
	out.Fields(
		"turn", d.Turn.String(), "session", d.Session.String(), "for reply", d.Message.String(),
		"agent", render.Printable(stringOf(d.Agent)), "model", render.Printable(render.ValueOf(d.Model)),
		"provider", render.Printable(render.ValueOf(d.Provider)), "client", render.Printable(render.ValueOf(d.Client)), "flags", render.Printable(strings.Join(d.Flags, ", ")),
		"asks for a summary up to", render.StringOf(d.Summarizes), "leaves out", render.StringOf(d.Compacted), "parameters", render.Printable(parameters),
		"time", out.LongTime(render.TimeOf(d.Time)), "position", d.Position.String(), "rules", render.ValueOf(d.Rules), "calls", outcomeCounts(out, d.calls),
	)
	out.Line("")
	if d.Observed {
		out.Line("An import observed these tools by their names; others may have been offered.\n")
	}
	t := render.Table{Head: []string{"~TOOL", "REGISTRATION", "~LAYER", "?FINGERPRINT", "NOW", "~DESCRIPTION"}, Empty: "No tools were offered."}
	for _, tool := range d.Tools {
		t.Add(string(tool.Tool), render.ShortID(tool.Registration), strings.TrimSpace(render.ValueOf(tool.Placement)+" "+render.Printable(render.ValueOf(tool.Location))),
			fingerprintText(tool.Fingerprint), currentText(out, tool), render.OneLine(render.ValueOf(tool.Description), render.TextWidth))
	}
	out.Table(t)
	for _, tool := range d.Tools {
		if tool.Stale {
			out.Line("\n%s is stale since %s", out.Styled(render.Bold, string(tool.Tool)), placeText(out, tool.ChangedBy))
		}
	}
	if len(d.Hidden) > 0 {
		out.Line("\n%s", out.Styled(render.Bold, "hidden from the model"))
		for _, h := range d.Hidden {
			out.Line("  %s  %s  %s", h.Tool, render.ShortID(h.Registration), render.Printable(h.Why))
		}
	}
	if d.System != nil {
		printSection(out, "system prompt", *d.System)
	}
	if d.Instruction != nil {
		printSection(out, "instruction behind the messages", *d.Instruction)
	}
}

// printTurnCalls prints the calls of a turn for a person.
func printTurnCalls(out *render.Printer, all []query.CallWithInput, full bool) {
	if len(all) == 0 {
		return
	}
	out.Line("\n%s", out.Styled(render.Bold, "called"))
	t := render.Table{Head: []string{"CALL", "~TOOL", "OUTCOME", "~INPUT"}, Unlimited: full}
	for _, c := range all {
		t.Add(render.ShortCallID(c.ID), render.OneLine(c.Tool, 30), out.Outcome(render.OutcomeOf(c.Call)), inputText(c.Input, full))
	}
	out.Table(t)
}

// currentText returns a text for a person: the offered tool is still in effect, gone or
// replaced.
func currentText(out *render.Printer, t turnTool) string {
	switch {
	case !t.Stale:
		return out.Styled(render.Green, "✓ in effect")
	case t.Effective == nil:
		return out.Styled(render.Yellow, "≠ gone")
	case t.Agrees:
		return out.Styled(render.Yellow, "≠ replaced by the same")
	}
	return out.Styled(render.Yellow, "≠ replaced")
}

// fingerprintText returns the first twelve characters of a fingerprint, or "not known"
// for nil.
func fingerprintText(f *string) string {
	if f == nil {
		return "not known"
	}
	return (*f)[:12]
}

// stringOf returns the string that v points to, or "" if v is nil.
func stringOf[T ~string](v *T) string {
	if v == nil {
		return ""
	}
	return string(*v)
}

// layerText returns the placement, the location or session, and the short ID of a layer.
func layerText(l catalog.LayerHistory) string {
	text := l.Placement.String()
	if l.Location != "" {
		text += " " + render.Printable(l.Location)
	}
	if !l.Session.IsZero() {
		text += " " + render.ShortID(l.Session)
	}
	return fmt.Sprintf("%s layer %s", text, render.ShortID(l.ID))
}
