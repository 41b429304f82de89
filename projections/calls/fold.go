package calls

import (
	"slices"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// apply folds one event and then packs the calls that the event settled. Events of
// sessions, processes and layers change separate parts of the state.
func apply(s *State, v events.Envelope) *State {
	s.kept.Folded++
	if known := s.session(v); known != nil {
		s.applySession(known, v)
		known.Apply(v)
		known.advance(v, s.kept.Folded)
	} else if !s.applyProcess(v) {
		s.applyLayer(v)
	}
	if e, ok := v.Event.(events.OutputPruned); ok {
		s.pruned(e, v)
	}
	s.packEnded()
	return s
}

// advance moves Last, LastOrdinal and LastRunOrdinal to the event v. It ignores a text: a
// text is appended together with the turn that names it, after the tools of the turn were
// chosen. It does not move LastRunOrdinal to events that others than the run append.
func (known *checkedSession) advance(v events.Envelope, ordinal int) {
	switch v.Event.(type) {
	case events.TextRecorded:
		return
	case events.PromptAdmitted, events.LateResultObserved:
	default:
		known.LastRunOrdinal = ordinal
	}
	known.LastOrdinal, known.Last = ordinal, v.ID
}

// at returns the Place of v, the event that is being folded.
func (s *State) at(v events.Envelope) Place {
	return Place{Event: v.ID, Revision: v.Revision, Position: v.Position, Ordinal: s.kept.Folded}
}

// session returns the session of the stream of v, or nil if the stream belongs to no
// session. At the first event of a stream it creates the session, and reports a
// breach if that event is not the opening of the session.
func (s *State) session(v events.Envelope) *checkedSession {
	if known, ok := s.streams[v.Stream]; ok {
		return known
	}
	id, ok := v.Stream.Session()
	if !ok {
		return nil
	}
	known, ok := s.sessions[id]
	s.streams[v.Stream] = known
	if ok {
		return known
	}
	known = &checkedSession{Session: Session{ID: id, Opened: v.Time}, number: len(s.kept.Sessions)}
	s.kept.Sessions = append(s.kept.Sessions, known)
	s.sessions[id], s.streams[v.Stream] = known, known
	if _, opens := v.Event.(events.SessionOpened); !opens {
		s.report(exception(NeverOpened, Key{Session: id}, "", s.at(v), "it begins with %s", v.Event.Kind()))
	}
	return known
}

// report stores an exception that no later event can remove.
func (s *State) report(f foundException) { s.kept.Found = append(s.kept.Found, f) }

// applySession folds what an event of a session's stream says about its turns, calls and
// permission requests.
func (s *State) applySession(known *checkedSession, v events.Envelope) {
	switch e := v.Event.(type) {
	case events.TurnMaterialized:
		s.materialized(known, e, v)
	case events.ReplyReceived:
		s.replied(known, e, v)
	case events.CallsAdded:
		s.added(known, e, v)
	case events.CallStarted:
		s.started(known, e, v)
	case events.CallSettled:
		s.settled(known, e, v)
	case events.LateResultObserved:
		s.late(known, e, v)
	case events.PermissionRequested:
		s.requested(known, e, v)
	case events.PermissionDecided:
		s.decided(known, e, v)
	case events.QuestionAsked:
		s.requested(known, events.PermissionRequested{Permission: e.Question, Message: e.Message, Call: e.Call, Action: "question"}, v)
	case events.QuestionAnswered:
		s.decided(known, events.PermissionDecided{Permission: e.Question, WaitedMS: e.WaitedMS}, v)
	case events.Unknown:
		known.Unknown = true
	}
}

// materialized folds a turn. A second event of the same turn adds tools to the offer
// of the turn; only the added tools are then checked.
func (s *State) materialized(known *checkedSession, e events.TurnMaterialized, v events.Envelope) {
	if i, again := known.turns.find(e.Turn); again {
		known.offered[i] = s.intern(known, projections.MergeOffers(s.kept.Offers[known.offered[i]], e.Tools))
		s.checkEachOffered(known, e, v)
		return
	}
	offer := s.intern(known, e.Tools)
	known.turns.add(e.Turn)
	known.offered = append(known.offered, offer)
	s.checkOffers(known, e, offer, v)
}

// intern returns the index of an offer in Offers, and adds the offer if it is new. It
// first compares the offer with the last one of the session, because most turns
// repeat it.
func (s *State) intern(known *checkedSession, tools []domain.Offered) int {
	if n := len(known.offered); n > 0 && slices.Equal(s.kept.Offers[known.offered[n-1]], tools) {
		return known.offered[n-1]
	}
	key := projections.OfferKey(tools)
	i, ok := s.offers[key]
	if !ok {
		i = len(s.kept.Offers)
		s.kept.Offers = append(s.kept.Offers, tools)
		s.allLive = append(s.allLive, 0)
		s.offers[key] = i
	}
	return i
}

// replied folds a reply with its calls. Several events with the same message are one
// reply.
func (s *State) replied(known *checkedSession, e events.ReplyReceived, v events.Envelope) {
	if _, again := known.answered.find(e.Message); !again {
		known.answered.add(e.Message)
		known.Replies++
	}
	s.checkTurn(known, Key{Session: known.ID, Message: e.Message}, "", e.Turn, v)
	for _, asked := range e.Calls {
		s.asked(known, Call{Message: e.Message, Turn: e.Turn}, asked, v)
	}
}

// added folds the calls that a running call made. The running call must have begun and
// not ended.
func (s *State) added(known *checkedSession, e events.CallsAdded, v events.Envelope) {
	var turn domain.TurnID
	parent := s.called(Key{known.ID, e.Message, e.Parent})
	if parent == nil || parent.State != Begun {
		s.report(exception(AddedOutside, Key{known.ID, e.Message, e.Parent}, "", s.at(v), "it adds %d calls and is not running", len(e.Calls)))
	}
	if parent != nil {
		turn = parent.Turn
	}
	for _, asked := range e.Calls {
		s.asked(known, Call{Message: e.Message, Turn: turn, Parent: e.Parent}, asked, v)
	}
}

// asked folds one call of a reply or of a running call; of has its message, turn and
// parent. The first event that asks for the call sets its turn, tool and input. asked
// only checks a repetition. In an import, the result may come before the reply; the call
// is an orphan until then.
func (s *State) asked(known *checkedSession, of Call, asked domain.Call, v events.Envelope) {
	c := s.call(known, of.Message, asked.ID, asked.Name)
	if !c.Asked.IsZero() {
		s.checkSame(known, c, asked, v)
		return
	}
	s.checkOrder(known, c, v)
	c.Ask(of.Turn, of.Parent, asked, v, s.at(v))
	known.Calls++
	known.Count(&c.Call, +1)
}

// call returns the record of a call, which the fold may change until the end of the
// event. It creates the record at the first event of the call, with the given tool;
// the tool of a later event is ignored.
func (s *State) call(known *checkedSession, message domain.MessageID, id domain.CallID, tool string) *callRecord {
	key := Key{known.ID, message, id}
	sum := hash(known.number, key)
	r := s.folding()
	if number, ok := s.find(r, known.number, key, sum); ok {
		return s.checkOut(r, number)
	}
	c := s.store.newRecord()
	c.session, c.Call = known.number, known.NewCall(message, id, tool)
	s.store.add(c, sum)
	return s.checkOut(r, c.number)
}

// started folds the start of a call. If the call already has a start or a settlement,
// started only checks the event.
func (s *State) started(known *checkedSession, e events.CallStarted, v events.Envelope) {
	c := s.call(known, e.Message, e.Call, e.Tool)
	s.checkStart(known, c, e, v)
	if c.Start(e, v, s.at(v)) {
		c.Idempotent = e.Idempotent
	}
}

// settled folds the settlement of a call. It reports a second settlement as a breach
// and ignores it otherwise. The State keeps only the parts of the event that lists of
// calls and the checks need: it drops the outputs, cuts the texts, and stores the
// managed outputs in Retained.
func (s *State) settled(known *checkedSession, e events.CallSettled, v events.Envelope) {
	c := s.call(known, e.Message, e.Call, e.Tool)
	if c.State == Settled {
		s.report(exception(EndedTwice, c.Key(), c.Tool, s.at(v), "it ended %s in %s, and again %s", c.Settlement.Outcome, c.SettledBy, e.Outcome))
		return
	}
	s.checkEnd(known, c, e, v)
	known.Count(&c.Call, -1)
	c.Settle(e, v, s.at(v))
	known.Count(&c.Call, +1)
	for _, r := range e.Retained {
		s.retain(r, c, v)
	}
}

// trimmed returns a settlement event without its long fields, which remain in the
// stream, and with Text and Detail cut. It drops Lost, which only call show prints,
// from the event.
func trimmed(e events.CallSettled) events.CallSettled {
	e.Input, e.Structured, e.Content, e.Progress, e.Files = nil, nil, nil, nil, nil
	e.Text, e.Detail, e.Lost = cut(e.Text), cut(e.Detail), 0
	return e
}

// preview returns the beginning of the text that the model reads.
func preview(e events.CallSettled) string { return cut(Shown(e)) }

// cut returns the beginning of a text: whole runes, at most previewBytes bytes. A
// shortened text is a copy, so that the State does not keep the whole.
func cut(text string) string {
	if len(text) <= previewBytes {
		return text
	}
	end := previewBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return string([]byte(text[:end]))
}

// retain folds one managed output, r, of the settlement of c. An output belongs to
// the first settlement that names it. It is a breach if a second settlement names it,
// or if the reference contains the ID of an event other than v.
func (s *State) retain(r domain.Retained, c *callRecord, v events.Envelope) {
	if held, ok := s.retained[r.Ref]; ok {
		s.report(exception(ForeignReference, c.Key(), c.Tool, s.at(v), "%s is that of %s", r.Ref, held.Settlement))
		return
	}
	if r.Ref.Settlement() != v.ID {
		s.report(exception(ForeignReference, c.Key(), c.Tool, s.at(v), "%s names another event", r.Ref))
	}
	held := &Retention{Retained: r, Call: c.Key(), Settlement: v.ID, Place: s.at(v)}
	s.kept.Retained = append(s.kept.Retained, held)
	s.retained[r.Ref] = held
}

// pruned folds the removal of a managed output, from any stream. The removal of an
// unknown output is a breach.
func (s *State) pruned(e events.OutputPruned, v events.Envelope) {
	held, ok := s.retained[e.Retained.Ref]
	if !ok {
		id, _ := v.Stream.Session()
		f := exception(PrunedUnkept, Key{Session: id}, "", s.at(v), "no settlement names %s", e.Retained.Ref)
		f.Stream = v.Stream
		s.report(f)
		return
	}
	held.Pruned, held.Policy, held.PrunedAt = true, e.Policy, e.Pruned
}

// late counts a late result. If no reply has asked for the call yet, late also stores
// the place of the result in Strays.
func (s *State) late(known *checkedSession, e events.LateResultObserved, v events.Envelope) {
	c := s.call(known, e.Message, e.Call, e.Tool)
	c.Late++
	if c.Asked.IsZero() {
		c.Strays = append(c.Strays, s.at(v))
	}
}

// requested folds a permission request, which stays in Permissions until it is
// decided.
func (s *State) requested(known *checkedSession, e events.PermissionRequested, v events.Envelope) {
	key := Key{known.ID, e.Message, e.Call}
	if c := s.called(key); c != nil {
		c.Requests++
	}
	s.kept.Permissions[e.Permission] = permission{key, e.Action, s.at(v)}
}

// decided folds a permission decision. A decision without an undecided request is a
// breach.
func (s *State) decided(known *checkedSession, e events.PermissionDecided, v events.Envelope) {
	p, ok := s.kept.Permissions[e.Permission]
	if !ok {
		s.report(exception(DecidedUnrequested, Key{Session: known.ID}, "", s.at(v), "%s was not waiting for a decision", e.Permission))
		return
	}
	delete(s.kept.Permissions, e.Permission)
	if c := s.called(p.Call); c != nil {
		c.WaitedMS += e.WaitedMS
	}
}

// called returns the record of a call, which the fold may change until the end of the
// event, or nil if the log has no event of the call. The session of key must be
// known.
func (s *State) called(key Key) *callRecord {
	session, r := s.sessions[key.Session].number, s.folding()
	if number, ok := s.find(r, session, key, hash(session, key)); ok {
		return s.checkOut(r, number)
	}
	return nil
}

// applyProcess folds v if it is an event of a process, and reports whether it is one.
// The order of start and stop does not matter: a stopped process stays stopped.
func (s *State) applyProcess(v events.Envelope) bool {
	switch e := v.Event.(type) {
	case events.ProcessStarted:
		if _, known := s.kept.Processes[e.Process]; !known {
			s.kept.Processes[e.Process] = false
		}
	case events.ProcessStopped:
		s.kept.Processes[e.Process] = true
	case events.LeaseRenewed:
	default:
		return false
	}
	return true
}

// applyLayer folds an event that belongs to neither a session nor a process. It
// increments changes for every such event, because an event of an unknown kind may
// concern layers.
func (s *State) applyLayer(v events.Envelope) {
	s.changes++
	switch e := v.Event.(type) {
	case events.LayerOpened:
		if s.kept.Layers[e.Layer] == nil {
			s.kept.Layers[e.Layer] = &layerSpan{ordinalRange{From: s.kept.Folded}, e.Placement, e.Process}
		}
	case events.ToolsRegistered:
		id, _ := v.Stream.Layer()
		r := &registrationSpan{ordinalRange: ordinalRange{From: s.kept.Folded}, Layer: id}
		for _, t := range e.Tools {
			r.Names = append(r.Names, t.Name)
		}
		s.kept.Registrations[domain.RegistrationOf(v.ID)] = r
		s.activate(domain.RegistrationOf(v.ID), r)
	case events.RegistrationClosed:
		if r := s.kept.Registrations[e.Registration]; r != nil && r.To == 0 {
			r.To = s.kept.Folded
			s.deactivate(e.Registration, r)
		}
	case events.LayerClosed:
		if l := s.kept.Layers[e.Layer]; l != nil && l.To == 0 {
			l.To = s.kept.Folded
		}
	}
}
