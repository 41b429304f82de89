package registrytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// An echoInput is the input of the tools of the checks.
type echoInput struct {
	Text string `json:"text"`
}

// An executions counts the runs of its tools.
type executions struct{ runs atomic.Int64 }

// tool returns a tool that counts an execution in w and calls do. The output schema
// rejects a text with an exclamation mark.
func (w *executions) tool(do func(context.Context, echoInput, domain.Invocation) (string, error)) (domain.Tool, error) {
	return domain.Make(domain.Spec[echoInput, string]{
		Description: "for a law",
		Output:      domain.Constrained[string](`{"pattern":"^[^!]*$"}`),
		Execute: func(ctx context.Context, in echoInput, inv domain.Invocation) (string, error) {
			w.runs.Add(1)
			return do(ctx, in, inv)
		},
	})
}

// echo returns the text of its input.
func echo(_ context.Context, in echoInput, _ domain.Invocation) (string, error) { return in.Text, nil }

// call returns a call of the tool named "tool" with a text as its input.
func call(id, text string) domain.Call {
	input, _ := json.Marshal(echoInput{text}) // encoding a string never fails
	return domain.Call{ID: domain.CallID(id), Name: "tool", Input: input}
}

// put makes a tool that calls do and counts its executions in w, and registers it under
// the name "tool". It returns the function that closes the scope of the tool.
func (s *Subject) put(ctx context.Context, w *executions, do func(context.Context, echoInput, domain.Invocation) (string, error)) (func(context.Context) error, error) {
	t, err := w.tool(do)
	if err != nil {
		return nil, err
	}
	return s.Register(ctx, "tool", t)
}

// turn registers echo under the name "tool" and begins a turn. The reply of the turn
// makes the given calls.
func (s *Subject) turn(ctx context.Context, w *executions, calls ...domain.Call) (*OfferedTurn, error) {
	if _, err := s.put(ctx, w, echo); err != nil {
		return nil, err
	}
	return s.materializeCalls(ctx, calls...)
}

// materializeCalls begins a turn whose reply makes the given calls, and passes each of
// them to expect of the journal. If a saboteur replaced the journal, materializeCalls
// does not use expect.
func (s *Subject) materializeCalls(ctx context.Context, calls ...domain.Call) (*OfferedTurn, error) {
	t, err := s.Materialize(ctx, calls...)
	if err != nil {
		return nil, err
	}
	if j, ok := s.Journal.(*journal); ok {
		for _, c := range calls {
			j.expect(t.Invocation.Message, c)
		}
	}
	return t, nil
}

// settled registers echo under the name "tool", begins a turn whose reply makes the
// call c, and settles c.
func (s *Subject) settled(ctx context.Context, w *executions, c domain.Call) (*OfferedTurn, domain.Settlement, error) {
	t, err := s.turn(ctx, w, c)
	if err != nil {
		return nil, domain.Settlement{}, err
	}
	end, err := s.Settle(ctx, t, c)
	return t, end, err
}

// singleExecutor settles one call while two tools are registered. Only the called
// tool must run, and only once.
func singleExecutor(ctx context.Context, s *Subject) error {
	var w, other executions
	beside, err := other.tool(echo)
	if err != nil {
		return err
	}
	if _, err := s.Register(ctx, "beside", beside); err != nil {
		return err
	}
	if _, _, err := s.settled(ctx, &w, call("c", "hi")); err != nil {
		return err
	}
	if w.runs.Load() != 1 || other.runs.Load() != 0 {
		return fmt.Errorf("its executor ran %d times and another %d", w.runs.Load(), other.runs.Load())
	}
	return nil
}

