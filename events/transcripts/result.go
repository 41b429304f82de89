package transcripts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A result is what came back for a call.
type result struct {
	chain      *chain
	call       *call // nil where none asked for it
	first      *result
	id         domain.CallID
	key        string
	at         time.Time
	ending     ending
	text       string
	content    domain.Contents
	structured json.RawMessage
	moved      bool // said behind its call, which came later
}

// result reads one result.
func (f *file) result(s saying, b block, place int) {
	id := domain.CallID(b.ToolUseID)
	if id == "" {
		f.refuse("result has no tool_use_id")
		return
	}
	if len(id) > mostName {
		f.refuse("call ID of %d bytes is longer than %d", len(id), mostName)
		return
	}
	f.report.Results++
	if b.IsError {
		f.report.Errors++
	}
	r := &result{chain: f.chain(s), id: id, key: fmt.Sprintf("%s/%d", s.key, place), at: s.at}
	f.read(r, b, s)
	if c := f.callOf(r.chain, id); c != nil {
		r.chain = c.reply.chain
		f.attach(r, c)
		f.reported(s, c)
	} else {
		f.report.OrphanResults++
		f.early[id] = append(f.early[id], r)
		r.first = f.early[id][0]
	}
	r.chain.steps = append(r.chain.steps, r)
}

// read takes what a result says. The structured value of a record that has
// several results is that of one of them, and it is not said of which.
func (f *file) read(r *result, b block, s saying) {
	beside := s.record.ToolUseResult
	shown := f.bounded(contents(b.Content), "result of call "+string(r.id))
	r.ending = endingOf(shown.Text(), bool(b.IsError), beside)
	if r.ending.outcome != domain.Succeeded {
		r.text = shown.Text()
		if media := shown.Media(); len(media) > 0 && len(r.text) <= mostContext {
			r.content = shown
		} else if len(media) > 0 {
			for _, m := range media {
				r.content = append(r.content, m)
			}
		}
		return
	}
	if r.content = shown; len(shown) == 0 {
		r.content = domain.Contents{domain.Text("")}
	}
	switch c := first(beside); {
	case c != '{' && c != '[' || len(shown.Media()) > 0:
	case s.results > 1:
		r.note("the structured value of one of the results of its record is not kept")
	case len(beside) > mostContext:
		r.structured = shortMembers(beside)
		f.cut("result of call %s: the structured value of %d bytes is kept without its long members", r.id, len(beside))
		r.note(fmt.Sprintf("the structured value of %d bytes is not kept", len(beside)))
	default:
		r.structured = beside
	}
}

// shortMembers returns an object with its short members alone, and nothing
// where a value is no object or has too many of them.
func shortMembers(value json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if lenient(value, &all); len(all) == 0 {
		return nil
	}
	for name, v := range all {
		if len(name)+len(v) > mostMember {
			delete(all, name)
		}
	}
	short, err := json.Marshal(all)
	if err != nil || len(all) == 0 || len(short) > mostContext {
		return nil
	}
	return short
}

func (r *result) note(detail string) {
	if r.ending.detail != "" {
		detail = r.ending.detail + "; " + detail
	}
	r.ending.detail = detail
}

// callOf returns the call that a result is of: the latest of that ID that is
// open, in the result's own chain if it has one; else the latest.
func (f *file) callOf(own *chain, id domain.CallID) *call {
	var best *call
	rank := -1
	all := f.calls[id]
	for _, c := range all[max(0, len(all)-mostAlike):] {
		worth := 0
		if c.reply.chain == own {
			worth += 2
		}
		if c.result == nil {
			worth++
		}
		if worth >= rank {
			best, rank = c, worth
		}
	}
	return best
}

// attach makes r a result of c: the one that settles it, or a late one.
func (f *file) attach(r *result, c *call) {
	if r.call = c; c.result != nil {
		r.first = c.result
		return
	}
	r.first, c.result = r, r
	f.report.Open--
}

// find gives a call the results that came before it.
func (f *file) find(c *call) {
	for _, early := range f.early[c.asked.ID] {
		found := *early
		early.moved = true
		found.chain = c.reply.chain
		f.attach(&found, c)
		f.report.OrphanResults--
		found.chain.steps = append(found.chain.steps, &found)
	}
	delete(f.early, c.asked.ID)
}

// drafts returns the settlement of the call, or for all but the first result
// of it that another came.
func (r *result) drafts() []events.Draft {
	if r.moved {
		return nil
	}
	if r.first != r {
		return []events.Draft{r.late()}
	}
	message, tool := r.asker()
	settled := events.CallSettled{
		Message: message, Call: r.id, Tool: tool, Outcome: r.ending.outcome, Interruption: r.ending.interruption,
		Text: r.text, Detail: r.ending.detail, Structured: r.structured, Content: r.content,
	}
	d := events.Draft{ID: r.settlement(), Time: r.at}
	if c := r.call; c != nil {
		settled.Turn, settled.Offered, settled.Effective = c.reply.turn(), c.offered(), c.offered()
		if d.Causation = c.reply.event(); c.hasBegun() {
			settled, d.Causation = begun(settled), c.started()
		}
	}
	d.Event = settled
	return []events.Draft{d}
}

// begun returns the settlement of a call that is known to have begun, whatever
// its text says.
func begun(s events.CallSettled) events.CallSettled {
	s.Began = true
	switch s.Outcome {
	case domain.DeclinedByUser: // a person cannot refuse what runs, only stop it
		s.Outcome, s.Interruption = domain.Interrupted, domain.ByUser
	case domain.UnknownTool, domain.InvalidInput:
		s.Outcome = domain.Failed
	}
	return s
}

// asker returns the message that asked for the call, and the name it asked
// for. A call that nobody asked has a message of its own.
func (r *result) asker() (domain.MessageID, string) {
	if r.call == nil {
		return r.chain.message(r.chain.opened, "orphan", string(r.id)), "unknown"
	}
	return r.call.reply.message(), r.call.asked.Name
}

// settlement returns the event that settles the call, of the first result.
func (r *result) settlement() domain.EventID {
	if r.call == nil {
		return r.chain.event(r.at, "orphan", string(r.id))
	}
	return r.chain.event(r.at, "settled", r.call.reply.key, string(r.id))
}

func (r *result) late() events.Draft {
	message, tool := r.asker()
	settlement := r.first.settlement()
	late := events.LateResultObserved{
		Message: message, Call: r.id, Tool: tool, Settlement: settlement, Outcome: r.ending.outcome, Text: r.text, Structured: r.structured,
	}
	if late.Text == "" {
		late.Text = r.content.Text()
	}
	id := r.chain.event(r.at, "late", message.String(), string(r.id), r.key)
	return events.Draft{ID: id, Time: r.at, Causation: settlement, Event: late}
}

// reported takes it that the result of a call names the sub-agent that the call
// began.
func (f *file) reported(s saying, c *call) {
	if agent := agentIn(s.record.ToolUseResult); agent != "" && s.results == 1 {
		f.spawned(chainKey{c.reply.chain.key.session, agent}, c)
	}
}

// agentIn returns the name of the sub-agent that a structured value reports of,
// and nothing where it reports of none.
func agentIn(structured json.RawMessage) string {
	if first(structured) != '{' || !bytes.Contains(structured, []byte(`"agentId"`)) {
		return ""
	}
	var value struct {
		Agent text `json:"agentId"`
	}
	lenient(structured, &value)
	return beginning(string(value.Agent), mostName)
}
