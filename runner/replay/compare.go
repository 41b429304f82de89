package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A side is one of the two sessions of a comparison.
type side struct {
	entries []labeled
	labels  *labeler
	index   map[string]int
	// shown has the messages that each turn showed to the model.
	shown map[int][]shownMessage
}

// A shownMessage is a message that a model was shown: what it belongs to, and the SHA-256
// of its content.
type shownMessage struct {
	of  string
	sum [sha256.Size]byte
}

// compare returns the report on two sessions with the events of their layers. gone has the
// labels of the calls of which an output is not kept any more.
func (t *Tape) compare(replay domain.SessionID, replayed []events.Envelope, gone map[string]bool) *Report {
	r := &Report{
		Session: t.session, Replay: replay, Mode: "tape", Turns: len(t.turns), Events: len(t.entries),
		Differences: []Difference{}, Incomparable: []Incomparable{},
	}
	old := newSide(t.session, envelopes(t.entries), t.past(1))
	own := newSide(replay, replayed, t.past(2))
	c := comparison{Report: r, tape: t, old: old, own: own, gone: gone, faulty: map[string]bool{}}
	for _, e := range old.entries {
		switch ev := e.Event.(type) {
		case events.TurnMaterialized:
			r.Steps = append(r.Steps, Step{Turn: e.turn})
		case events.ReplyReceived:
			for _, call := range ev.Calls {
				r.Calls++
				r.Steps = append(r.Steps, Step{Turn: e.turn, Call: call.ID, Tool: call.Name})
			}
		}
	}
	c.events()
	c.order()
	c.conversations()
	c.notes()
	r.Same = len(r.Differences) == 0
	return r
}

func envelopes(entries []labeled) []events.Envelope {
	all := make([]events.Envelope, len(entries))
	for i, e := range entries {
		all[i] = e.Envelope
	}
	return all
}

// past returns one of the copies of the past, or nil if the session is no fork.
func (t *Tape) past(n int) *conversation.State {
	if len(t.pasts) == 0 {
		return nil
	}
	return t.pasts[n]
}

// newSide labels the events of a session and folds the conversation of each turn. past is
// that of a fork, which newSide uses up, or nil.
func newSide(session domain.SessionID, recorded []events.Envelope, past *conversation.State) *side {
	s := &side{labels: newLabeler(session), index: map[string]int{}, shown: map[int][]shownMessage{}}
	projection := conversation.Projection()
	state := projection.Init()
	sums := map[messageKey][sha256.Size]byte{}
	for i, v := range recorded {
		e := s.labels.add(v)
		s.entries = append(s.entries, e)
		s.index[e.label] = i
		state = projection.Apply(state, v)
		if _, ok := v.Event.(events.SessionForked); ok && past != nil {
			state = conversation.Inherit(past, state)
		}
		if turn, ok := v.Event.(events.TurnMaterialized); ok && turn.Summarizes.IsZero() {
			s.shown[e.turn] = s.showing(state, sums)
		}
	}
	return s
}

// A messageKey identifies the content of a message that a model reads. A compaction leaves
// out results, and a call without an end has another result than later.
type messageKey struct {
	of        string
	compacted domain.EventID
	open      bool
}

// showing returns the messages that a model reads in a state. sums caches their digests.
func (s *side) showing(state *conversation.State, sums map[messageKey][sha256.Size]byte) []shownMessage {
	var shown []shownMessage
	for _, m := range state.ModelMessages() {
		key := messageKey{of: cmp.Or(s.labels.ids[m.Message.String()], m.Message.String(), "summary"), open: m.Reading.Error == conversation.OutcomeUnknown}
		if turn, ok := s.labels.messages[m.Message]; ok && m.Role == conversation.ToolRole {
			key.of = fmt.Sprintf("end of %s of turn %d", m.Call.ID, turn)
		} else if m.Role == conversation.ToolRole {
			key.of = fmt.Sprintf("end of %s of %s", m.Call.ID, m.Message)
		}
		if state.Compaction != nil {
			key.compacted = state.Compaction.Event
		}
		sum, known := sums[key]
		if !known {
			sum = s.sum(m.Role, m.Text, m.Media, m.Calls, m.Items, m.Call.ID, m.Reading)
			sums[key] = sum
		}
		shown = append(shown, shownMessage{key.of, sum})
	}
	return shown
}

// sum returns the digest of values without IDs of the ledger.
func (s *side) sum(values ...any) [sha256.Size]byte {
	data, err := json.Marshal(values)
	if err != nil {
		data = fmt.Append(nil, values...)
	}
	return sha256.Sum256([]byte(s.labels.plain(string(data))))
}

// A comparison compares two sides into a report.
type comparison struct {
	*Report
	tape     *Tape
	old, own *side
	gone     map[string]bool
	// faulty has the labels of the events that differ.
	faulty map[string]bool
}

