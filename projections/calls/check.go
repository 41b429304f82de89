package calls

import (
	"slices"
	"sort"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// checkOffers checks the tools that a turn offers. Most turns repeat the offer of an
// earlier turn. checkOffers therefore skips an offer whose tools were all in effect
// at its last check, if no layer or registration has changed since then.
func (s *Checker) checkOffers(known *checkedSession, e events.TurnMaterialized, offer int, v events.Envelope) {
	if known.allLive[offer] == s.changes+1 && hidesOnlyIn(e) {
		return
	}
	if s.checkEachOffered(known, e, v) {
		known.allLive[offer] = s.changes + 1
	}
}

// checkEachOffered checks each tool that a turn offers, and reports whether all of
// these tools are in effect after the turn.
func (s *Checker) checkEachOffered(known *checkedSession, e events.TurnMaterialized, v events.Envelope) bool {
	layers, heard, all := layersOf(e), known.materializedAfter(v), true
	for _, t := range e.Tools {
		all = s.checkOffered(known, t, e.Observed, layers, heard, v) && all
	}
	return all
}

// hidesOnlyIn reports whether each hidden tool of a turn is in the layer of one of
// its offered tools. If not, the turn names further layers, and the result of an
// earlier check of the same offer does not apply.
func hidesOnlyIn(e events.TurnMaterialized) bool {
	for _, h := range e.Hidden {
		if !slices.ContainsFunc(e.Tools, func(t domain.Offered) bool { return t.Layer == h.Layer }) {
			return false
		}
	}
	return true
}

// layersOf returns the layers of the offered and of the hidden tools of a turn, each
// layer once. The turn may have used further layers, which its event does not record.
func layersOf(e events.TurnMaterialized) (layers []domain.LayerID) {
	add := func(id domain.LayerID) {
		if !slices.Contains(layers, id) {
			layers = append(layers, id)
		}
	}
	for _, t := range e.Tools {
		add(t.Layer)
	}
	for _, h := range e.Hidden {
		add(h.Layer)
	}
	return layers
}

// materializedAfter returns the ordinal of an event that precedes the materialization
// of the turn v. The runner materializes a turn after the event that caused it. If v
// names no cause, or names the last event of the session, the result is the ordinal
// of that last event. Otherwise prompts or late results arrived in between, and the
// result is the ordinal of the last event that the run itself appended.
func (known *checkedSession) materializedAfter(v events.Envelope) int {
	if v.Causation.IsZero() || v.Causation == known.Last {
		return known.LastOrdinal
	}
	return known.LastRunOrdinal
}

// checkOffered reports a breach unless the offered registration has the tool t and
// was in effect at some time between the event with the ordinal heard and the turn v.
// It accepts a registration that was closed or hidden in between. A turn that was
// only observed may offer tools that are not in effect. checkOffered returns true if
// the tool is in effect after the turn.
func (s *Checker) checkOffered(known *checkedSession, t domain.Offered, observed bool, layers []domain.LayerID, heard int, v events.Envelope) bool {
	key := Key{Session: known.ID}
	r := s.registrations.Get(t.Registration)
	if r == nil || r.Layer != t.Layer || !slices.Contains(r.Names, t.Name) {
		s.report(exception(NoRegistration, key, string(t.Name), s.at(v), "the turn offers %s of %s, which does not have it", t.Registration, t.Layer))
		return false
	}
	layer := s.layer(t.Layer)
	if observed {
		return layer != nil && layer.To == 0 && r.To == 0
	}
	if layer == nil || !layer.reaches(heard) || !r.reaches(heard) {
		s.report(exception(NotLive, key, string(t.Name), s.at(v), "%s had ended before the turn was put together", t.Registration))
		return false
	}
	if by, since, hidden := s.hiderOf(t, r, layer, layers); hidden {
		if since < heard {
			s.report(exception(NotLive, key, string(t.Name), s.at(v), "%s was hidden by %s before the turn was put together", t.Registration, by))
		}
		return false
	}
	return layer.To == 0 && r.To == 0
}

// hiderOf returns the registration by, which hides the registration r of the offered
// tool t, and the ordinal since which it hides r. ok is false if r is not hidden. A
// registration of the same name hides r if it is later in the same layer, or if it is
// in a higher open layer among layers. Of several, hiderOf returns the first that hid
// r. It ignores closed registrations, because a registry records a closing before it
// materializes a later turn.
func (s *Checker) hiderOf(t domain.Offered, r *registrationSpan, own *layerSpan, layers []domain.LayerID) (by domain.RegistrationID, since int, ok bool) {
	for _, id := range layers {
		over := s.layer(id)
		if over == nil || over.To != 0 || id != t.Layer && over.Placement <= own.Placement {
			continue
		}
		active := over.Active[t.Name]
		if id == t.Layer { // only later ones
			n := sort.Search(len(active), func(i int) bool { return active[i].From > r.From })
			active = active[n:]
		}
		if len(active) == 0 {
			continue
		}
		if from := max(active[0].From, over.From); !ok || from < since {
			by, since, ok = active[0].ID, from, true
		}
	}
	return by, since, ok
}

// checkTurn returns the offer of a turn of the session, and whether the session has
// the turn. It reports a missing turn as a breach, except if the session is an import
// and the event names no turn.
func (s *Checker) checkTurn(known *checkedSession, key Key, tool string, turn domain.TurnID, v events.Envelope) ([]domain.Offered, bool) {
	if i, ok := known.turns[turn]; ok {
		return known.Offers[known.Turns[i].Offer], true
	}
	if !known.Imported || !turn.IsZero() {
		s.report(exception(NoMaterialization, key, tool, s.at(v), "%s names turn %q, which the session does not have", v.Event.Kind(), turn))
	}
	return nil, false
}

// checkSame reports a breach if a reply repeats the ID of the call c with another
// name or input. An import may repeat IDs.
func (s *Checker) checkSame(known *checkedSession, c *checkedCall, asked domain.Call, v events.Envelope) {
	if !known.Imported && (c.Tool != asked.Name || c.Input != digest(asked.Input)) {
		s.report(exception(AskedAsAnother, known.key(c), c.Tool, s.at(v), "it is asked for again, for %q or with another input", asked.Name))
	}
}

// checkOrder reports a breach if the log has an event of the call c before the reply
// that asks for c. It reports none for an import, whose file may have a result first.
func (s *Checker) checkOrder(known *checkedSession, c *checkedCall, v events.Envelope) {
	if !known.Imported && c.State != "" {
		s.report(exception(NeverAsked, known.key(c), c.Tool, s.at(v), "it is asked for after it was %s", c.State))
	}
}

// checkStart reports a breach if a call starts after its settlement, or starts a
// second time, unless both starts are idempotent. The call must run under the
// registration that its turn offered, or under another one with the same fingerprint.
func (s *Checker) checkStart(known *checkedSession, c *checkedCall, e events.CallStarted, v events.Envelope) {
	again := func(law Law, format string, args ...any) {
		s.report(exception(law, known.key(c), c.Tool, s.at(v), format, args...))
	}
	switch {
	case c.State == Settled:
		again(StartedAfterEnd, "it ended in %s", c.SettledBy)
	case c.State == Begun && !(c.Idempotent && e.Idempotent):
		again(StartedTwice, "it began in %s", c.Places.Started.Event)
	}
	s.checkNames(known, c, e.Turn, e.Offered, v)
	effective := e.Effective
	if effective.IsZero() || effective.Registration == e.Offered.Registration {
		return
	}
	if effective.Fingerprint.IsZero() || effective.Fingerprint != e.Offered.Fingerprint {
		again(NotOffered, "it runs under %s, and the turn offered %s", effective.Registration, e.Offered.Registration)
	}
}

// checkEnd checks the first settlement of a call: its turn and its registration, and,
// unless the session is an import, that it agrees with the start of the call.
func (s *Checker) checkEnd(known *checkedSession, c *checkedCall, e events.CallSettled, v events.Envelope) {
	s.checkNames(known, c, e.Turn, e.Offered, v)
	if effective := e.Effective; !effective.IsZero() && s.registrations.Get(effective.Registration) == nil {
		s.report(exception(NoRegistration, known.key(c), c.Tool, s.at(v), "%s is said to be in effect, and was never registered", effective.Registration))
	}
	if !known.Imported && c.Asked {
		s.checkBegan(known, c, e, v)
	}
}

// checkNames checks the turn and the registration that the start or the settlement of
// a call names. The reply to this turn must have asked for the call, and the turn
// must have offered exactly this registration. checkNames ignores an orphan, a call
// that no reply asks for, because other checks report it.
func (s *Checker) checkNames(known *checkedSession, c *checkedCall, turn domain.TurnID, offered domain.Offered, v events.Envelope) {
	if !c.Asked {
		return
	}
	tools, ok := s.checkTurn(known, known.key(c), c.Tool, turn, v)
	if !ok {
		return
	}
	if turn != c.Turn && !known.Imported {
		s.report(exception(NoMaterialization, known.key(c), c.Tool, s.at(v), "%s names turn %s, and %s asked for it", v.Event.Kind(), turn, c.Turn))
		return
	}
	if !offered.IsZero() && !slices.Contains(tools, offered) {
		s.report(exception(NotOffered, known.key(c), c.Tool, s.at(v), "%s names %s, which the turn does not offer as that", v.Event.Kind(), offered.Registration))
	}
}

// checkBegan checks that the settlement of a call agrees with its start. If the call
// has a start, the settlement has Began set and an outcome that a running call can
// have. If it has no start, Began is not set and the outcome does not require a
// start.
func (s *Checker) checkBegan(known *checkedSession, c *checkedCall, e events.CallSettled, v events.Envelope) {
	begun := c.State == Begun
	switch {
	case begun && !e.Began:
		s.report(exception(StartDenied, known.key(c), c.Tool, s.at(v), "it began in %s, and its settlement says that it did not", c.Places.Started.Event))
	case begun && !mayRun(e.Outcome):
		s.report(exception(StartDenied, known.key(c), c.Tool, s.at(v), "it began in %s, and ended %s, as only a call that did not can", c.Places.Started.Event, e.Outcome))
	case !begun && (e.Began || mustRun(e.Outcome)):
		s.report(exception(StartMissing, known.key(c), c.Tool, s.at(v), "it ended %s, and no start is on record", e.Outcome))
	}
}

// mayRun reports whether a call that began can have this outcome. The registry gives
// the excluded outcomes before it runs a tool.
func mayRun(o domain.Outcome) bool {
	switch o {
	case domain.UnknownTool, domain.Stale, domain.InvalidInput, domain.Disabled:
		return false
	}
	return true
}

// mustRun reports whether only a call that began can have this outcome.
func mustRun(o domain.Outcome) bool {
	switch o {
	case domain.Succeeded, domain.InvalidOutput, domain.RetentionFailed, domain.MediaTooLarge, domain.Lost:
		return true
	}
	return false
}