// codecBoundary settles a call whose input does not fit the schema. The call must end
// as an invalid input, and the tool must not run. It then settles a call whose output
// does not fit the schema. That call must end as an invalid output.
func codecBoundary(ctx context.Context, s *Subject) error {
	var w executions
	bad := domain.Call{ID: "bad", Name: "tool", Input: json.RawMessage(`{"text":7}`)}
	loud := call("loud", "no!")
	t, err := s.turn(ctx, &w, bad, loud)
	if err != nil {
		return err
	}
	end, err := s.Settle(ctx, t, bad)
	if err != nil || end.Outcome != domain.InvalidInput || w.runs.Load() != 0 {
		return fmt.Errorf("an input that does not fit ended %s after %d runs (%v)", end.Outcome, w.runs.Load(), err)
	}
	end, err = s.Settle(ctx, t, loud)
	if err != nil || end.Outcome != domain.InvalidOutput {
		return fmt.Errorf("an output that does not fit ended %s (%v)", end.Outcome, err)
	}
	return nil
}

// durableIdentity settles a call. The executor must receive the session, agent and
// message of the turn, and the ID of the call.
func durableIdentity(ctx context.Context, s *Subject) error {
	var w executions
	var seen domain.Invocation
	_, err := s.put(ctx, &w, func(_ context.Context, _ echoInput, inv domain.Invocation) (string, error) {
		seen = inv
		return "", nil
	})
	if err != nil {
		return err
	}
	c := call("c", "")
	t, err := s.materializeCalls(ctx, c)
	if err != nil {
		return err
	}
	if _, err := s.Settle(ctx, t, c); err != nil {
		return err
	}
	want := t.Invocation
	if seen.Session != want.Session || seen.Agent != want.Agent || seen.Message != want.Message || seen.Call != c.ID {
		return fmt.Errorf("the executor saw %v, want %v and %s", seen, want, c.ID)
	}
	return nil
}

// scopedRegistration registers two tools under one name in two scopes and closes the
// scope of the second. A call must then run the first tool.
func scopedRegistration(ctx context.Context, s *Subject) error {
	var below, above executions
	if _, err := s.put(ctx, &below, echo); err != nil {
		return err
	}
	unregister, err := s.put(ctx, &above, echo)
	if err != nil {
		return err
	}
	if err := unregister(ctx); err != nil {
		return err
	}
	c := call("c", "hi")
	t, err := s.materializeCalls(ctx, c)
	if err != nil {
		return err
	}
	if _, err := s.Settle(ctx, t, c); err != nil {
		return err
	}
	if below.runs.Load() != 1 || above.runs.Load() != 0 {
		return fmt.Errorf("after closing, what was hidden ran %d times and what was closed %d", below.runs.Load(), above.runs.Load())
	}
	return nil
}

// capturedExecution replaces a tool and closes its scope while a call runs the tool.
// The call must succeed with the result of that tool.
func capturedExecution(ctx context.Context, s *Subject) error {
	var w executions
	entered, leave := make(chan struct{}), make(chan struct{})
	unregister, err := s.put(ctx, &w, func(ctx context.Context, _ echoInput, _ domain.Invocation) (string, error) {
		close(entered)
		<-leave
		return "as it was", ctx.Err()
	})
	if err != nil {
		return err
	}
	c := call("c", "")
	t, err := s.materializeCalls(ctx, c)
	if err != nil {
		return err
	}
	var end domain.Settlement
	var settled error
	var settling sync.WaitGroup
	settling.Go(func() { end, settled = s.Settle(ctx, t, c) })
	<-entered
	_, replaced := s.put(ctx, new(executions), echo)
	err = errors.Join(replaced, unregister(ctx))
	close(leave)
	settling.Wait()
	if err := errors.Join(err, settled); err != nil {
		return err
	}
	if end.Outcome != domain.Succeeded || end.ToolResult().Text != "as it was" {
		return fmt.Errorf("the call that had begun ended %s with %q", end.Outcome, end.ToolResult().Text)
	}
	return nil
}

// staleRejection begins a turn that offers a tool, and registers the tool again. A call
// of that turn must be rejected as stale.
func staleRejection(ctx context.Context, s *Subject) error {
	var w executions
	c := call("c", "hi")
	t, err := s.turn(ctx, &w, c)
	if err != nil {
		return err
	}
	if _, err := s.put(ctx, &w, echo); err != nil { // the same tool, registered again
		return err
	}
	end, err := s.Settle(ctx, t, c)
	if err != nil || end.Outcome != domain.Stale || w.runs.Load() != 0 {
		return fmt.Errorf("a call to what was replaced ended %s after %d runs (%v)", end.Outcome, w.runs.Load(), err)
	}
	return nil
}