// comparable reports whether an event of the recording has a counterpart.
func (c *comparison) comparable(e events.Event) bool {
	switch e.(type) {
	case events.LateResultObserved, events.OutputPruned, events.SettingChanged, events.SessionSpawned, events.ContextAdded, events.CommandRan:
		return false
	case events.LayerOpened, events.ToolsRegistered, events.RegistrationClosed, events.LayerClosed:
		return false // the replay took them from the tape; the offers and ends show them
	case events.CallStarted, events.SessionInterrupted:
		return !c.tape.imported
	}
	return true
}

// events compares the events of both sides by their labels.
func (c *comparison) events() {
	for _, e := range c.old.entries {
		if !c.comparable(e.Event) {
			continue
		}
		i, ok := c.own.index[e.label]
		if !ok {
			c.differ(e, Difference{Kind: MissingEvent, Recorded: c.text(c.old, e.Event)})
			continue
		}
		c.event(e, c.own.entries[i])
	}
	derived := c.derivedRules()
	for _, e := range c.own.entries {
		if text, ok := e.Event.(events.TextRecorded); ok && derived[text.Digest] {
			continue
		}
		if _, ok := c.old.index[e.label]; !ok && c.comparable(e.Event) {
			c.differ(e, Difference{Kind: ExtraEvent, Replayed: c.text(c.own, e.Event)})
		}
	}
}

// derivedRules returns the digests of the texts of rules that the replay derived for turns
// whose rules are on record by their digest alone.
func (c *comparison) derivedRules() map[string]bool {
	digests := map[string]bool{}
	for _, e := range c.own.entries {
		turn, ok := e.Event.(events.TurnMaterialized)
		if !ok || turn.RulesText == "" {
			continue
		}
		if i, ok := c.old.index[e.label]; ok {
			if recorded, ok := c.old.entries[i].Event.(events.TurnMaterialized); ok && recorded.RulesText == "" {
				digests[turn.RulesText] = true
			}
		}
	}
	return digests
}

// differ adds a difference at an event.
func (c *comparison) differ(e labeled, d Difference) {
	c.faulty[e.label] = true
	d.Event, d.Turn, d.Call = e.label, e.turn, e.call
	c.Differences = append(c.Differences, d)
}

// text returns an event as JSON, for a person.
func (c *comparison) text(s *side, e events.Event) string {
	data, err := json.Marshal(e)
	if err != nil {
		return err.Error()
	}
	return s.labels.plain(string(data))
}

// ignored are the fields that are not compared: IDs that events define, times, and fields
// that a replay sets itself.
var ignored = map[string]bool{
	"SessionOpened.session": true, "SessionOpened.origin": true,
	"CallStarted.process": true, "CallSettled.ran_ms": true,
}

// kinds names the kinds of differences by event and field. A field without a row has the
// kind of its event.
var kinds = map[string]DifferenceKind{
	"PromptAdmitted": PromptDiffers, "TurnMaterialized": RequestDiffers, "TurnMaterialized.hidden": HiddenDiffers,
	"TextRecorded": RequestDiffers, "ReplyReceived": ReplyDiffers, "ReplyRefused": ReplyDiffers, "ProviderFailed": ReplyDiffers,
	"CallStarted": StartDiffers, "CallsAdded": StartDiffers, "LoopDetected": StartDiffers,
	"CallSettled": OutputDiffers, "CallSettled.outcome": OutcomeDiffers, "CallSettled.interruption": OutcomeDiffers,
	"CallSettled.began": OutcomeDiffers, "CallSettled.rule": OutcomeDiffers, "CallSettled.allowed": DecisionDiffers,
	"CallSettled.retained": KeptDiffers, "CallSettled.effective": StalenessDiffers, "CallSettled.agrees": StalenessDiffers,
	"CallSettled.changed_by": StalenessDiffers, "CallSettled.offered": StalenessDiffers, "CallStarted.offered": StalenessDiffers, "CallStarted.effective": StalenessDiffers,
	"PermissionRequested": DecisionDiffers, "PermissionDecided": DecisionDiffers, "ApprovalSaved": DecisionDiffers,
	"QuestionAsked": DecisionDiffers, "QuestionAnswered": DecisionDiffers,
	"SessionInterrupted": InterruptionDiffers, "ContextCompacted": CompactionDiffers,
}

