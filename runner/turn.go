package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// ask takes a turn: it records the offer, asks the model, and records the reply. If the
// model fails, the turn stays without a reply, and the next run takes a new turn; this run
// goes on only if the request was too large and can become smaller. ask appends nothing if
// the session has changed since the step was planned.
func (c *runState) ask(ctx context.Context, last bool) error {
	if err := c.loadProfile(ctx); err != nil {
		return err
	}
	if err := c.refreshTools(ctx); err != nil {
		return err
	}
	turn, drafts, err := c.offer(ctx, last)
	if err != nil {
		return err
	}
	offered, ok, err := c.recordTurn(ctx, drafts)
	if err != nil || !ok {
		return err
	}
	c.turn = turn.ID
	got := receivedReply{ReplyReceived: events.ReplyReceived{Turn: turn.ID, Message: turn.Message, Model: turn.Model}}
	if err := c.receive(ctx, turn, &got); err != nil {
		err = c.recordFailure(ctx, got, fmt.Errorf("ask %s: %w", turn.Agent, err), offered)
		if c.retriesShorter(ctx, err) {
			return nil
		}
		return err
	}
	drafts = append(c.attemptDrafts(got, offered), c.config.Ledger.Draft(got.ReplyReceived, offered))
	if _, err := c.journal.writer.Append(ctx, drafts...); err != nil {
		return fmt.Errorf("record reply: %w", err)
	}
	return nil
}

// refreshTools calls Config.Refresh.
func (c *runState) refreshTools(ctx context.Context) error {
	if c.config.Refresh == nil {
		return nil
	}
	if err := c.config.Refresh(ctx); err != nil {
		return fmt.Errorf("refresh tools: %w", err)
	}
	return nil
}

// recordTurn records a turn, the last of drafts, whose request must contain the whole
// session in the log. If the session has gained events since the step was planned, such
// as an admitted message, recordTurn records no event and returns false; the run then
// plans again.
func (c *runState) recordTurn(ctx context.Context, drafts []events.Draft) (event domain.EventID, ok bool, err error) {
	release, err := c.admits.acquire(ctx)
	if err != nil {
		return event, false, err
	}
	defer release()
	planned := c.session.Revision
	if err := c.refresh(ctx); err != nil || c.session.Revision != planned {
		return event, false, err
	}
	recorded, err := c.journal.writer.Append(ctx, drafts...)
	if err != nil {
		return event, false, fmt.Errorf("record turn: %w", err)
	}
	return recorded[len(recorded)-1].ID, true, nil
}

// maxCallID is the maximum length of a call ID in bytes. Each event of the call repeats
// the ID.
const maxCallID = 1024

// A badReply is an ErrBadReply with the reason. The log has the reply as refused.
type badReply struct{ reason string }

func (b *badReply) Error() string { return ErrBadReply.Error() + ": " + b.reason }
func (b *badReply) Unwrap() error { return ErrBadReply }

// A receivedReply is a reply as far as it was received, with the failed attempts to get
// it.
type receivedReply struct {
	events.ReplyReceived
	failed []FailedAttemptPart
	// begun is set if the reply has a part.
	begun bool
}

// recordFailure records the failed attempts of a request and its final failure. If the
// reply has a part, it records the parts as a refused reply with the reason, so that an
// auditor can read them. It records them after an interruption too, within the grace
// period. It returns the failure.
func (c *runState) recordFailure(ctx context.Context, got receivedReply, failure error, turn domain.EventID) error {
	drafts := c.failureDrafts(got, failure, turn)
	if len(drafts) == 0 {
		return failure
	}
	keep, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Grace)
	defer cancel()
	if _, err := c.journal.writer.Append(keep, drafts...); err != nil {
		return errors.Join(failure, fmt.Errorf("record refused reply: %w", err))
	}
	return failure
}