// long is an output of 100 lines and 1,600 bytes, which exceeds the limits small.
var long = strings.Repeat("line after line\n", 100)

// storageEncapsulation settles a call whose output, the text long, exceeds the limits.
// The retained outputs of the settlement must contain the whole text.
func storageEncapsulation(ctx context.Context, s *Subject) error {
	var w executions
	_, end, err := s.settled(ctx, &w, call("c", long))
	if err != nil {
		return err
	}
	for _, r := range end.Retained {
		text, err := s.kept.resolve(r)
		if err != nil {
			return err
		}
		if r.Ref.Channel() == domain.TextChannel && text == long {
			return nil
		}
	}
	return fmt.Errorf("what the tool returned is not among what is kept: %v", end.Retained)
}

// presentationIsPure computes the tool result from the returned settlement and from the
// settlement in the log. The two results must be equal.
func presentationIsPure(ctx context.Context, s *Subject) error {
	var w executions
	_, end, err := s.settled(ctx, &w, call("c", "hi"))
	if err != nil {
		return err
	}
	kept, err := s.ends(ctx)
	if err != nil || len(kept) != 1 {
		return fmt.Errorf("%d ends are on record (%w)", len(kept), err)
	}
	if got, want := fmt.Sprint(kept[0].Settlement(end.ID).ToolResult()), fmt.Sprint(end.ToolResult()); got != want {
		return fmt.Errorf("from the log it reads %s, and it was %s", got, want)
	}
	return nil
}

// beginsAtMostOnce settles one call from 32 goroutines at once, and once more
// afterwards. The call must have one start on record and one execution.
func beginsAtMostOnce(ctx context.Context, s *Subject) error {
	var w executions
	c := call("c", "hi")
	t, err := s.turn(ctx, &w, c)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() { _, _ = s.Settle(ctx, t, c) }) // "ends exactly once" governs the results
	}
	all.Wait()
	_, again := s.Settle(ctx, t, c)
	starts, err := s.count(ctx, "CallStarted")
	if err := errors.Join(err, again); err != nil {
		return err
	}
	if starts != 1 || w.runs.Load() != 1 {
		return fmt.Errorf("it began %d times and ran %d times", starts, w.runs.Load())
	}
	return nil
}

// endsExactlyOnce settles one call three times. The call must have one end on record.
func endsExactlyOnce(ctx context.Context, s *Subject) error {
	var w executions
	c := call("c", "hi")
	t, err := s.turn(ctx, &w, c)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := s.Settle(ctx, t, c); err != nil {
			return err
		}
	}
	ends, err := s.count(ctx, "CallSettled")
	if err != nil || ends != 1 {
		return fmt.Errorf("it has %d ends (%w)", ends, err)
	}
	return nil
}

// startBeforeRun makes Begin of the journal fail. The tool must not run, and Settle must
// return an error.
func startBeforeRun(ctx context.Context, s *Subject) error {
	var w executions
	c := call("c", "hi")
	t, err := s.turn(ctx, &w, c)
	if err != nil {
		return err
	}
	s.faults.begin = true
	if _, err := s.Settle(ctx, t, c); err == nil || w.runs.Load() != 0 {
		return fmt.Errorf("its start could not be recorded: it ran %d times and Settle returned %v", w.runs.Load(), err)
	}
	return nil
}

// endBeforeAnswer makes Settle of the journal fail. Settle of the registry must return an
// error.
func endBeforeAnswer(ctx context.Context, s *Subject) error {
	var w executions
	c := call("c", "hi")
	t, err := s.turn(ctx, &w, c)
	if err != nil {
		return err
	}
	s.faults.settle = true
	if end, err := s.Settle(ctx, t, c); err == nil {
		return fmt.Errorf("its end could not be recorded, and it was answered: %s", end.Outcome)
	}
	return nil
}

