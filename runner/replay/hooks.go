package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/staleness"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A tapeProvider answers the runner of one recorded process from the tape: as the provider
// of replies, as the profile of the agent, and as the person behind the permission gate.
type tapeProvider struct {
	*driver
	program *program
}

// NextModel implements runner.ModelNamer with the model of the next turn on the tape.
func (p *tapeProvider) NextModel(*conversation.State, string) (provider, model string) {
	e := p.tape.turn(p.lockedNextTurn())
	return e.Provider, e.Model
}

// PrepareRequest implements runner.RequestPreparer with the recorded request.
func (p *tapeProvider) PrepareRequest(runner.Turn) (runner.RequestRecord, error) {
	e := p.tape.turn(p.lockedNextTurn())
	return runner.RequestRecord{Parameters: p.tape.texts[e.Parameters], Schemas: p.tape.texts[e.Schemas]}, nil
}

// ContextLimit implements runner.ContextLimiter. The window is known only where the tape
// has a compaction next, so that the replay compacts at the recorded places.
func (p *tapeProvider) ContextLimit(string) (window, output int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := p.cursor; i < len(p.tape.entries); i++ {
		if p.done[i] {
			continue
		}
		switch e := p.tape.entries[i].Event.(type) {
		case events.ContextCompacted:
			return e.Window, e.Reserved
		case events.TurnMaterialized:
			if e.Summarizes.IsZero() {
				return 0, 0
			}
		}
	}
	return 0, 0
}

// Reply implements runner.Provider with the recorded answer to the turn.
func (p *tapeProvider) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		n, answers := p.awaitAnswer(turn.ID)
		if len(answers) == 0 {
			yield(nil, cmp.Or(context.Cause(ctx), errNoAnswer))
			return
		}
		for _, part := range p.parts(ctx, n, answers) {
			if !yield(part.part, part.err) || part.err != nil {
				return
			}
		}
	}
}

// awaitAnswer waits until the cursor is at the answer to a turn, and returns the number of
// the turn with the entries of its answer.
func (p *tapeProvider) awaitAnswer(id domain.TurnID) (turn int, answers []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn = p.labels.turns[id]
	answers = p.tape.answers[turn]
	if len(answers) == 0 {
		// The recorded process died or was interrupted before the answer.
		p.wait(p.program, &waiter{ready: func() bool { return p.interrupted }, open: true})
		return turn, nil
	}
	p.waitFor(p.program, answers[0])
	return turn, answers
}

// A partOrError is what a provider yields.
type partOrError struct {
	part runner.Part
	err  error
}

// parts returns what the provider yielded for a recorded answer.
func (p *tapeProvider) parts(ctx context.Context, turn int, answers []int) (parts []partOrError) {
	add := func(part runner.Part) { parts = append(parts, partOrError{part: part}) }
	var failed *runner.ProviderError
	for _, i := range answers {
		switch e := p.tape.entries[i].Event.(type) {
		case events.ProviderFailed:
			if failed != nil {
				add(runner.FailedAttemptPart{Attempt: len(parts) + 1, Err: failed})
			}
			failed = &runner.ProviderError{
				Provider: e.Provider, Model: e.Model, Failure: runner.FailureKind(e.Failure), Status: int(e.Status), Request: e.Request, Message: e.Detail,
			}
		case events.ReplyReceived:
			if failed != nil {
				add(runner.FailedAttemptPart{Attempt: len(parts) + 1, Err: failed})
				failed = nil
			}
			addReply(add, e)
			return parts
		case events.ReplyRefused:
			addReply(add, events.ReplyReceived{Text: e.Text, Thinking: e.Thinking, Calls: e.Calls, Model: e.Model, Tokens: e.Tokens, Finish: e.Finish})
			if failed == nil && refusedForCalls(e.Calls) {
				return parts // the runner refuses it again
			}
			err := errors.New(strings.TrimPrefix(e.Reason, fmt.Sprintf("ask %s: ", p.tape.turn(turn).Agent)))
			if failed == nil && p.interruptedAfter(i) {
				err = p.interruptHere(ctx, i)
			}
			return append(parts, partOrError{err: cmp.Or[error](errorOrNil(failed), err)})
		case events.ContextCompacted:
			if e.Detail != "" {
				return append(parts, partOrError{err: cmp.Or[error](errorOrNil(failed), errors.New(e.Detail))})
			}
			text, _, _ := strings.Cut(e.Summary, "\n\nThe last message of the user, word for word:\n\n")
			add(runner.TextPart(text))
			add(runner.FinishPart{Model: e.Model, Tokens: e.Tokens})
			return parts
		}
	}
	return append(parts, partOrError{err: cmp.Or[error](errorOrNil(failed), errNoAnswer)})
}

