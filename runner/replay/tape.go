package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
)

// ErrNoTurns is returned for a session in which no model was asked.
var ErrNoTurns = errors.New("session has no turn to replay")

// ErrOutputGone is returned by an OutputSource for an output that was pruned or that its
// store does not have.
var ErrOutputGone = errors.New("output is not kept any more")

// An OutputSource opens a kept output of a recording. It returns an error that matches
// ErrOutputGone for an output that is not kept any more. The caller closes the reader.
type OutputSource func(ctx context.Context, ref domain.Ref) (io.ReadCloser, error)

// A Tape is a recorded session with the registrations that its turns offered, in the
// order of the log. It is immutable and safe for concurrent use.
type Tape struct {
	session  domain.SessionID
	imported bool
	opened   events.SessionOpened
	entries  []labeled
	labels   *labeler
	// index has the place of each label in entries.
	index map[string]int
	// calls has the entries of each call, and answers those that answer each turn.
	calls   map[place][]int
	answers map[int][]int
	// texts has the recorded texts by digest.
	texts map[string]string
	// turns has the entry of each turn: turn n is at n-1.
	turns []int
	// steps has, by entry of a turn, the maximum number of replies to its prompt, or
	// zero.
	steps map[int]int
	// pasts are copies of the state of the past of a fork, for the folds that need one each.
	// Empty: the session is no fork.
	pasts []*conversation.State
	// notes has what was changed to make a tape of a transcript.
	notes []Incomparable
}

// Session returns the recorded session.
func (t *Tape) Session() domain.SessionID { return t.session }

// Imported reports whether another program ran the session.
func (t *Tape) Imported() bool { return t.imported }

// Turns returns the number of turns, requests for a summary among them.
func (t *Tape) Turns() int { return len(t.turns) }

// ReadTape reads a session and the layers of its tools from a ledger. It returns
// runner.ErrNoSession for a session without events, ErrNoTurns, and
// events.ErrUnknownKind for a session with events of a newer program.
func ReadTape(ctx context.Context, l *events.Ledger, session domain.SessionID) (*Tape, error) {
	recorded, err := readSession(ctx, l, session)
	if err != nil {
		return nil, fmt.Errorf("read the tape of %s: %w", session, err)
	}
	opened, ok := events.SessionOpened{}, false
	for _, v := range recorded {
		if u, unknown := v.Event.(events.Unknown); unknown {
			return nil, fmt.Errorf("read the tape of %s: %w: %s", session, events.ErrUnknownKind, u.Name)
		}
		if e, is := v.Event.(events.SessionOpened); is && !ok {
			opened, ok = e, true
		}
	}
	if !ok {
		return nil, fmt.Errorf("read the tape of %s: %w", session, runner.ErrNoSession)
	}
	t := &Tape{session: session, opened: opened, imported: opened.Origin.Kind == events.Imported}
	if t.pasts, err = readPasts(ctx, l, recorded); err != nil {
		return nil, fmt.Errorf("read the tape of %s: %w", session, err)
	}
	if t.imported {
		recorded, t.notes = asRun(recorded)
	}
	t.load(recorded)
	if len(t.turns) == 0 {
		return nil, fmt.Errorf("read the tape of %s: %w", session, ErrNoTurns)
	}
	return t, nil
}

// readPasts returns three copies of the past of a fork, or none.
func readPasts(ctx context.Context, l *events.Ledger, recorded []events.Envelope) (pasts []*conversation.State, err error) {
	for _, v := range recorded {
		e, ok := v.Event.(events.SessionForked)
		if !ok {
			continue
		}
		for len(pasts) < 3 {
			past, err := conversation.Past(ctx, l, e)
			if err != nil {
				return nil, err
			}
			pasts = append(pasts, past)
		}
		break
	}
	return pasts, nil
}

// load labels the events and indexes them.
func (t *Tape) load(recorded []events.Envelope) {
	t.labels, t.index, t.texts, t.steps = newLabeler(t.session), map[string]int{}, map[string]string{}, map[int]int{}
	t.calls, t.answers = map[place][]int{}, map[int][]int{}
	projection := conversation.Projection()
	state := projection.Init()
	first := 0 // the first turn behind the last prompt
	for i, v := range recorded {
		e := t.labels.add(v)
		t.entries = append(t.entries, e)
		t.index[e.label] = i
		if e.call != "" {
			t.calls[e.place] = append(t.calls[e.place], i)
		}
		steps := state.Steps
		state = projection.Apply(state, v)
		switch e := v.Event.(type) {
		case events.SessionForked:
			state = conversation.Inherit(t.pasts[0], state)
		case events.TextRecorded:
			t.texts[e.Digest] = e.Text
		case events.PromptAdmitted:
			first = len(t.turns)
		case events.ReplyReceived, events.ReplyRefused, events.ProviderFailed:
			turn := t.entries[i].turn
			t.answers[turn] = append(t.answers[turn], i)
		case events.ContextCompacted:
			if n := len(t.turns); n > 0 && !t.turn(n).Summarizes.IsZero() {
				t.answers[n] = append(t.answers[n], i)
			}
		case events.TurnMaterialized:
			if len(t.turns) > 0 && t.entries[t.turns[len(t.turns)-1]].turn == t.entries[i].turn {
				continue // a further event of the same turn
			}
			t.turns = append(t.turns, i)
			if e.Disabled && e.Summarizes.IsZero() {
				for _, turn := range t.turns[first:] {
					t.steps[turn] = steps + 1
				}
			}
		}
	}
}

// readSession returns the events of a session and of the layers that its turns and calls
// name, in the order of the log up to the last event of the session.
func readSession(ctx context.Context, l *events.Ledger, session domain.SessionID) ([]events.Envelope, error) {
	var own []events.Envelope
	layers := map[domain.LayerID]bool{}
	var order []domain.LayerID
	add := func(o domain.Offered) {
		if !o.Layer.IsZero() && !layers[o.Layer] {
			layers[o.Layer] = true
			order = append(order, o.Layer)
		}
	}
	for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return nil, err
		}
		own = append(own, v)
		switch e := v.Event.(type) {
		case events.TurnMaterialized:
			for _, o := range e.Tools {
				add(o)
			}
			for _, h := range e.Hidden {
				add(h.Offered)
			}
		case events.CallStarted:
			add(e.Effective)
		case events.CallSettled:
			add(e.Effective)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	end := own[len(own)-1].Position
	for _, layer := range order {
		for v, err := range l.Read(ctx, events.LayerStream(layer), 0) {
			if err != nil {
				return nil, err
			}
			if v.Position.Compare(end) > 0 {
				break
			}
			own = append(own, v)
		}
	}
	slices.SortStableFunc(own, func(a, b events.Envelope) int { return a.Position.Compare(b.Position) })
	return own, nil
}

// turn returns the recorded turn n, counted from 1.
func (t *Tape) turn(n int) events.TurnMaterialized {
	return t.entries[t.turns[n-1]].Event.(events.TurnMaterialized)
}

// textsBefore returns the first of the entries of recorded texts directly before entry i,
// which are one append with it, or i.
func (t *Tape) textsBefore(i int) int {
	for i > 0 {
		if _, ok := t.entries[i-1].Event.(events.TextRecorded); !ok {
			break
		}
		i--
	}
	return i
}

// end returns the recorded end of a call, or false if the tape has none.
func (t *Tape) end(p place) (events.CallSettled, bool) {
	for _, i := range t.calls[p] {
		if e, ok := t.entries[i].Event.(events.CallSettled); ok {
			return e, true
		}
	}
	return events.CallSettled{}, false
}