// failureDrafts returns the drafts of a request that failed: the failed attempts with the
// final failure, and the parts of the reply, if it has any, as a refused reply.
func (c *runState) failureDrafts(got receivedReply, failure error, turn domain.EventID) []events.Draft {
	if p, ok := errors.AsType[*ProviderError](failure); ok {
		got.failed = append(got.failed, FailedAttemptPart{Attempt: len(got.failed) + 1, Err: p})
	}
	drafts := c.attemptDrafts(got, turn)
	if got.begun {
		reason := failure.Error()
		if bad, ok := errors.AsType[*badReply](failure); ok {
			reason = bad.reason
		}
		drafts = append(drafts, c.config.Ledger.Draft(events.ReplyRefused{
			Turn: got.Turn, Message: got.Message, Reason: registry.DefaultLimits.Cut(reason), Text: got.Text, Calls: got.Calls,
			Model: got.Model, Tokens: got.Tokens, Finish: got.Finish, Thinking: got.Thinking,
		}, turn))
	}
	return drafts
}

// attemptDrafts returns a ProviderFailed for each failed attempt.
func (c *runState) attemptDrafts(got receivedReply, turn domain.EventID) []events.Draft {
	var drafts []events.Draft
	for _, f := range got.failed {
		drafts = append(drafts, c.config.Ledger.Draft(events.ProviderFailed{
			Detail: registry.DefaultLimits.Cut(f.Err.Message), Status: int64(f.Err.Status), Attempt: int64(f.Attempt), Turn: got.Turn,
			Provider: f.Err.Provider, Model: f.Err.Model, Failure: string(f.Err.Failure), Request: registry.DefaultLimits.Cut(f.Err.Request),
		}, turn))
	}
	return drafts
}

// offer materializes the tools of a turn. It returns the turn for the provider and the
// drafts that record it: the texts that the turn names, and the turn as the last. It
// offers no tools if last is set. It does not append the drafts; the registry may append
// pending closings first.
func (c *runState) offer(ctx context.Context, last bool) (Turn, []events.Draft, error) {
	mint, facts := c.config.Ledger.Mint(), c.facts()
	turn := Turn{
		Session: c.session.Session, ID: mint.Turn(), Message: mint.Message(), Agent: facts.Agent, Model: facts.Model,
		System: c.profile.System, Conversation: c.session, Disabled: last,
	}
	if last {
		turn.Instruction = lastStepInstruction
	}
	event := c.turnEvent(turn, facts)
	var described map[domain.Name]string
	if !last {
		m, err := c.registry().Materialize(ctx, registry.TurnSpec{ID: turn.ID, Facts: facts})
		if err != nil {
			return Turn{}, nil, err
		}
		turn.Tools, described = m.Definitions(), m.Described()
		event.Tools, event.Hidden = append(event.Tools, m.Offer().Tools...), m.Hidden()
	}
	record, err := c.prepare(turn)
	if err != nil {
		return Turn{}, nil, err
	}
	drafts := c.textDrafts(&event, turn, record, described)
	return turn, append(drafts, c.config.Ledger.Draft(event, c.session.Last)), nil
}

// turnEvent returns the event that records a turn, without tools and texts.
func (c *runState) turnEvent(turn Turn, facts domain.TurnFacts) events.TurnMaterialized {
	event := events.TurnMaterialized{
		Turn: turn.ID, Message: turn.Message, Agent: turn.Agent, Model: turn.Model, Tools: []domain.Offered{}, Disabled: turn.Disabled,
		Provider: facts.Provider, Client: facts.Client, Flags: facts.Flags, Rules: facts.Rules.Digest(),
	}
	if s := c.session.Compaction; s != nil {
		event.Compacted = s.Event
	}
	return event
}

// lastStepInstruction is the instruction of the last turn that the limit of steps allows.
const lastStepInstruction = `MAXIMUM STEPS REACHED: this is the last reply to the user's message, and tools are disabled. Do not call tools. Reply in text alone: what was done, what remains to be done, and what you recommend to do next.`