// begunIsOnRecord settles a call that runs. The end on record must have Began set.
func begunIsOnRecord(ctx context.Context, s *Subject) error {
	var w executions
	if _, _, err := s.settled(ctx, &w, call("c", "hi")); err != nil {
		return err
	}
	ends, err := s.ends(ctx)
	if err != nil {
		return err
	}
	for _, e := range ends {
		if w.runs.Load() > 0 && !e.Began {
			return fmt.Errorf("it ran, and its end says that it did not begin")
		}
	}
	return nil
}

// runsWhatWasOffered reads each start on record. The start must name the registration
// that the turn offered, both as offered and as effective.
func runsWhatWasOffered(ctx context.Context, s *Subject) error {
	var w executions
	t, _, err := s.settled(ctx, &w, call("c", "hi"))
	if err != nil {
		return err
	}
	offered, _ := t.Materialization.Offer().Find("tool")
	log, err := s.Log(ctx)
	if err != nil {
		return err
	}
	for _, v := range log {
		if e, ok := v.Event.(events.CallStarted); ok && (e.Offered != offered || e.Effective != offered) {
			return fmt.Errorf("it was offered %v and began under %v", offered, e.Effective)
		}
	}
	return nil
}

// openOrEndedOnce settles one of two calls. The projection of calls must report that the
// other call is open, and no violation of a law.
func openOrEndedOnce(ctx context.Context, s *Subject) error {
	var w executions
	c, waiting := call("c", "hi"), call("waiting", "hi")
	t, err := s.turn(ctx, &w, c, waiting)
	if err != nil {
		return err
	}
	if _, err := s.Settle(ctx, t, c); err != nil {
		return err
	}
	state, err := s.folded(ctx)
	if err != nil {
		return err
	}
	found := append(state.Exceptions(), state.Unfinished()...)
	if len(found) != 1 || found[0].Law != calls.Open || found[0].Call != waiting.ID {
		return fmt.Errorf("of a call that was answered and one that waits, the log finds: %v", found)
	}
	return nil
}

// referencesResolve settles a call whose output, the text long, exceeds the limits.
// The output store must resolve every retained output of the end.
func referencesResolve(ctx context.Context, s *Subject) error {
	var w executions
	if _, _, err := s.settled(ctx, &w, call("c", long)); err != nil {
		return err
	}
	ends, err := s.ends(ctx)
	if err != nil {
		return err
	}
	if len(ends) != 1 || len(ends[0].Retained) == 0 {
		return fmt.Errorf("nothing is referred to")
	}
	for _, r := range ends[0].Retained {
		if _, err := s.kept.resolve(r); err != nil {
			return err
		}
	}
	return nil
}

// settlementsNameTheirTurn settles a call. The projection of calls must report no
// violation of a law.
func settlementsNameTheirTurn(ctx context.Context, s *Subject) error {
	var w executions
	if _, _, err := s.settled(ctx, &w, call("c", "hi")); err != nil {
		return err
	}
	found, err := s.exceptions(ctx)
	if err != nil || len(found) != 0 {
		return fmt.Errorf("the log finds: %v (%w)", found, err)
	}
	return nil
}

// exceptions returns the violations that the projection of calls finds in the log.
func (s *Subject) exceptions(ctx context.Context) ([]calls.Exception, error) {
	state, err := s.folded(ctx)
	if err != nil {
		return nil, err
	}
	return state.Exceptions(), nil
}

// folded returns the projection of calls over the whole log.
func (s *Subject) folded(ctx context.Context) (*calls.State, error) {
	p := calls.Projection()
	return projections.Fold(p, p.Init(), s.ledger.ReadAll(ctx, events.Position{}))
}

// ends returns the ends of calls on record, in order.
func (s *Subject) ends(ctx context.Context) ([]events.CallSettled, error) {
	log, err := s.Log(ctx)
	var ends []events.CallSettled
	for _, v := range log {
		if e, ok := v.Event.(events.CallSettled); ok {
			ends = append(ends, e)
		}
	}
	return ends, err
}

// count returns the number of events of a kind on record.
func (s *Subject) count(ctx context.Context, kind string) (n int, err error) {
	log, err := s.Log(ctx)
	for _, v := range log {
		if v.Event.Kind() == kind {
			n++
		}
	}
	return n, err
}
