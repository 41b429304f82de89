package runner

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// SettleAdded records calls that the running call inv makes, and settles each like a call
// of the reply: against the offer of the same turn, through the hooks, with its own start
// and end. It replaces the IDs of calls by the ID of inv, a slash and a number. At most
// Config.Parallel of the calls run at the same time.
//
// SettleAdded returns the calls with their IDs and, in the same order, their settlements.
// It returns ErrNotRunning if the session is not running in this process or inv is not a
// running call. It returns the joined errors of the calls whose end was not recorded. If
// ctx or the context of the run ends, the calls end as interrupted.
func (r *Runner) SettleAdded(ctx context.Context, inv domain.Invocation, calls []domain.Call) ([]domain.Call, []domain.Settlement, error) {
	c := r.running(inv.Session)
	if c == nil {
		return nil, nil, fmt.Errorf("add calls to %s of session %s: %w", inv.Call, inv.Session, ErrNotRunning)
	}
	c.adding.RLock()
	defer c.adding.RUnlock()
	ctx, cancel := c.whileRunning(ctx)
	defer cancel()
	added, err := c.journal.add(ctx, messageCall{inv.Message, inv.Call}, calls)
	if err != nil {
		return nil, nil, fmt.Errorf("add calls to %s of session %s: %w", inv.Call, inv.Session, err)
	}
	calls = make([]domain.Call, len(added))
	for i, a := range added {
		calls[i] = a.ReplyCall.Call
	}
	ends, err := c.settleAll(ctx, added)
	return calls, ends, err
}

// whileRunning returns a context that ends with ctx and with the context of the run, with
// the cause of the first. The caller calls the returned function to release it.
func (c *runState) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.alive, func() { cancel(context.Cause(c.alive)) })
	return both, func() { stop(); cancel(nil) }
}

// add appends the calls that a running call makes, and tracks them. Their numbers continue
// after those of the calls that the parent added before. The journal does not append the
// end of the parent before add returns.
func (j *sessionJournal) add(ctx context.Context, parent messageCall, calls []domain.Call) ([]openCall, error) {
	j.notes.RLock()
	defer j.notes.RUnlock()
	j.adds.RLock()
	defer j.adds.RUnlock()
	of, err := j.reserve(parent, len(calls))
	if err != nil || j.notes.closed {
		return nil, ErrNotRunning
	}
	e := events.CallsAdded{Message: parent.message, Parent: parent.call}
	added := make([]openCall, len(calls))
	for i, call := range calls {
		call.ID = of.ids[i]
		call.Input = asJSON(call.Input)
		e.Calls = append(e.Calls, call)
		added[i] = of.parent
		added[i].ReplyCall = conversation.ReplyCall{Call: call, Message: parent.message, Parent: parent.call}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	recorded, err := j.writer.Append(ctx, j.ledger.Draft(e, j.cause(parent)))
	if err != nil {
		return nil, err
	}
	for i := range added {
		added[i].reply, added[i].AddedBy = recorded[0].ID, recorded[0].ID
		j.track(added[i])
	}
	return added, nil
}

// reservedIDs are the IDs of the calls that a running call is about to add.
type reservedIDs struct {
	parent openCall
	ids    []domain.CallID
}

// reserve returns n IDs that no call of the parent's message has, and the parent. It
// returns ErrNotRunning if the parent has not begun, or if its end is being recorded.
func (j *sessionJournal) reserve(parent messageCall, n int) (r reservedIDs, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	recorded, ok := j.mu.recorded[parent]
	if !ok || !recorded.Began || recorded.Settlement != nil || j.mu.ending[parent] {
		return r, ErrNotRunning
	}
	r.parent = j.mu.open[parent]
	for number := 1; len(r.ids) < n; number++ {
		id := domain.CallID(fmt.Sprintf("%s/%d", parent.call, number))
		if key := (messageCall{parent.message, id}); !j.mu.reserved[key] {
			j.mu.reserved[key] = true
			r.ids = append(r.ids, id)
		}
	}
	return r, nil
}

// end refuses further added calls of a call, and waits until the calls that it is adding
// are recorded. The log then has the end of the call after them.
func (j *sessionJournal) end(key messageCall) {
	j.mu.Lock()
	j.mu.ending[key] = true
	j.mu.Unlock()
	j.adds.Lock()
	defer j.adds.Unlock()
}

// waitForAdded waits until no added call is being settled. A tool that outlives its own
// call may still have such calls; their settlement ends within their grace periods.
func (c *runState) waitForAdded() {
	c.adding.Lock()
	defer c.adding.Unlock()
}
