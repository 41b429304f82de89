package replay

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
)

// A Prompt is a recorded message of the user.
type Prompt struct {
	Text  string
	Media []domain.Media
}

// Prompts returns the recorded prompts, in order.
func (t *Tape) Prompts() (prompts []Prompt) {
	for _, e := range t.entries {
		if p, ok := e.Event.(events.PromptAdmitted); ok {
			prompts = append(prompts, promptOf(p))
		}
	}
	return prompts
}

func promptOf(e events.PromptAdmitted) Prompt {
	p := Prompt{Text: e.Text}
	for _, part := range e.Media {
		if m, ok := part.(domain.Media); ok {
			p.Media = append(p.Media, m)
		}
	}
	return p
}

// Opening returns the opening of a session that replays the tape in a way, such as tools.
func (t *Tape) Opening(session domain.SessionID, mode string) events.SessionOpened {
	e := t.opened
	e.Session, e.Parent, e.ParentMessage, e.ParentCall = session, domain.SessionID{}, domain.MessageID{}, ""
	e.Origin = events.Origin{Kind: events.Replayed, Format: mode, Source: t.session.String()}
	return e
}

// Forked returns the place that the recorded session continues, and whether it is a fork.
func (t *Tape) Forked() (events.SessionForked, bool) {
	for _, v := range t.entries {
		if e, ok := v.Event.(events.SessionForked); ok {
			return e, true
		}
	}
	return events.SessionForked{}, false
}

// Replies is a runner.Provider that gives the recorded replies of a tape to a session with
// real tools, one for each turn. It admits each further prompt at its place between the
// replies. It is safe for concurrent use, for one session.
type Replies struct {
	tape    *Tape
	replies []recordedReply
	first   []Prompt
	rewrite func(string) string
	admit   func(context.Context, Prompt) error
	mu      sync.Mutex
	next    int
	// turns has the number of the recorded turn of each reply of the session.
	turns map[domain.MessageID]int
}

// A recordedReply is a reply with the prompts that came between it and the next one.
type recordedReply struct {
	labeled
	events.ReplyReceived
	prompts []Prompt
}

// Replies returns the recorded replies. rewrite changes the inputs of the calls, as JSON,
// such as the paths in them. admit records a prompt in the session; it is called while a
// reply arrives.
func (t *Tape) Replies(rewrite func(string) string, admit func(context.Context, Prompt) error) *Replies {
	r := &Replies{tape: t, rewrite: rewrite, admit: admit, turns: map[domain.MessageID]int{}}
	for _, v := range t.entries {
		switch e := v.Event.(type) {
		case events.ReplyReceived:
			r.replies = append(r.replies, recordedReply{labeled: v, ReplyReceived: e})
		case events.PromptAdmitted:
			if n := len(r.replies); n > 0 {
				r.replies[n-1].prompts = append(r.replies[n-1].prompts, promptOf(e))
			} else {
				r.first = append(r.first, promptOf(e))
			}
		}
	}
	return r
}

// First returns the prompts before the first reply, which the caller admits.
func (r *Replies) First() []Prompt { return r.first }

// Left returns the number of replies that no turn has got yet.
func (r *Replies) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.replies) - r.next
}

// NextModel implements runner.ModelNamer with the recorded model.
func (r *Replies) NextModel(*conversation.State, string) (provider, model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next < len(r.replies) {
		e := r.tape.turn(r.replies[r.next].turn)
		return e.Provider, e.Model
	}
	return "", r.tape.opened.Model
}

// Reply implements runner.Provider. It returns errNoAnswer behind the last reply.
func (r *Replies) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		r.mu.Lock()
		if r.next == len(r.replies) {
			r.mu.Unlock()
			yield(nil, errNoAnswer)
			return
		}
		reply := r.replies[r.next]
		r.next++
		r.turns[turn.Message] = reply.turn
		r.mu.Unlock()
		var parts []runner.Part
		addReply(func(p runner.Part) { parts = append(parts, p) }, reply.ReplyReceived)
		for _, part := range parts {
			if c, ok := part.(runner.CallPart); ok {
				c.Input = json.RawMessage(r.rewrite(string(c.Input)))
				part = c
			}
			if !yield(part, nil) {
				return
			}
		}
		for _, p := range reply.prompts {
			if err := r.admit(ctx, p); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// End returns the recorded end of a call of the session.
func (r *Replies) End(inv domain.Invocation) (events.CallSettled, bool) {
	return r.tape.end(r.place(inv.Message, inv.Call))
}

// Answer returns the recorded answer to the questions of a call of the session.
func (r *Replies) Answer(inv domain.Invocation) (events.QuestionAnswered, bool) {
	for _, i := range r.tape.calls[r.place(inv.Message, inv.Call)] {
		if e, ok := r.tape.entries[i].Event.(events.QuestionAnswered); ok {
			return e, true
		}
	}
	return events.QuestionAnswered{}, false
}

func (r *Replies) place(message domain.MessageID, call domain.CallID) place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return place{r.turns[message], call}
}

