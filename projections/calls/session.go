package calls

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A checkedSession has the facts of one session that the checks need. It is folded from the
// session's stream, in order. The facts of other streams come from the [Checker].
type checkedSession struct {
	ID       domain.SessionID `json:"session"`
	Imported bool             `json:"imported,omitempty"`
	// Unknown reports that the stream has an event of an unknown kind.
	Unknown bool `json:"unknown,omitempty"`
	// LastOrdinal is the ordinal of the last event of the session but texts, and Last its ID.
	LastOrdinal int            `json:"heard"`
	Last        domain.EventID `json:"last,omitzero"`
	// LastRunOrdinal is the ordinal of the last event that the run of the session
	// appended in order. Prompts and late results can come at any time and do not
	// count.
	LastRunOrdinal int `json:"own"`

	// Turns are in the order of the log. Offers has their offers; most turns repeat the
	// one before.
	Turns  []checkedTurn      `json:"turns,omitempty"`
	Offers [][]domain.Offered `json:"offers,omitempty"`
	// Calls are in the order of their first event.
	Calls []*checkedCall `json:"calls,omitempty"`
	// Processes has each process that began a call once.
	Processes []domain.ProcessID `json:"processes,omitempty"`

	// Asked counts the calls that replies asked for, Open the ones among them that have no
	// end, and Orphans the calls that no reply asks for.
	Asked   int `json:"asked"`
	Open    int `json:"open"`
	Orphans int `json:"orphans"`
	// Listed reports that Checker.pending has the session.
	Listed bool `json:"listed,omitempty"`

	// turns and calls are indexes of Turns and Calls, built when they are first used.
	turns map[domain.TurnID]int
	calls map[callKey]*checkedCall
	// allLive has an element for each offer: 0, or one more than the value of
	// Checker.changes at the last check that found all tools of the offer in effect.
	allLive []int
}

// A checkedTurn is a turn with the index of its offer.
type checkedTurn struct {
	ID    domain.TurnID `json:"turn"`
	Offer int           `json:"offer"`
}

// A callKey identifies a call in its session.
type callKey struct {
	message domain.MessageID
	id      domain.CallID
}

// A checkedCall has the facts of a call that the checks need.
type checkedCall struct {
	Message domain.MessageID `json:"m"`
	ID      domain.CallID    `json:"c"`
	Tool    string           `json:"t"`
	Turn    domain.TurnID    `json:"u,omitzero"`
	State   Stage            `json:"s,omitempty"`
	// Asked reports that a reply asks for the call. Input is a digest of its input.
	Asked bool      `json:"a,omitempty"`
	Input [2]uint64 `json:"i,omitzero"`
	// Imported reports that the session was an import at the first event of the call.
	Imported bool `json:"f,omitempty"`
	// Idempotent reports that the start of the call declares it idempotent. Process is one
	// more than the index of its process, or 0.
	Idempotent bool `json:"r,omitempty"`
	Process    int  `json:"p,omitempty"`
	// Outcome and SettledBy are those of the settlement.
	Outcome   domain.Outcome `json:"o,omitempty"`
	SettledBy domain.EventID `json:"b,omitzero"`
	// Places is nil for a call that a reply asks for and that has an end.
	Places *callPlaces `json:"l,omitempty"`
}

// callPlaces are the events of a call that is open, or that no reply asks for.
type callPlaces struct {
	Asked   Place `json:"a,omitzero"`
	Started Place `json:"b,omitzero"`
	Settled Place `json:"s,omitzero"`
	// Strays has the places of the late results that came before any reply asked for
	// the call.
	Strays []Place `json:"l,omitempty"`
}

// index builds the indexes of a session that was decoded.
func (known *checkedSession) index() {
	if known.turns != nil {
		return
	}
	known.turns, known.calls = map[domain.TurnID]int{}, map[callKey]*checkedCall{}
	for i, t := range known.Turns {
		known.turns[t.ID] = i
	}
	for _, c := range known.Calls {
		known.calls[callKey{c.Message, c.ID}] = c
	}
	known.allLive = make([]int, len(known.Offers))
}

// key returns the key of a call of the session.
func (known *checkedSession) key(c *checkedCall) Key { return Key{known.ID, c.Message, c.ID} }

