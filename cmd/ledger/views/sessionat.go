package views

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// A sessionCounter folds a prefix of a session's stream into its state and counts. It keeps
// a few bytes of each call.
type sessionCounter struct {
	calls.Session
	replies map[domain.MessageID]bool
	calls   map[[16]byte]calledState
}

// A calledState is what the counts of a session depend on.
type calledState uint8

// The bits of a calledState.
const (
	wasAsked calledState = 1 << iota
	wasSettled
	wasSuccessful
)

// call returns a call in this state.
func (s calledState) call() *calls.Call {
	c := &calls.Call{State: calls.Asked}
	if s&wasAsked != 0 {
		c.Asked = time.Unix(0, 0)
	}
	if s&wasSettled != 0 {
		c.State, c.Settlement.Outcome = calls.Settled, domain.Failed
	}
	if s&wasSuccessful != 0 {
		c.Settlement.Outcome = domain.Succeeded
	}
	return c
}

// apply folds one event.
func (n *sessionCounter) apply(v events.Envelope) {
	if n.calls == nil {
		n.replies, n.calls, n.Opened = map[domain.MessageID]bool{}, map[[16]byte]calledState{}, v.Time
	}
	n.Session.Apply(v)
	switch e := v.Event.(type) {
	case events.ReplyReceived:
		if !n.replies[e.Message] {
			n.replies[e.Message] = true
			n.Replies++
		}
		for _, c := range e.Calls {
			n.change(e.Message, c.ID, wasAsked)
		}
	case events.CallsAdded:
		for _, c := range e.Calls {
			n.change(e.Message, c.ID, wasAsked)
		}
	case events.CallSettled:
		end := wasSettled
		if e.Outcome == domain.Succeeded {
			end |= wasSuccessful
		}
		n.change(e.Message, e.Call, end)
	}
}

// change adds to the state of a call. The first settlement counts.
func (n *sessionCounter) change(message domain.MessageID, id domain.CallID, more calledState) {
	sum := sha256.Sum256([]byte(message.String() + "/" + string(id)))
	key := [16]byte(sum[:16])
	was := n.calls[key]
	if was&wasSettled != 0 {
		more &= wasAsked
	}
	now := was | more
	n.Count(was.call(), -1)
	n.Count(now.call(), +1)
	if was&wasAsked == 0 && now&wasAsked != 0 {
		n.Calls++
	}
	n.calls[key] = now
}

// sessionAt returns a session as it was at a moment, and the last event before the moment
// ends. text is an event of the session, a position of the log, or a time.
func sessionAt(ctx context.Context, out *render.Printer, s *stores.Store, session calls.Session, text string) (calls.Session, *timeline.Place, error) {
	m, err := parseSessionMoment(ctx, out, s, session, text)
	if err != nil {
		return session, nil, err
	}
	n := sessionCounter{Session: calls.Session{ID: session.ID}}
	var last timeline.Place
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(session.ID), 0) {
		if err != nil {
			return session, nil, err
		}
		if v.Revision > session.Revision || m.before(v) {
			break
		}
		n.apply(v)
		last = timeline.Place{Event: v.ID, Revision: v.Revision, Position: v.Position, Time: v.Time}
		if m.is(v) {
			return n.Session, &last, nil
		}
	}
	if !m.time.IsZero() {
		if last.Revision == 0 {
			f := fault.NotFound("name a time from then on", "session %s was opened at %s, after %s", session.ID, out.Milliseconds(session.Opened), out.Milliseconds(m.time))
			return session, nil, f
		}
		return n.Session, &last, nil
	}
	return session, nil, m.missing(ctx, s, session)
}

// A parsedMoment is a value of --at: an event, by its ID or position, or a time.
type parsedMoment struct {
	text     string
	event    domain.EventID  // zero: not an event
	position events.Position // zero: not a position
	time     time.Time       // zero: not a time
}

// parseSessionMoment parses the value of --at.
func parseSessionMoment(ctx context.Context, out *render.Printer, s *stores.Store, session calls.Session, text string) (parsedMoment, error) {
	m := parsedMoment{text: text}
	if prefix, _, ok := strings.Cut(text, "_"); ok && strings.EqualFold(prefix, domain.EventID{}.Prefix()) {
		var err error
		m.event, err = eventOf(ctx, s, session, text)
		return m, err
	}
	if position, err := events.ParsePosition(text); err == nil {
		end, err := s.Head(ctx)
		switch {
		case err != nil:
			return m, err
		case position.IsZero():
			return m, fault.NotFound("", "no position 0: the first event is behind it")
		case position.Compare(end) > 0:
			return m, fault.NotFound("", "no position %s: the last is %s", position, end)
		}
		m.position = position
		return m, nil
	}
	at, _, err := out.ParseTime(text)
	if err != nil {
		f := fault.Usage("--at: %q is not an event, a position or a time", text)
		f.Hint = "write an ID such as evt_…4K2P9Q, a position, or a time: " + render.TimesHelp
		return m, f
	}
	if at.After(out.Now()) {
		return m, fault.Usage("--at: %s is in the future: leave --at out for the session as it is now", out.Milliseconds(at))
	}
	m.time = at
	return m, nil
}

// eventOf returns the event of the session that an ID identifies, shortened or not.
func eventOf(ctx context.Context, s *stores.Store, session calls.Session, id string) (found domain.EventID, err error) {
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(session.ID), 0) {
		switch {
		case err != nil:
			return found, err
		case !index.Abbreviates(id, v.ID.String()):
		case !found.IsZero():
			f := fault.Usage("--at: event %s is ambiguous: several events of session %s fit", id, session.ID)
			f.Code, f.Hint = "ambiguous", "write more of the id"
			return found, f
		default:
			found = v.ID
		}
	}
	if found.IsZero() {
		return found, fault.NotFound("ledger session tail "+session.ID.String()+" -o jsonl lists its last events", "session %s has no event %s", session.ID, id)
	}
	return found, nil
}

// before reports whether the moment is before an event, by their times.
func (m parsedMoment) before(v events.Envelope) bool { return !m.time.IsZero() && v.Time.After(m.time) }

// is reports whether the moment is that of an event.
func (m parsedMoment) is(v events.Envelope) bool {
	switch {
	case !m.event.IsZero():
		return v.ID == m.event
	case !m.position.IsZero():
		return v.Position == m.position
	}
	return false
}

// missing returns the fault of a position at which the session has no event.
func (m parsedMoment) missing(ctx context.Context, s *stores.Store, session calls.Session) error {
	for v, err := range s.Ledger.Entries(ctx, events.Position{}) {
		if err != nil {
			return err
		}
		if v.Position.Compare(m.position) >= 0 {
			if v.Position == m.position {
				return fault.NotFound("name a position of the session, as session show -o json has them", "position %s has an event of %s, not of session %s", m.position, v.Stream, session.ID)
			}
			break
		}
	}
	return fault.NotFound("name a position of the session, as session show -o json has them", "no event of session %s is at position %s", session.ID, m.position)
}
