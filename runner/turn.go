package runner

import (
	"bytes"
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
// model fails, the turn stays without a reply, and the next run takes a new turn. ask
// appends nothing if the session has changed since the step was planned.
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
	reply, err := c.reply(ctx, turn)
	if bad, ok := errors.AsType[*badReply](err); ok {
		return c.refuse(ctx, reply, bad, offered)
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", turn.Agent, err)
	}
	if _, err := c.journal.writer.Append(ctx, c.config.Ledger.Draft(reply, offered)); err != nil {
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

// refuse records an unusable reply with the reason in bad, so that an auditor can read
// the reply. It returns the error of the run.
func (c *runState) refuse(ctx context.Context, reply events.ReplyReceived, bad *badReply, turn domain.EventID) error {
	e := events.ReplyRefused{
		Turn: reply.Turn, Message: reply.Message, Reason: bad.reason, Text: reply.Text, Calls: reply.Calls,
		Model: reply.Model, Tokens: reply.Tokens, Finish: reply.Finish,
	}
	err := fmt.Errorf("ask %s: %w", c.session.Agent, bad)
	if _, appendErr := c.journal.writer.Append(ctx, c.config.Ledger.Draft(e, turn)); appendErr != nil {
		return errors.Join(err, fmt.Errorf("record refused reply: %w", appendErr))
	}
	return err
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
	event := events.TurnMaterialized{
		Turn: turn.ID, Message: turn.Message, Agent: turn.Agent, Model: turn.Model, Tools: []domain.Offered{}, Disabled: last,
		Provider: facts.Provider, Client: facts.Client, Flags: facts.Flags, Rules: facts.Rules.Digest(),
	}
	var described map[domain.Name]string
	if !last {
		m, err := c.registry().Materialize(ctx, registry.TurnSpec{ID: turn.ID, Facts: facts})
		if err != nil {
			return Turn{}, nil, err
		}
		turn.Tools, described = m.Definitions(), m.Described()
		event.Tools, event.Hidden = append(event.Tools, m.Offer().Tools...), m.Hidden()
	}
	drafts := c.textDrafts(&event, described)
	return turn, append(drafts, c.config.Ledger.Draft(event, c.session.Last)), nil
}

// reply asks the provider and assembles its reply. If the reply is unusable, it returns
// the reply as the provider sent it and a *badReply error. It reads such a reply to the
// end, so that the record is complete.
func (c *runState) reply(ctx context.Context, turn Turn) (events.ReplyReceived, error) {
	reply := events.ReplyReceived{Turn: turn.ID, Message: turn.Message, Model: turn.Model}
	var text strings.Builder
	var bad *badReply
	refuse := func(format string, args ...any) {
		if bad == nil {
			bad = &badReply{fmt.Sprintf(format, args...)}
		}
	}
	seen := map[domain.CallID]bool{}
	for part, err := range c.config.Provider.Reply(ctx, turn) {
		if err != nil {
			return reply, err
		}
		switch part := part.(type) {
		case TextPart:
			text.WriteString(string(part))
		case CallPart:
			name, id := registry.ShortName(part.Name), registry.ShortName(string(part.ID))
			switch {
			case part.ID == "":
				refuse("call %d, of %q, has no ID", len(reply.Calls)+1, name)
			case !utf8.ValidString(string(part.ID)):
				refuse("call %d, of %q, has the ID %q, which is not UTF-8", len(reply.Calls)+1, name, id)
			case len(part.ID) > maxCallID:
				refuse("call %d, of %q, has an ID of %d bytes, which is over the limit of %d", len(reply.Calls)+1, name, len(part.ID), maxCallID)
			case seen[part.ID]:
				refuse("call %d, of %q, has the ID %q of a call before it", len(reply.Calls)+1, name, id)
			}
			seen[part.ID] = true
			reply.Calls = append(reply.Calls, domain.Call{ID: part.ID, Name: part.Name, Input: asJSON(part.Input)})
		case FinishPart:
			reply.Finish, reply.Tokens = part.Reason, part.Tokens
			if part.Model != "" {
				reply.Model = part.Model
			}
		default:
			refuse("it has a part of type %T", part)
		}
	}
	reply.Text = text.String()
	if err := context.Cause(ctx); err != nil || bad == nil {
		return reply, err
	}
	return reply, bad
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