// Denials returns the rules that refused calls of the tape, each once.
func (t *Tape) Denials() (rules domain.Rules) {
	seen := map[domain.Rule]bool{}
	for _, e := range t.entries {
		if end, ok := e.Event.(events.CallSettled); ok && end.Rule != (domain.Rule{}) && !seen[end.Rule] {
			seen[end.Rule] = true
			rules = append(rules, end.Rule)
		}
	}
	return rules
}

// Compare compares the calls of a session that got the recorded replies with those of the
// tape: each is the same, or its outcome or its output differs. plain undoes the changes of
// rewrite in the outputs.
func (r *Replies) Compare(ctx context.Context, l *events.Ledger, session domain.SessionID, plain func(string) string) (*Report, error) {
	report := &Report{
		Session: r.tape.session, Replay: session, Mode: "tools", Turns: len(r.replies), Differences: []Difference{}, Incomparable: []Incomparable{},
	}
	ends := map[place]events.CallSettled{}
	for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return nil, err
		}
		report.Events++
		if e, ok := v.Event.(events.CallSettled); ok {
			ends[r.place(e.Message, e.Call)] = e
		}
	}
	for i, reply := range r.replies {
		report.Steps = append(report.Steps, Step{Turn: reply.turn})
		if i >= r.next {
			report.Differences = append(report.Differences, Difference{
				Kind: MissingEvent, Turn: reply.turn, Event: reply.label, Recorded: reply.Text,
			})
		}
		for _, c := range reply.Calls {
			p := place{reply.turn, c.ID}
			report.Calls++
			report.Steps = append(report.Steps, Step{Turn: p.turn, Call: p.call, Tool: c.Name})
			old, had := r.tape.end(p)
			own, has := ends[p]
			if !had {
				report.Incomparable = append(report.Incomparable, Incomparable{Step{p.turn, p.call, c.Name}.String(), "the recorded call has no end"})
				continue
			}
			d := Difference{Turn: p.turn, Call: p.call, Event: Step{p.turn, p.call, c.Name}.String()}
			before, now := reading(old, plain), reading(own, plain)
			switch {
			case i >= r.next:
				continue
			case !has:
				d.Kind, d.Recorded = MissingEvent, before
			case old.Outcome != own.Outcome:
				d.Kind, d.Field = OutcomeDiffers, "outcome"
				d.Recorded, d.Replayed = old.Outcome.String()+": "+before, own.Outcome.String()+": "+now
			case before != now:
				d.Kind, d.Field, d.Recorded, d.Replayed = OutputDiffers, "output", before, now
			default:
				continue
			}
			report.Differences = append(report.Differences, d)
		}
	}
	report.Same = len(report.Differences) == 0
	return report, nil
}

// reading returns what a model reads of a call, without IDs of the ledger.
func reading(e events.CallSettled, plain func(string) string) string {
	result := e.Settlement(domain.EventID{}).ToolResult()
	text := result.Error + result.Text
	if result.Structured != nil {
		text = string(result.Structured)
	}
	for _, part := range result.Content {
		switch part := part.(type) {
		case domain.Text:
			text += string(part)
		case domain.Media:
			text += "[" + part.MIME + " " + digestOf(string(part.Data)) + "]"
		}
	}
	for _, kept := range e.Retained {
		text += "\n[kept: " + kept.SHA256 + "]"
	}
	return anID.ReplaceAllStringFunc(plain(text), func(id string) string { prefix, _, _ := strings.Cut(id, "_"); return prefix + "_…" })
}