// errorOrNil returns the error, or a nil interface for a nil pointer.
func errorOrNil(e *runner.ProviderError) error {
	if e == nil {
		return nil
	}
	return e
}

// interruptedAfter reports whether the recorded run was interrupted after entry i.
func (p *tapeProvider) interruptedAfter(i int) bool {
	for _, e := range p.tape.entries[i+1:] {
		switch e := e.Event.(type) {
		case events.SessionInterrupted:
			return e.Detail == ""
		case events.TurnMaterialized, events.PromptAdmitted:
			return false
		}
	}
	return false
}

// interruptHere interrupts the run while its reply arrives, and returns the cause.
func (p *tapeProvider) interruptHere(ctx context.Context, i int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.tape.entries[i+1:] {
		if _, ok := e.Event.(events.SessionInterrupted); ok {
			p.interrupted = true
			p.cancel(reasonOf(e.Event))
			break
		}
	}
	return context.Cause(ctx)
}

// refusedForCalls reports whether a runner refuses a reply because of its calls.
func refusedForCalls(calls []domain.Call) bool {
	seen := map[domain.CallID]bool{}
	for _, c := range calls {
		if c.ID == "" || len(c.ID) > 1024 || seen[c.ID] {
			return true
		}
		seen[c.ID] = true
	}
	return false
}

// addReply adds the parts of a recorded reply.
func addReply(add func(runner.Part), e events.ReplyReceived) {
	if e.Thinking != "" {
		add(runner.ThinkingPart(e.Thinking))
	}
	if e.Text != "" {
		add(runner.TextPart(e.Text))
	}
	for _, item := range e.Items {
		add(runner.ProviderPart(item))
	}
	for _, c := range e.Calls {
		add(runner.CallPart(c))
	}
	add(runner.FinishPart{Reason: e.Finish, Model: e.Model, Tokens: e.Tokens})
}

// profile returns the profile of the next turn on the tape. Before each turn it waits until
// everything is applied that came before the turn. The first call of a run does not wait:
// the driver starts a run at an event of the runner.
func (p *tapeProvider) profile(context.Context, *conversation.State) (runner.Profile, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nextTurn()
	if p.begun {
		if i := p.tape.turns[n-1]; p.done[i] { // the tape has no further turn
			p.wait(p.program, &waiter{ready: func() bool { return p.interrupted }, open: true})
		} else {
			p.waitFor(p.program, p.tape.textsBefore(i))
		}
	}
	p.begun = true
	if p.program.dead {
		return runner.Profile{}, errKilled
	}
	e := p.tape.turn(n)
	r, err := p.registryOver(offeredOrHidden(e))
	return runner.Profile{
		Rules: p.rules(e), System: p.tape.texts[e.System], Tools: unlisted(e), Steps: p.tape.steps[p.tape.turns[n-1]], Registry: r,
	}, err
}

// registryOver returns a registry over the layers from which a turn took its tools, as far
// as they are open. The caller holds mu.
func (p *tapeProvider) registryOver(offered []domain.Offered) (*registry.Registry, error) {
	var over []*registry.Layer
	for _, id := range staleness.LayersOf(p.catalog, p.tape.session, p.tape.opened.Location, offered) {
		if l := p.layers[id]; l != nil && l.program == p.program {
			over = append(over, l.Layer)
		}
	}
	return p.program.layers.Registry(p.registryConfig(), over...)
}

// rules returns the permission rules in force in a turn. If the recording, of an older
// program, has their digest alone, it returns rules that hide the tools that the turn hid,
// each by its recorded rule. The caller holds mu.
func (p *tapeProvider) rules(e events.TurnMaterialized) domain.RuleSets {
	var recorded domain.RuleSets
	if text := p.tape.texts[e.RulesText]; text != "" && json.Unmarshal([]byte(text), &recorded) == nil {
		return recorded
	}
	var hiding []domain.Rule
	by := map[domain.Rule][]string{} // the actions of the tools that a rule hides
	var shown []string
	for _, h := range e.Hidden {
		if h.Rule == (domain.Rule{}) {
			shown = append(shown, p.action(h.Offered))
			continue
		}
		if by[h.Rule] == nil {
			hiding = append(hiding, h.Rule)
		}
		by[h.Rule] = append(by[h.Rule], p.action(h.Offered))
	}
	for _, o := range e.Tools {
		shown = append(shown, p.action(o))
	}
	var sets domain.RuleSets
	for _, rule := range hiding {
		set := domain.Rules{rule}
		for _, other := range hiding {
			if other != rule {
				set = append(set, allowed(by[other])...)
			}
		}
		sets = append(sets, append(set, allowed(shown)...))
	}
	return sets
}