// prepare returns the record of the request for a turn, or the zero RequestRecord if the
// provider prepares no requests.
func (c *runState) prepare(turn Turn) (RequestRecord, error) {
	p, ok := c.config.Provider.(RequestPreparer)
	if !ok {
		return RequestRecord{}, nil
	}
	record, err := p.PrepareRequest(turn)
	if err != nil {
		return record, fmt.Errorf("ask %s: %w", turn.Agent, err)
	}
	record.Parameters = strings.ToValidUTF8(record.Parameters, "\uFFFD")
	record.Schemas = strings.ToValidUTF8(record.Schemas, "\uFFFD")
	return record, nil
}

// receive asks the provider and adds the parts of its reply to got, also those before a
// failure. If the reply is unusable, it returns a *badReply behind the name of the model. It
// reads such a reply to the end, so that the record is complete. It passes each part to
// Config.OnPart, but not those of a summary.
func (c *runState) receive(ctx context.Context, turn Turn, got *receivedReply) error {
	var text, thinking strings.Builder
	defer func() { got.Text, got.Thinking = text.String(), thinking.String() }()
	var bad *badReply
	refuse := func(format string, args ...any) {
		if bad == nil {
			bad = &badReply{fmt.Sprintf(format, args...)}
		}
	}
	seen := map[domain.CallID]bool{}
	for part, err := range c.config.Provider.Reply(ctx, turn) {
		if err != nil {
			return err
		}
		if c.config.OnPart != nil && !turn.Summary {
			c.config.OnPart(turn, part)
		}
		if failed, ok := part.(FailedAttemptPart); ok {
			got.failed = append(got.failed, failed)
			continue
		}
		got.begun = true
		switch part := part.(type) {
		case TextPart:
			text.WriteString(string(part))
		case ThinkingPart:
			thinking.WriteString(string(part))
		case ProviderPart:
			got.Items = append(got.Items, events.ProviderItem(part))
		case CallPart:
			if reason := checkCall(part, len(got.Calls)+1, seen); reason != "" {
				refuse("%s", reason)
			}
			seen[part.ID] = true
			got.Calls = append(got.Calls, domain.Call{ID: part.ID, Name: part.Name, Input: asJSON(part.Input)})
		case FinishPart:
			got.Finish, got.Tokens = part.Reason, part.Tokens
			if part.Model != "" {
				got.Model = part.Model
			}
		default:
			refuse("it has a part of type %T", part)
		}
	}
	if err := context.Cause(ctx); err != nil || bad == nil {
		return err
	}
	return fmt.Errorf("%s: %w", cmp.Or(turn.Model, "the model"), bad)
}

// checkCall returns the reason for which call number n of a reply is unusable, or "". seen
// has the IDs of the calls before it.
func checkCall(c CallPart, n int, seen map[domain.CallID]bool) string {
	name, id := registry.ShortName(c.Name), registry.ShortName(string(c.ID))
	switch {
	case c.ID == "":
		return fmt.Sprintf("call %d, of %q, has no ID", n, name)
	case !utf8.ValidString(string(c.ID)):
		return fmt.Sprintf("call %d, of %q, has the ID %q, which is not UTF-8", n, name, id)
	case len(c.ID) > maxCallID:
		return fmt.Sprintf("call %d, of %q, has an ID of %d bytes, which is over the limit of %d", n, name, len(c.ID), maxCallID)
	case seen[c.ID]:
		return fmt.Sprintf("call %d, of %q, has the ID %q of a call before it", n, name, id)
	}
	return ""
}

// asJSON returns an input as valid JSON: an empty object for an empty input, and a JSON
// string for text that is not JSON. No object schema accepts a string, so the call then
// ends as invalid input, and the model reads why.
func asJSON(input json.RawMessage) json.RawMessage {
	if len(bytes.TrimSpace(input)) == 0 {
		return json.RawMessage("{}")
	}
	if json.Valid(input) {
		return input
	}
	text, _ := json.Marshal(string(input)) // encoding a string never fails
	return text
}
