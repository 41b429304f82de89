package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

type messageCall struct {
	message domain.MessageID
	call    domain.CallID
}

// A sessionJournal keeps the facts of the calls of one session in its stream. It is
// the session's one appender in this process.
type sessionJournal struct {
	ledger *events.Ledger
	writer *events.Writer

	session    domain.SessionID
	allowances AllowedRules // nil: not known

	notes struct { // taken before mu
		sync.RWMutex      // held for reading while a note is recorded
		closed       bool // no notes are taken
	}
	mu struct {
		sync.Mutex
		recorded map[messageCall]registry.Recorded
		starts   map[messageCall]domain.EventID // what a call's events come of: its reply, then its start
	}
}

func newJournal(l *events.Ledger, w *events.Writer) *sessionJournal {
	j := &sessionJournal{ledger: l, writer: w}
	j.mu.recorded = map[messageCall]registry.Recorded{}
	j.mu.starts = map[messageCall]domain.EventID{}
	return j
}

// track makes the journal answer for a call as the session has it.
func (j *sessionJournal) track(a openCall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := messageCall{a.message, a.ID}
	j.mu.recorded[key] = registry.Recorded{Call: a.Call.Call, Began: a.Started != nil, Settlement: a.Settlement}
	j.mu.starts[key] = a.reply
	if a.Started != nil {
		j.mu.starts[key] = a.StartedBy
	}
}

// Recorded returns what is on record of a call that the session expects.
func (j *sessionJournal) Recorded(_ context.Context, message domain.MessageID, call domain.CallID) (registry.Recorded, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	recorded, ok := j.mu.recorded[messageCall{message, call}]
	if !ok {
		return registry.Recorded{}, fmt.Errorf("look up call %s of %s: %w", call, message, ErrNotAsked)
	}
	return recorded, nil
}

// tracks reports whether the journal answers for a call.
func (j *sessionJournal) tracks(key messageCall) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.mu.recorded[key]
	return ok
}

// cause returns the event that the next event of a call comes of.
func (j *sessionJournal) cause(key messageCall) domain.EventID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.starts[key]
}

// Begin keeps the start of a call. The call counts as begun from then on, and
// its later events come of the start, unless the append was refused: a start
// whose outcome is open is on record once anything later is.
func (j *sessionJournal) Begin(ctx context.Context, start events.Draft) error {
	e := start.Event.(events.CallStarted)
	key := messageCall{e.Message, e.Call}
	start.Causation = j.cause(key)
	_, err := j.writer.Append(ctx, start)
	if !events.Refused(err) {
		j.begun(key, start.ID)
	}
	return err
}

func (j *sessionJournal) begun(key messageCall, start domain.EventID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	recorded := j.mu.recorded[key]
	recorded.Began = true
	j.mu.recorded[key], j.mu.starts[key] = recorded, start
}

// Settle keeps the end of a call.
func (j *sessionJournal) Settle(ctx context.Context, end events.Draft) error {
	e := end.Event.(events.CallSettled)
	key := messageCall{e.Message, e.Call}
	end.Causation = j.cause(key)
	e = j.withAllowedRules(e)
	end.Event = e
	if err := j.record(ctx, end); err != nil {
		return err
	}
	settlement := e.Settlement(end.ID)
	j.mu.Lock()
	defer j.mu.Unlock()
	recorded := j.mu.recorded[key]
	recorded.Settlement = &settlement
	j.mu.recorded[key] = recorded
	return nil
}

// withAllowedRules returns the event of an end with the rules that allowed what its
// call asked for.
func (j *sessionJournal) withAllowedRules(e events.CallSettled) events.CallSettled {
	if j.allowances != nil {
		e.Allowed = j.allowances.Of(j.invocation(e))
	}
	return e
}

func (j *sessionJournal) invocation(e events.CallSettled) domain.Invocation {
	return domain.Invocation{Session: j.session, Message: e.Message, Call: e.Call}
}

// record appends drafts in their order: in one append, or in several where that
// is too large for the store. After an error the first of them may be on record.
// The allowances of calls whose ends are recorded are forgotten.
func (j *sessionJournal) record(ctx context.Context, drafts ...events.Draft) error {
	_, err := j.writer.Append(ctx, drafts...)
	if half := len(drafts) / 2; half > 0 && errors.Is(err, events.ErrTooLarge) {
		if err := j.record(ctx, drafts[:half]...); err != nil {
			return err
		}
		return j.record(ctx, drafts[half:]...)
	}
	if err != nil || j.allowances == nil {
		return err
	}
	for _, d := range drafts {
		if e, ok := d.Event.(events.CallSettled); ok {
			j.allowances.Forget(j.invocation(e))
		}
	}
	return nil
}

// wasRejected reports whether an error of [events.Writer.Flush] says that the store
// refused the drafts for what they are: they are certain not to be on record.
func wasRejected(err error) bool {
	return errors.Is(err, events.ErrTooLarge) || errors.Is(err, events.ErrBadRecord)
}

// Late keeps a result that came after the end of its call.
func (j *sessionJournal) Late(ctx context.Context, late events.Draft) error {
	_, err := j.writer.Append(ctx, late)
	return err
}

// Note keeps another event of a call, unless the journal is closed, which is
// ErrNotRunning.
func (j *sessionJournal) Note(ctx context.Context, key messageCall, e events.Event) error {
	j.notes.RLock()
	defer j.notes.RUnlock()
	if j.notes.closed {
		return ErrNotRunning
	}
	_, err := j.writer.Append(ctx, j.ledger.Draft(e, j.cause(key)))
	return err
}

// close takes no more notes, and waits for those that are being recorded. What a
// tool asks for that was left behind has no run to wait for an answer.
func (j *sessionJournal) close() {
	j.notes.Lock()
	defer j.notes.Unlock()
	j.notes.closed = true
}

// reopen takes notes again.
func (j *sessionJournal) reopen() {
	j.notes.Lock()
	defer j.notes.Unlock()
	j.notes.closed = false
}