// event compares the fields of two events with the same label.
func (c *comparison) event(old, own labeled) {
	kind := old.Event.Kind()
	a, b := fields(old.Event), fields(own.Event)
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	var differing []string
	for name := range names {
		if !ignored[kind+"."+name] && !c.equal(a[name], b[name]) {
			differing = append(differing, name)
		}
	}
	slices.SortFunc(differing, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	for _, name := range differing {
		if why := c.excused(old, name); why != "" {
			continue
		}
		if turn, ok := old.Event.(events.TurnMaterialized); ok && turn.RulesText == "" && (name == "rules" || name == "rules_text") {
			continue // the rules are on record by their digest alone
		}
		if kind == "TurnMaterialized" && name == "tools" {
			c.tools(old, own)
			continue
		}
		d := Difference{Kind: cmp.Or(kinds[kind+"."+name], kinds[kind], SessionDiffers), Field: name}
		d.Recorded, d.Replayed = c.shownValue(c.old, a[name]), c.shownValue(c.own, b[name])
		c.differ(old, d)
	}
}

// rank orders the fields of an event, the most telling one first.
func rank(field string) int {
	for i, name := range []string{"outcome", "interruption", "rule", "began", "tools"} {
		if field == name {
			return i
		}
	}
	return 100
}

// fields returns the fields of an event by their JSON names.
func fields(e events.Event) map[string]any {
	data, err := json.Marshal(e)
	all := map[string]any{}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		all["error"] = err.Error()
	}
	return all
}

// equal reports whether two values are equal but for the IDs of both ledgers.
func (c *comparison) equal(a, b any) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && (a == b || c.old.labels.plain(a) == c.own.labels.plain(b))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, c.equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			if other, has := b[key]; !has || !c.equal(value, other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// shownValue returns a value as text for a person.
func (c *comparison) shownValue(s *side, value any) string {
	if value == nil {
		return ""
	}
	if text, ok := value.(string); ok {
		return s.labels.plain(text)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return s.labels.plain(string(data))
}

// tools compares the offers of a turn by the names of the tools.
func (c *comparison) tools(old, own labeled) {
	a, b := old.Event.(events.TurnMaterialized), own.Event.(events.TurnMaterialized)
	found := len(c.Differences)
	for _, o := range a.Tools {
		other, ok := b.Offer().Find(string(o.Name))
		switch {
		case !ok:
			c.differ(old, Difference{Kind: OfferDiffers, Field: "tools", Recorded: string(o.Name)})
		case o.Fingerprint != other.Fingerprint:
			c.differ(old, Difference{Kind: DefinitionDiffers, Field: string(o.Name), Recorded: o.Fingerprint.String(), Replayed: other.Fingerprint.String()})
		case !c.equal(o.Registration.String(), other.Registration.String()):
			c.differ(old, Difference{
				Kind: RegistrationDiffers, Field: string(o.Name),
				Recorded: c.shownValue(c.old, o.Registration.String()), Replayed: c.shownValue(c.own, other.Registration.String()),
			})
		}
	}
	for _, o := range b.Tools {
		if _, ok := a.Offer().Find(string(o.Name)); !ok {
			c.differ(old, Difference{Kind: OfferDiffers, Field: "tools", Replayed: string(o.Name)})
		}
	}
	if len(c.Differences) == found && !slices.Equal(namesOf(a.Tools), namesOf(b.Tools)) {
		c.differ(old, Difference{
			Kind: OfferDiffers, Field: "order of the tools", Recorded: fmt.Sprint(namesOf(a.Tools)), Replayed: fmt.Sprint(namesOf(b.Tools)),
		})
	}
}

func namesOf(tools []domain.Offered) (names []domain.Name) {
	for _, o := range tools {
		names = append(names, o.Name)
	}
	return names
}

// order compares the order of the events that both sides have, and reports the first event
// that is at another place.
func (c *comparison) order() {
	both := func(s, other *side) (labels []labeled) {
		for _, e := range s.entries {
			if _, ok := other.index[e.label]; ok && c.comparable(e.Event) {
				labels = append(labels, e)
			}
		}
		return labels
	}
	a, b := both(c.old, c.own), both(c.own, c.old)
	for i, e := range a {
		if i < len(b) && b[i].label != e.label {
			c.differ(e, Difference{Kind: OrderDiffers, Recorded: e.label, Replayed: b[i].label})
			return
		}
	}
}

// conversations compares what each turn showed to the model. It reports a message once, and
// not if an event that records it differs.
func (c *comparison) conversations() {
	reported := map[string]bool{}
	for _, i := range c.tape.turns {
		e := c.old.entries[i]
		a, b := c.old.shown[e.turn], c.own.shown[e.turn]
		if _, ok := c.own.index[e.label]; !ok {
			continue
		}
		for k := range max(len(a), len(b)) {
			var d Difference
			switch {
			case k < len(a) && k < len(b) && a[k] == b[k]:
				continue
			case k < len(a) && k < len(b) && a[k].of == b[k].of:
				d = Difference{Recorded: a[k].of, Replayed: b[k].of}
			case k < len(a):
				d = Difference{Recorded: a[k].of}
			default:
				d = Difference{Replayed: b[k].of}
			}
			of := cmp.Or(d.Recorded, d.Replayed)
			if !c.faulty[of] && !reported[of] && !c.unlike(of) {
				reported[of] = true
				d.Kind, d.Field = ConversationDiffers, "message "+of
				c.differ(e, d)
			}
			break
		}
	}
}
