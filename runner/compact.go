package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
)

// The size of a summary in bytes. Within these bounds it is an eighth of the request.
const (
	minSummary = 2_000
	maxSummary = 32_768
)

// summaryInstruction is the instruction of a request for a summary.
const summaryInstruction = `Summarize this session up to here. The summary will take the place of all messages above, and whoever reads it must be able to go on with nothing else. State in this order:
1. The user's requests and constraints, in the user's own words where the wording matters.
2. The state of the work: what was done, with the exact names of files, functions, commands and identifiers.
3. What was learned: facts, decisions and the reasons for them, and what failed and how.
4. What remains to be done, and the next step.
Reply with the summary alone. Do not call tools.`

// contextLimits returns the limits of the model of the next turn. They are not known if
// the provider is no ContextLimiter.
func (c *runState) contextLimits() contextLimits {
	limits := contextLimits{model: c.facts().Model}
	if l, ok := c.config.Provider.(ContextLimiter); ok {
		limits.window, limits.output = l.ContextLimit(limits.model)
	}
	return limits
}

// compact takes the step of a compaction: it asks the model for a summary of the messages
// that the plan leaves out, and records the ContextCompacted. If the model cannot be asked,
// or returns no usable text, the program writes the summary and records the reason. compact
// appends nothing if the session has changed since the step was planned.
func (c *runState) compact(ctx context.Context, p compaction) error {
	limits := c.contextLimits()
	event := events.ContextCompacted{Trigger: p.trigger, Before: p.before, Window: limits.window, Reserved: limits.output, Shortened: p.shortened}
	if p.leftOut == 0 {
		event.After = p.after
		return c.recordCompaction(ctx, nil, event, c.session.Last)
	}
	n := p.leftOut - c.session.Forgotten.Messages()
	removed := c.session.Messages[:n]
	if n > 0 {
		event.Through = removed[n-1].ID
	} else { // the same messages as before
		event.Through = c.session.Compaction.Compacted.Through
	}
	count := c.session.Forgotten
	count.Add(removed)
	event.Prompts, event.Replies, event.Calls = count.Prompts, count.Replies, count.Calls
	size := maxSummary
	if input := limits.input(); input > 0 {
		size = int(min(max(minSummary, input*bytesPerToken/8), maxSummary))
	}
	bounds := registry.Limits{Lines: size, Bytes: size}
	finish := func(drafts []events.Draft, summary string, cause domain.EventID) error {
		event.Summary = bounds.Cut(strings.ToValidUTF8(summary, "\uFFFD"))
		event.After = p.after + tokensPerMessage + textTokens(int64(len(event.Summary)))
		return c.recordCompaction(ctx, drafts, event, cause)
	}
	if s := c.session.Compaction; s != nil && s.LeftOut == p.leftOut { // only further results are left out
		event.Model, event.Detail = s.Compacted.Model, s.Compacted.Detail
		return finish(nil, s.Compacted.Summary, c.session.Last)
	}
	turn, drafts, err := c.summaryTurn(n, event.Through)
	if err != nil { // the provider does not accept the request
		event.Detail = registry.DefaultLimits.Cut(err.Error())
		return finish(nil, c.programSummary(removed, size), c.session.Last)
	}
	asked, ok, err := c.recordTurn(ctx, drafts)
	if err != nil || !ok {
		return err
	}
	got := receivedReply{ReplyReceived: events.ReplyReceived{Turn: turn.ID, Message: turn.Message, Model: turn.Model}}
	err = c.receive(ctx, turn, &got)
	switch {
	case ctx.Err() != nil:
		return c.recordFailure(ctx, got, fmt.Errorf("ask %s for a summary: %w", turn.Agent, cmp.Or(err, context.Cause(ctx))), asked)
	case err == nil && len(got.Calls) > 0:
		err = &badReply{"a summary was asked for, and the reply has calls"}
	case err == nil && strings.TrimSpace(got.Text) == "":
		err = &badReply{"a summary was asked for, and the reply has no text"}
	}
	if err != nil {
		event.Detail = registry.DefaultLimits.Cut(err.Error())
		return finish(c.failureDrafts(got, err, asked), c.programSummary(removed, size), asked)
	}
	event.Model, event.Tokens = got.Model, got.Tokens
	return finish(c.attemptDrafts(got, asked), withLastPrompt(got.Text, c.session, n, size), asked)
}