// weight estimates the memory of a session, in calls.
func (known *checkedSession) weight() int {
	n := 4 + len(known.Calls) + len(known.Turns)/4
	for _, offer := range known.Offers {
		n += len(offer) / 2
	}
	return n
}

// call returns a call, and makes it at its first event, with the given tool.
func (known *checkedSession) call(message domain.MessageID, id domain.CallID, tool string) *checkedCall {
	c := known.calls[callKey{message, id}]
	if c == nil {
		c = &checkedCall{Message: message, ID: id, Tool: tool, Imported: known.Imported, Places: &callPlaces{}}
		known.calls[callKey{message, id}] = c
		known.Calls = append(known.Calls, c)
		known.count(c, +1)
	}
	return c
}

// count adds n to the counter of the calls like c. The caller passes -1 before it changes
// the call and +1 afterwards.
func (known *checkedSession) count(c *checkedCall, n int) {
	if !c.Asked {
		known.Orphans += n
		return
	}
	known.Asked += n
	if c.State != Settled {
		known.Open += n
	}
}

// change changes a call, and drops the places of a call that is complete.
func (known *checkedSession) change(c *checkedCall, do func()) {
	known.count(c, -1)
	do()
	known.count(c, +1)
	if c.Asked && c.State == Settled {
		c.Places = nil
	}
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

// process returns the process that began a call, or zero.
func (known *checkedSession) process(c *checkedCall) domain.ProcessID {
	if c.Process == 0 {
		return domain.ProcessID{}
	}
	return known.Processes[c.Process-1]
}

// recentOffers is the number of offers that intern compares.
const recentOffers = 8

// intern returns the index of an offer in Offers, and adds the offer if it is not among the
// last ones. It first compares the offer with that of the last turn, which most turns
// repeat.
func (known *checkedSession) intern(tools []domain.Offered) int {
	if n := len(known.Turns); n > 0 && slices.Equal(known.Offers[known.Turns[n-1].Offer], tools) {
		return known.Turns[n-1].Offer
	}
	recent := max(0, len(known.Offers)-recentOffers)
	i := recent + slices.IndexFunc(known.Offers[recent:], func(o []domain.Offered) bool { return slices.Equal(o, tools) })
	if i < recent {
		i = len(known.Offers)
		known.Offers = append(known.Offers, tools)
		known.allLive = append(known.allLive, 0)
	}
	return i
}

// applySession folds what an event of a session's stream says about its turns, calls and
// permission requests.
func (s *Checker) applySession(known *checkedSession, v events.Envelope) {
	switch e := v.Event.(type) {
	case events.SessionOpened:
		known.Imported = e.Origin.Kind == events.Imported
	case events.TurnMaterialized:
		s.materialized(known, e, v)
	case events.ReplyReceived:
		s.checkTurn(known, Key{Session: known.ID, Message: e.Message}, "", e.Turn, v)
		for _, asked := range e.Calls {
			s.asked(known, e.Message, e.Turn, asked, v)
		}
	case events.CallsAdded:
		s.added(known, e, v)
	case events.CallStarted:
		s.started(known, e, v)
	case events.CallSettled:
		s.settled(known, e, v)
	case events.LateResultObserved:
		if c := known.call(e.Message, e.Call, e.Tool); !c.Asked {
			c.Places.Strays = append(c.Places.Strays, s.at(v))
		}
	case events.PermissionRequested:
		s.requested(known, e.Permission, callKey{e.Message, e.Call}, e.Action, v)
	case events.PermissionDecided:
		s.decided(known, e.Permission, v)
	case events.QuestionAsked:
		s.requested(known, e.Question, callKey{e.Message, e.Call}, "question", v)
	case events.QuestionAnswered:
		s.decided(known, e.Question, v)
	case events.Unknown:
		known.Unknown = true
	}
}

// materialized folds a turn. A second event of the same turn adds tools to the offer
// of the turn; only the added tools are then checked.
func (s *Checker) materialized(known *checkedSession, e events.TurnMaterialized, v events.Envelope) {
	if i, again := known.turns[e.Turn]; again {
		known.Turns[i].Offer = known.intern(projections.MergeOffers(known.Offers[known.Turns[i].Offer], e.Tools))
		s.checkEachOffered(known, e, v)
		return
	}
	offer := known.intern(e.Tools)
	known.turns[e.Turn] = len(known.Turns)
	known.Turns = append(known.Turns, checkedTurn{e.Turn, offer})
	s.checkOffers(known, e, offer, v)
}

// added folds the calls that a running call made. The running call must have begun and
// not ended.
func (s *Checker) added(known *checkedSession, e events.CallsAdded, v events.Envelope) {
	var turn domain.TurnID
	parent := known.calls[callKey{e.Message, e.Parent}]
	if parent == nil || parent.State != Begun {
		s.report(exception(AddedOutside, Key{known.ID, e.Message, e.Parent}, "", s.at(v), "it adds %d calls and is not running", len(e.Calls)))
	}
	if parent != nil {
		turn = parent.Turn
	}
	for _, asked := range e.Calls {
		s.asked(known, e.Message, turn, asked, v)
	}
}

// asked folds one call of a reply or of a running call. The first event that asks for the
// call sets its turn, tool and input. asked only checks a repetition. In an import, the
// result may come before the reply; the call is an orphan until then.
func (s *Checker) asked(known *checkedSession, message domain.MessageID, turn domain.TurnID, asked domain.Call, v events.Envelope) {
	c := known.call(message, asked.ID, asked.Name)
	if c.Asked {
		s.checkSame(known, c, asked, v)
		return
	}
	s.checkOrder(known, c, v)
	known.change(c, func() {
		c.Asked, c.Turn, c.Tool, c.Input, c.Places.Asked = true, turn, asked.Name, digest(asked.Input), s.at(v)
		if c.State == "" {
			c.State = Asked
		}
	})
}

// digest returns the beginning of the SHA-256 of an input, which is equal for equal inputs
// and differs for others.
func digest(input []byte) [2]uint64 {
	sum := sha256.Sum256(input)
	return [2]uint64{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// started folds the start of a call. If the call already has a start or a settlement,
// started only checks the event.
func (s *Checker) started(known *checkedSession, e events.CallStarted, v events.Envelope) {
	c := known.call(e.Message, e.Call, e.Tool)
	s.checkStart(known, c, e, v)
	if c.State == Settled || c.State == Begun {
		return
	}
	known.change(c, func() {
		c.State, c.Places.Started, c.Idempotent, c.Process = Begun, s.at(v), e.Idempotent, 0
		if !e.Process.IsZero() {
			i := slices.Index(known.Processes, e.Process)
			if i < 0 {
				i = len(known.Processes)
				known.Processes = append(known.Processes, e.Process)
			}
			c.Process = i + 1
		}
	})
}

// settled folds the settlement of a call. It reports a second settlement as a breach
// and ignores it otherwise.
func (s *Checker) settled(known *checkedSession, e events.CallSettled, v events.Envelope) {
	c := known.call(e.Message, e.Call, e.Tool)
	if c.State == Settled {
		s.report(exception(EndedTwice, known.key(c), c.Tool, s.at(v), "it ended %s in %s, and again %s", c.Outcome, c.SettledBy, e.Outcome))
		return
	}
	s.checkEnd(known, c, e, v)
	known.change(c, func() { c.State, c.Outcome, c.SettledBy, c.Places.Settled = Settled, e.Outcome, v.ID, s.at(v) })
	for _, r := range e.Retained {
		s.retain(r, known.key(c), c.Tool, v)
	}
}

// requested folds a permission request, which stays in permissions until it is
// decided.
func (s *Checker) requested(known *checkedSession, id domain.PermissionID, of callKey, action string, v events.Envelope) {
	s.permissions.Put(id, &permission{id, Key{known.ID, of.message, of.id}, action, s.at(v)})
}

// decided folds a permission decision. A decision without an undecided request is a
// breach.
func (s *Checker) decided(known *checkedSession, id domain.PermissionID, v events.Envelope) {
	if s.permissions.Get(id) == nil {
		s.report(exception(DecidedUnrequested, Key{Session: known.ID}, "", s.at(v), "%s was not waiting for a decision", id))
		return
	}
	s.permissions.Delete(id)
}