// allowed returns a rule for each action that allows it.
func allowed(actions []string) (rules domain.Rules) {
	for _, action := range actions {
		rules = append(rules, domain.Rule{Action: action, Resource: "*", Effect: domain.Allow})
	}
	return rules
}

// action returns the permission action of a registered tool. The caller holds mu.
func (p *tapeProvider) action(o domain.Offered) string {
	if l, ok := p.catalog.Layer(o.Layer); ok {
		for _, r := range l.Registrations {
			if r.ID != o.Registration {
				continue
			}
			for _, tool := range r.Tools {
				if tool.Name == o.Name && tool.Action != "" {
					return tool.Action
				}
			}
		}
	}
	return string(o.Name)
}

// unlisted returns the patterns of a profile that lists all tools but those that the turn
// hid because its agent did not list them.
func unlisted(e events.TurnMaterialized) (patterns []string) {
	for _, h := range e.Hidden {
		for _, c := range h.Unmet {
			if c.Kind == "agent" && c.Wanted == "agents that list "+string(h.Name) {
				patterns = append(patterns, "!"+string(h.Name))
			}
		}
	}
	return patterns
}

// has reports whether the recorded machine had something: everything but what hid a tool.
func (p *tapeProvider) has(need string) bool {
	for _, h := range p.tape.turn(p.lockedNextTurn()).Hidden {
		for _, c := range h.Unmet {
			kind, names, _ := strings.Cut(c.Wanted, ":")
			for name := range strings.SplitSeq(names, "|") {
				if c.Kind == "machine" && (c.Wanted == need || kind+":"+name == need) {
					return false
				}
			}
		}
	}
	return true
}

// settling holds a call until the cursor is at its first event.
func (p *tapeProvider) settling(_ context.Context, inv domain.Invocation, call domain.Call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.driver.settling[callKey{inv.Message, call.ID}]; !ok {
		p.settles(callKey{}, p.openCalls())
	}
	if own := p.tape.calls[place{p.labels.messages[inv.Message], call.ID}]; len(own) > 0 {
		p.waitFor(p.program, own[0])
	} else {
		p.wait(p.program, &waiter{ready: func() bool { return true }})
	}
	if p.program.dead {
		return errKilled
	}
	return p.failed
}

// openCalls returns the calls that the step of the run settles: those of the replies that
// have not begun.
func (p *tapeProvider) openCalls() (keys []callKey) {
	p.program.runner.Look(p.session, func(s *conversation.State) {
		for _, c := range s.Open() {
			if c.Started == nil && c.Parent == "" {
				keys = append(keys, callKey{c.Message, c.ID})
			}
		}
	})
	return keys
}

// looping answers for the person or the rule that decided on a recorded loop.
func (p *tapeProvider) looping(ctx context.Context, inv domain.Invocation, _ events.LoopDetected) error {
	end, ok, err := p.playNotes(ctx, inv, true)
	if err != nil || !ok {
		return err
	}
	return refusal(end)
}

// refusal returns the error of a refused permission, or nil for any other end.
func refusal(e events.CallSettled) error {
	switch e.Outcome {
	case domain.DeniedByRule:
		action, resource, _ := strings.Cut(strings.TrimPrefix(e.Text, "Permission denied: "), " ")
		return &domain.Denied{Action: action, Resource: resource, Rule: e.Rule}
	case domain.DeclinedByUser:
		return &domain.Declined{Feedback: e.Text}
	}
	return nil
}