// withLastPrompt returns a summary of the messages of s before s.Messages[n] in at most
// size bytes. If no prompt is behind them, the summary ends with the last one, word for
// word: the model shall not depend on a summary for what it is working on.
func withLastPrompt(summary string, s *conversation.State, n, size int) string {
	summary = strings.TrimSpace(summary)
	isPrompt := func(m conversation.Message) bool { return m.Prompt != nil }
	if s.LastPrompt == nil || slices.ContainsFunc(s.Messages[n:], isPrompt) {
		return summary
	}
	text := registry.Limits{Lines: size, Bytes: size / 4}.Cut(s.LastPrompt.Text)
	return registry.Limits{Lines: size, Bytes: size / 2}.Cut(summary) + "\n\nThe last message of the user, word for word:\n\n" + text
}

// summaryTurn returns the turn that asks for a summary of the first n messages that are not
// forgotten, with the summary of those before, up to the message through, and the drafts that record it.
func (c *runState) summaryTurn(n int, through domain.MessageID) (Turn, []events.Draft, error) {
	mint, facts := c.config.Ledger.Mint(), c.facts()
	request := *c.session
	request.Messages = c.session.Messages[:n:n]
	turn := Turn{
		Session: c.session.Session, ID: mint.Turn(), Message: mint.Message(), Agent: facts.Agent, Model: facts.Model,
		System: c.profile.System, Conversation: &request, Disabled: true, Instruction: summaryInstruction, Summary: true,
	}
	event := c.turnEvent(turn, facts)
	event.Summarizes = through
	record, err := c.prepare(turn)
	if err != nil {
		return Turn{}, nil, err
	}
	drafts := c.textDrafts(&event, turn, record, nil)
	return turn, append(drafts, c.config.Ledger.Draft(event, c.session.Last)), nil
}

// recordCompaction appends drafts and a compaction.
func (c *runState) recordCompaction(ctx context.Context, drafts []events.Draft, e events.ContextCompacted, cause domain.EventID) error {
	if _, err := c.journal.writer.Append(ctx, append(drafts, c.config.Ledger.Draft(e, cause))...); err != nil {
		return fmt.Errorf("record compaction: %w", err)
	}
	return nil
}

// retriesShorter reports whether the run goes on after a turn that failed: the provider
// refused the request as too large, and more can be left out.
func (c *runState) retriesShorter(ctx context.Context, failure error) bool {
	p, ok := errors.AsType[*ProviderError](failure)
	if !ok || p.Failure != ContextExceeded || ctx.Err() != nil || c.refresh(ctx) != nil {
		return false
	}
	_, ok = planCompaction(c.session, c.contextLimits())
	return ok
}

// programSummary returns a summary of messages, and of the forgotten ones before them, in at
// most size bytes. If there are forgotten ones, it begins with the last summary, in a third
// of the bytes.
func (c *runState) programSummary(messages []conversation.Message, size int) string {
	if c.session.Forgotten.Messages() == 0 {
		return summarize(messages, size)
	}
	earlier := registry.Limits{Lines: size, Bytes: size / 3}.Cut(c.session.Compaction.Compacted.Summary)
	return strings.TrimSpace(earlier + "\n\nAfter that:\n\n" + summarize(messages, size-size/3-100))
}

// summarize returns a summary of messages in at most size bytes: the prompts, the files
// that calls changed, the numbers of calls, and the texts of the last replies.
func summarize(messages []conversation.Message, size int) string {
	share := func(title string, lines []string, size int) string {
		if len(lines) == 0 {
			return ""
		}
		each := max(size/len(lines), 200)
		text := title
		for _, line := range lines {
			text += "\n- " + registry.Limits{Lines: each, Bytes: each}.Cut(line)
		}
		return registry.Limits{Lines: size, Bytes: size}.Cut(text) + "\n\n"
	}
	var prompts, replies, files, tools []string
	changed, calls, failed := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, m := range messages {
		if m.Prompt != nil {
			prompts = append(prompts, m.Prompt.Text)
			continue
		}
		if strings.TrimSpace(m.Reply.Text) != "" {
			replies = append(replies, m.Reply.Text)
		}
		for call := range m.Reply.All() {
			if calls[call.Name]++; calls[call.Name] == 1 {
				tools = append(tools, call.Name)
			}
			if call.Settlement == nil || call.Settlement.Outcome != domain.Succeeded {
				failed[call.Name]++
				continue
			}
			for _, f := range call.Settlement.Files {
				if f.Access == domain.FileChanged && !changed[f.Path] {
					changed[f.Path] = true
					files = append(files, f.Path)
				}
			}
		}
	}
	for i, name := range tools {
		tools[i] = fmt.Sprintf("%s: %d, of which %d did not succeed", name, calls[name], failed[name])
	}
	text := share("Prompts of the user, the oldest first:", prompts, size/2) +
		share("Files that tool calls changed:", files, size/8) +
		share("Tool calls:", tools, size/8) +
		share("The last replies, the oldest first:", replies[max(0, len(replies)-5):], size/4)
	return strings.TrimSpace(registry.Limits{Lines: size, Bytes: size}.Cut(text))
}
