package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// A LiveTools answers the calls of a live model with the recorded results of a tape. A call
// has the result of the first recorded call with its tool and its canonical input (RFC 8785)
// that no earlier call got. It is safe for concurrent use.
type LiveTools struct {
	tape    *Tape
	source  OutputSource
	real    bool
	rewrite func(string) string
	calls   []tapedCall
	mu      struct {
		sync.Mutex
		used     []bool
		findings []Difference
	}
}

// A tapedCall is a recorded call with its end.
type tapedCall struct {
	step  Step
	input string
	end   events.CallSettled
}

// LiveTools returns the recorded results. source opens the kept ones. If real is set, a call
// that the tape does not have runs the tool of today, with its input changed by rewrite;
// otherwise it fails.
func (t *Tape) LiveTools(source OutputSource, real bool, rewrite func(string) string) *LiveTools {
	l := &LiveTools{tape: t, source: source, real: real, rewrite: rewrite}
	for _, v := range t.entries {
		e, ok := v.Event.(events.ReplyReceived)
		if !ok {
			continue
		}
		for _, c := range e.Calls {
			if end, ok := t.end(place{v.turn, c.ID}); ok {
				l.calls = append(l.calls, tapedCall{Step{v.turn, c.ID, c.Name}, canonical(c.Input), end})
			}
		}
	}
	l.mu.used = make([]bool, len(l.calls))
	return l
}

// canonical returns the canonical form of an input, or the input if it has none.
func canonical(input json.RawMessage) string {
	if form, err := domain.Canonical(input); err == nil {
		return string(form)
	}
	return string(input)
}

// Wrap returns the tools of today with the recorded results, and those of the tape that are
// gone. It reports each tool whose definition differs from the one that the last turn of the
// tape could offer.
func (l *LiveTools) Wrap(today registry.Tools) (registry.Tools, error) {
	wrapped := registry.Tools{}
	recorded := l.recordedTools()
	for _, text := range slices.Sorted(maps.Keys(today)) {
		name := domain.Name(text)
		tool := today[text]
		d, action := tool.Describe(name), tool.Action(name)
		fingerprint, err := d.Fingerprint(action)
		if err != nil {
			return nil, fmt.Errorf("compare tool %s: %w", name, err)
		}
		if was, ok := recorded[name]; ok && !was.Fingerprint.IsZero() && was.Fingerprint != fingerprint {
			l.find(Difference{Kind: DefinitionDrift, Event: "tool " + text, Field: "definition", Recorded: was.Fingerprint.String(), Replayed: fingerprint.String()})
		}
		spec := domain.RecordedSpec{
			Description: d.Description, Input: d.Input, Output: d.Output, Action: action,
			Idempotent: tool.Idempotent(), AsksFirst: tool.AsksFirst(), Available: tool.Available(),
		}
		if tool.DescribesTurns() {
			spec.DescribeTurn = func(f domain.TurnFacts) string { text, _ := tool.DescribeTurn(f); return text }
		}
		if wrapped[text], err = l.wrap(name, spec, tool); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		was := recorded[name]
		if _, ok := today[string(name)]; ok || was.Description == "" {
			continue
		}
		l.find(Difference{Kind: DefinitionDrift, Event: "tool " + string(name), Field: "definition", Recorded: was.Fingerprint.String()})
		spec := domain.RecordedSpec{Description: was.Description, Input: was.Input, Output: was.Output, Action: was.Action, Available: was.Available}
		var err error
		if wrapped[string(name)], err = l.wrap(name, spec, domain.Tool{}); err != nil {
			return nil, err
		}
	}
	return wrapped, nil
}