// playNotes records again what a call recorded while it ran, each at its place, up to the
// end of the call. beforeStart makes it end at the start of the call too. It returns the
// recorded end once the cursor is there, and false for the start. It returns an error if
// the process died before.
func (p *tapeProvider) playNotes(ctx context.Context, inv domain.Invocation, beforeStart bool) (end events.CallSettled, ended bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.tape.calls[place{p.labels.messages[inv.Message], inv.Call}] {
		switch e := p.tape.entries[i].Event.(type) {
		case events.LoopDetected, events.LateResultObserved:
			continue
		case events.CallStarted:
			if beforeStart {
				return end, false, nil
			}
			continue
		case events.PermissionDecided:
			if e.By == events.ByRecovery {
				continue
			}
		case events.QuestionAnswered:
			if e.By == events.ByRecovery {
				continue
			}
		case events.CallSettled:
			p.waitFor(p.program, i)
			if p.program.dead {
				return end, false, errKilled
			}
			return e, true, p.failed
		}
		if p.done[i] {
			continue
		}
		p.waitFor(p.program, i)
		if p.program.dead || p.failed != nil {
			return end, false, cmp.Or(p.failed, errKilled)
		}
		if err := p.note(ctx, inv, p.tape.entries[i].Event); err != nil {
			return end, false, err
		}
	}
	if len(p.tape.calls[place{p.labels.messages[inv.Message], inv.Call}]) == 0 {
		return end, false, nil
	}
	p.wait(p.program, &waiter{ready: func() bool { return p.interrupted }, open: true})
	return end, false, cmp.Or(context.Cause(ctx), errNoAnswer)
}

// note records an event of a running call again. The caller holds mu.
func (p *tapeProvider) note(ctx context.Context, inv domain.Invocation, e events.Event) error {
	if e, ok := e.(events.CallsAdded); ok {
		return p.addCalls(ctx, inv, e)
	}
	renamed := p.renamed(inv, e)
	p.mu.Unlock()
	defer p.mu.Lock()
	return p.program.runner.Note(context.WithoutCancel(ctx), inv, renamed)
}

// renamed returns an event of a call with the IDs of the new session. The caller holds mu.
func (p *tapeProvider) renamed(inv domain.Invocation, e events.Event) events.Event {
	id := func(recorded domain.PermissionID) domain.PermissionID {
		if _, ok := p.permissions[recorded]; !ok {
			p.permissions[recorded] = p.config.Mint.Permission()
		}
		return p.permissions[recorded]
	}
	switch e := e.(type) {
	case events.PermissionRequested:
		e.Permission, e.Message = id(e.Permission), inv.Message
		return e
	case events.PermissionDecided:
		e.Permission = id(e.Permission)
		return e
	case events.ApprovalSaved:
		e.Permission = id(e.Permission)
		return e
	case events.QuestionAsked:
		e.Question, e.Message = id(e.Question), inv.Message
		return e
	case events.QuestionAnswered:
		e.Question = id(e.Question)
		return e
	case events.TodosReplaced:
		e.Message = inv.Message
		return e
	case events.AgentSwitched:
		e.Message = inv.Message
		return e
	}
	return e
}

// addCalls settles the calls that a running call added. The caller holds mu.
func (p *tapeProvider) addCalls(ctx context.Context, inv domain.Invocation, e events.CallsAdded) error {
	parent := callKey{inv.Message, inv.Call}
	var keys []callKey
	for _, c := range e.Calls {
		keys = append(keys, callKey{inv.Message, c.ID})
	}
	p.settles(parent, keys)
	p.mu.Unlock()
	_, _, err := p.program.runner.SettleAdded(ctx, inv, slices.Clone(e.Calls))
	p.mu.Lock()
	if p.left[parent] > 0 { // not all of them have an end
		p.busy -= p.left[parent] - 1
		delete(p.left, parent)
		for _, key := range keys {
			delete(p.driver.settling, key)
		}
	}
	return err
}

// Of implements runner.AllowedRules with the recorded rules of a call.
func (p *tapeProvider) Of(inv domain.Invocation) []domain.Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, _ := p.tape.end(place{p.labels.messages[inv.Message], inv.Call})
	return end.Allowed
}

// Forget implements runner.AllowedRules.
func (p *tapeProvider) Forget(domain.Invocation) {}

// rewritten is the hook before a tool: it returns the input that the recorded hooks made.
func (p *tapeProvider) rewritten(_ context.Context, inv domain.Invocation, call domain.Call) (json.RawMessage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end, ok := p.tape.end(place{p.labels.messages[inv.Message], call.ID}); ok && len(end.Input) > 0 {
		return end.Input, nil
	}
	return call.Input, nil
}
