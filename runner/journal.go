package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
)

// A messageCall identifies a call within its session. Call IDs are unique within a
// message only.
type messageCall struct {
	message domain.MessageID
	call    domain.CallID
}

// A sessionJournal records the calls of one session in its stream. It implements
// registry.Journal and is the only appender to the session in this process. It is safe
// for concurrent use.
//
// It holds the state of the calls that the run settles in memory, so that Settle of the
// registry needs no read: the runner tracks a call before it settles it, each append updates
// the state, and the next step that settles calls forgets them. No lock is held during an append, except notes for reading.
type sessionJournal struct {
	ledger *events.Ledger
	writer *events.Writer

	session domain.SessionID
	// allowances has the permission rules of running calls. Nil: no rules are recorded.
	allowances AllowedRules

	// notes guards the recording of notes. It is locked before mu.
	notes struct {
		// A note holds the lock for reading while it is recorded, so that close waits for
		// it.
		sync.RWMutex
		// closed is set while notes are rejected.
		closed bool
	}
	// adds is held for reading while added calls are recorded. It is locked after notes
	// and before mu.
	adds sync.RWMutex
	mu   struct {
		sync.Mutex
		// recorded has the state of each tracked call.
		recorded map[messageCall]registry.Recorded
		// starts has, for each call, the causation ID of its next event: the start of
		// the call or, if it has not begun, the reply.
		starts map[messageCall]domain.EventID
		// open has each tracked call with its offer.
		open map[messageCall]openCall
		// reserved has the IDs of all calls of the reply that the run settles, and of
		// the calls that it is about to add.
		reserved map[messageCall]bool
		// ending has the calls whose end is on record or is being recorded.
		ending map[messageCall]bool
	}
}

// newJournal returns a journal that appends with w. It tracks no call and accepts notes.
func newJournal(l *events.Ledger, w *events.Writer) *sessionJournal {
	j := &sessionJournal{ledger: l, writer: w}
	j.mu.recorded = map[messageCall]registry.Recorded{}
	j.mu.starts = map[messageCall]domain.EventID{}
	j.mu.open = map[messageCall]openCall{}
	j.mu.reserved = map[messageCall]bool{}
	j.mu.ending = map[messageCall]bool{}
	return j
}

// track adds a call, with its start and end from the fold of the session. Recorded
// returns tracked calls only.
func (j *sessionJournal) track(a openCall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := messageCall{a.message, a.ID}
	j.mu.recorded[key] = registry.Recorded{Call: a.ReplyCall.Call, Began: a.Started != nil, Settlement: a.Settlement}
	j.mu.starts[key], j.mu.open[key], j.mu.reserved[key] = a.reply, a, true
	if a.Started != nil {
		j.mu.starts[key] = a.StartedBy
	}
}

// reserveCalls keeps the IDs of all calls of a reply from added calls.
func (j *sessionJournal) reserveCalls(message domain.MessageID, reply *conversation.Reply) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for c := range reply.All() {
		j.mu.reserved[messageCall{message, c.ID}] = true
	}
}

// maxStarts bounds the causation IDs that the journal keeps for calls that ended, so that a
// late note of a tool that was left behind has its cause.
const maxStarts = 1024

// forgetCalls stops tracking all calls. The caller calls it before it tracks the calls of a
// step, while no call is being settled.
func (j *sessionJournal) forgetCalls() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.mu.recorded)
	clear(j.mu.open)
	clear(j.mu.reserved)
	clear(j.mu.ending)
	if len(j.mu.starts) > maxStarts {
		clear(j.mu.starts)
	}
}

// Recorded returns the record of a tracked call, and ErrNotAsked for any other. It reads
// no event.
func (j *sessionJournal) Recorded(_ context.Context, message domain.MessageID, call domain.CallID) (registry.Recorded, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	recorded, ok := j.mu.recorded[messageCall{message, call}]
	if !ok {
		return registry.Recorded{}, fmt.Errorf("look up call %s of %s: %w", call, message, ErrNotAsked)
	}
	return recorded, nil
}

// tracks reports whether a call is tracked: whether this run has begun to settle it.
func (j *sessionJournal) tracks(key messageCall) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.mu.recorded[key]
	return ok
}

// cause returns the causation ID for the next event of a call: the start of the call
// or, if it has not begun, the reply.
func (j *sessionJournal) cause(key messageCall) domain.EventID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.starts[key]
}

// Begin appends the start of a call. Unless the store refused the append, the call
// counts as begun, and the start is the cause of its later events. This includes an
// append of unknown outcome, because the writer puts such a start on record before
// any later event of the session.
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

// begun marks a call as begun and makes start the cause of its later events.
func (j *sessionJournal) begun(key messageCall, start domain.EventID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	recorded := j.mu.recorded[key]
	recorded.Began = true
	j.mu.recorded[key], j.mu.starts[key] = recorded, start
}

// Settle appends the end of a call, with the rules that allowed its permission
// requests. After Settle has returned nil, Recorded returns the settlement.
func (j *sessionJournal) Settle(ctx context.Context, end events.Draft) error {
	e := end.Event.(events.CallSettled)
	key := messageCall{e.Message, e.Call}
	j.end(key)
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

// withAllowedRules returns the end of a call with the permission rules that allowed its
// requests, so that an auditor sees why they were allowed.
func (j *sessionJournal) withAllowedRules(e events.CallSettled) events.CallSettled {
	if j.allowances != nil {
		e.Allowed = j.allowances.Of(j.invocation(e))
	}
	return e
}

// invocation returns the key under which AllowedRules has the rules of a call.
func (j *sessionJournal) invocation(e events.CallSettled) domain.Invocation {
	return domain.Invocation{Session: j.session, Message: e.Message, Call: e.Call}
}

// record appends drafts in order. If one append is too large for the store, record
// splits the drafts in halves. After an error the first drafts may be on record without
// the others. After a success record removes the allowed rules of the calls that ended.
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

// wasRejected reports whether err, an error of [events.Writer.Flush], means that the
// store rejected the drafts for their content. They are then certain not to be on
// record.
func wasRejected(err error) bool {
	return errors.Is(err, events.ErrTooLarge) || errors.Is(err, events.ErrBadRecord)
}

// Late appends a result that a tool returned after its call had ended. Its cause is the
// settlement.
func (j *sessionJournal) Late(ctx context.Context, late events.Draft) error {
	_, err := j.writer.Append(ctx, late)
	return err
}

// Note appends another event of a call, such as a permission request, and returns its ID. It
// returns ErrNotRunning if the journal is closed.
func (j *sessionJournal) Note(ctx context.Context, key messageCall, e events.Event) (domain.EventID, error) {
	j.notes.RLock()
	defer j.notes.RUnlock()
	if j.notes.closed {
		return domain.EventID{}, ErrNotRunning
	}
	draft := j.ledger.Draft(e, j.cause(key))
	_, err := j.writer.Append(ctx, draft)
	return draft.ID, err
}

// close rejects further notes and waits for notes in progress. A tool that the registry
// left behind must not record a permission request when no run waits for its decision.
func (j *sessionJournal) close() {
	j.notes.Lock()
	defer j.notes.Unlock()
	j.notes.closed = true
}

// reopen accepts notes again, for a run that found another step after close.
func (j *sessionJournal) reopen() {
	j.notes.Lock()
	defer j.notes.Unlock()
	j.notes.closed = false
}