// recordedTools returns the last recorded definition of each tool that a turn offered.
func (l *LiveTools) recordedTools() map[domain.Name]events.RegisteredTool {
	offered := map[domain.Name]bool{}
	for n := range l.tape.turns {
		for _, o := range l.tape.turn(n + 1).Tools {
			offered[o.Name] = true
		}
	}
	all := map[domain.Name]events.RegisteredTool{}
	for _, v := range l.tape.entries {
		if e, ok := v.Event.(events.ToolsRegistered); ok {
			for _, tool := range e.Tools {
				if offered[tool.Name] {
					all[tool.Name] = tool
				}
			}
		}
	}
	return all
}

// wrap returns a tool with the recorded results. A zero tool is gone.
func (l *LiveTools) wrap(name domain.Name, spec domain.RecordedSpec, tool domain.Tool) (domain.Tool, error) {
	spec.Refuses = func(input json.RawMessage) string {
		if end, ok := l.take(name, input, func(e events.CallSettled) bool { return e.Outcome == domain.InvalidInput }); ok {
			return end.Text
		}
		return ""
	}
	spec.Execute = func(ctx context.Context, input json.RawMessage, inv domain.Invocation) (domain.RecordedOutput, error) {
		if end, ok := l.take(name, input, func(e events.CallSettled) bool { return e.Outcome != domain.InvalidInput }); ok {
			return (&tapeProvider{driver: &driver{tape: l.tape, config: Config{Source: l.source}}}).result(ctx, end)
		}
		l.miss(name, input, inv)
		if !l.real || tool.IsZero() {
			return domain.RecordedOutput{}, domain.Fail("The recorded session has no result of this call.")
		}
		bound, err := tool.Bind(json.RawMessage(l.rewrite(string(input))))
		if err != nil {
			return domain.RecordedOutput{}, err
		}
		out, err := bound.Run(ctx, inv)
		return domain.RecordedOutput{Structured: out.Structured(), Content: out.Content(), Lost: out.Lost(), Files: out.Files()}, err
	}
	return domain.MakeRecorded(spec)
}

// take returns the end of the first unused call with a tool and an input, and uses it.
func (l *LiveTools) take(name domain.Name, input json.RawMessage, fits func(events.CallSettled) bool) (events.CallSettled, bool) {
	form := canonical(input)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.calls {
		if !l.mu.used[i] && c.step.Tool == string(name) && c.input == form && fits(c.end) {
			l.mu.used[i] = true
			return c.end, true
		}
	}
	return events.CallSettled{}, false
}

// miss reports a call that the tape does not have: an input drift if the tape has an unused
// call of the tool with another input, and otherwise a miss.
func (l *LiveTools) miss(name domain.Name, input json.RawMessage, inv domain.Invocation) {
	d := Difference{Kind: Miss, Call: inv.Call, Event: fmt.Sprintf("call %s of %s", inv.Call, name), Replayed: canonical(input)}
	l.mu.Lock()
	for i, c := range l.calls {
		if !l.mu.used[i] && c.step.Tool == string(name) {
			d.Kind, d.Field, d.Recorded, d.Turn = InputDrift, "input", c.input, c.step.Turn
			break
		}
	}
	l.mu.Unlock()
	l.find(d)
}

func (l *LiveTools) find(d Difference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.findings = append(l.mu.findings, d)
}

// Report returns what differed in a session of a live model, and the recorded calls that it
// did not ask for.
func (l *LiveTools) Report(ctx context.Context, ledger *events.Ledger, session domain.SessionID) (*Report, error) {
	r := &Report{Session: l.tape.session, Replay: session, Mode: "model", Incomparable: []Incomparable{}, Unused: []Step{}}
	for v, err := range ledger.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return nil, err
		}
		r.Events++
		if e, ok := v.Event.(events.ReplyReceived); ok {
			r.Turns++
			r.Calls += len(e.Calls)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Differences = append([]Difference{}, l.mu.findings...)
	for i, c := range l.calls {
		r.Steps = append(r.Steps, c.step)
		if !l.mu.used[i] {
			r.Unused = append(r.Unused, c.step)
		}
	}
	r.Same = len(r.Differences)+len(r.Unused) == 0
	return r, nil
}
