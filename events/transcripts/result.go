package transcripts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A callResult is the result of a call. The first result settles its call; each
// further one is a late result.
type callResult struct {
	session *fileSession
	// call is the call of the result, or nil if the file has no such call.
	call *modelCall
	// first is the result that settles the call, which can be this one.
	first *callResult
	id    domain.CallID
	// key is the permanent name of the result's record, with the index of the block.
	key        string
	at         time.Time
	outcome    callOutcome
	text       string
	content    domain.Contents
	structured json.RawMessage
	// attachedLater reports that attachEarly added a copy of this result after its
	// call, which came later in the file. This result then makes no event.
	attachedLater bool
}

// readResult reads one result and attaches it to its call. A result whose call was
// not read yet waits in earlyResults. It also becomes a step of its session, in case
// the file has no such call.
func (f *sessionFile) readResult(s parsedRecord, b contentBlock, place int) {
	id := domain.CallID(b.ToolUseID)
	if id == "" {
		f.refuse("result has no tool_use_id")
		return
	}
	if len(id) > maxName {
		f.refuse("call ID of %d bytes is longer than %d", len(id), maxName)
		return
	}
	f.report.Results++
	if b.IsError {
		f.report.Errors++
	}
	r := &callResult{session: f.sessionFor(s), id: id, key: fmt.Sprintf("%s/%d", s.key, place), at: s.time}
	f.fillResult(r, b, s)
	c := f.callFor(r.session, id)
	f.placeResult(r, c)
	if c != nil {
		f.noteAgent(s, c)
	}
}

// placeResult attaches a result to the call c, and makes it a step of the session of
// the call. If c is nil, the result waits for a call with its ID.
func (f *sessionFile) placeResult(r *callResult, c *modelCall) {
	if c != nil {
		r.session = c.reply.session
		f.attach(r, c)
	} else {
		f.report.OrphanResults++
		f.earlyResults[r.id] = append(f.earlyResults[r.id], r)
		r.first = f.earlyResults[r.id][0]
	}
	r.session.steps = append(r.session.steps, r)
}

// fillResult sets the outcome and the contents of a result within the limits. A
// successful result keeps its contents and the structured value, any other its text
// and media. If the record has several results, fillResult drops the structured
// value, because the record does not name the result to which it belongs.
func (f *sessionFile) fillResult(r *callResult, b contentBlock, s parsedRecord) {
	structured := s.record.ToolUseResult
	shown := f.limitContents(resultContents(b.Content), "result of call "+string(r.id))
	r.outcome = outcomeOf(shown.Text(), bool(b.IsError), structured)
	if r.keepContents(shown) {
		f.keepStructured(r, structured, s.resultCount)
	}
}

// keepContents sets the contents of a result whose outcome is known: those of a
// success, and otherwise the text and the media. It reports a success.
func (r *callResult) keepContents(shown domain.Contents) (succeeded bool) {
	if r.outcome.outcome != domain.Succeeded {
		r.text = shown.Text()
		if media := shown.Media(); len(media) > 0 && len(r.text) <= maxContext {
			r.content = shown
		} else if len(media) > 0 {
			for _, m := range media {
				r.content = append(r.content, m)
			}
		}
		return false
	}
	// A successful settlement has at least one content.
	if r.content = shown; len(shown) == 0 {
		r.content = domain.Contents{domain.Text("")}
	}
	return true
}

// keepStructured sets the structured value of a successful result, or its short
// members if it is over the limit. results is the number of results of the record.
func (f *sessionFile) keepStructured(r *callResult, structured json.RawMessage, results int) {
	switch c := firstByte(structured); {
	case c != '{' && c != '[' || len(r.content.Media()) > 0:
	case results > 1:
		r.addDetail("the structured value of one of the results of its record is not kept")
	case len(structured) > maxContext:
		r.structured = shortMembers(structured)
		f.reportCut("result of call %s: the structured value of %d bytes is kept without its long members", r.id, len(structured))
		r.addDetail(fmt.Sprintf("the structured value of %d bytes is not kept", len(structured)))
	default:
		r.structured = structured
	}
}

// shortMembers returns an object with its short members only. It returns nil if value
// is not an object, or if the short members together exceed maxContext.
func shortMembers(value json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if decodeLenient(value, &all); len(all) == 0 {
		return nil
	}
	for name, v := range all {
		if len(name)+len(v) > maxMember {
			delete(all, name)
		}
	}
	short, err := json.Marshal(all)
	if err != nil || len(all) == 0 || len(short) > maxContext {
		return nil
	}
	return short
}

// addDetail appends a remark to the detail of the outcome.
func (r *callResult) addDetail(detail string) {
	if r.outcome.detail != "" {
		detail = r.outcome.detail + "; " + detail
	}
	r.outcome.detail = detail
}

// callFor returns the call with this ID to which a result in the session own belongs,
// or nil. Among the latest maxCandidates such calls it prefers calls of that session,
// then open calls, then the latest call.
func (f *sessionFile) callFor(own *fileSession, id domain.CallID) *modelCall {
	var best *modelCall
	rank := -1
	all := f.calls[id]
	for _, c := range all[max(0, len(all)-maxCandidates):] {
		worth := 0
		if c.reply.session == own {
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

// attach makes r the result that settles c, or a late result if c already has a
// result.
func (f *sessionFile) attach(r *callResult, c *modelCall) {
	if r.call = c; c.result != nil {
		r.first = c.result
		return
	}
	r.first, c.result = r, r
	f.report.Open--
}

// attachEarly attaches to c the results that came before it in the file. It adds a
// copy of each result as a step after c, so that the settlement follows the call in
// the stream.
func (f *sessionFile) attachEarly(c *modelCall) {
	for _, early := range f.earlyResults[c.call.ID] {
		// The early result keeps its step, so that a file that ends before the call
		// has an orphan; it has no event once the call is there.
		found := *early
		early.attachedLater = true
		found.session = c.reply.session
		f.attach(&found, c)
		f.report.OrphanResults--
		found.session.steps = append(found.session.steps, &found)
	}
	delete(f.earlyResults, c.call.ID)
}

// drafts returns the settlement of the call, or a late result if another result
// settled the call. The cause of a settlement is the start of the call, or the reply
// if the call did not begin.
func (r *callResult) drafts() []events.Draft {
	if r.attachedLater {
		return nil
	}
	if r.first != r {
		return []events.Draft{r.lateDraft()}
	}
	message, tool := r.askingMessage()
	settled := events.CallSettled{
		Message: message, Call: r.id, Tool: tool, Outcome: r.outcome.outcome, Interruption: r.outcome.interruption,
		Text: r.text, Detail: r.outcome.detail, Structured: r.structured, Content: r.content,
	}
	d := events.Draft{ID: r.settlementID(), Time: r.at}
	if c := r.call; c != nil {
		settled.Turn, settled.Offered, settled.Effective = c.reply.turnID(), c.offered(), c.offered()
		if d.Causation = c.reply.eventID(); c.hasBegun() {
			settled, d.Causation = asBegun(settled), c.startedID()
		}
	}
	d.Event = settled
	return []events.Draft{d}
}

// asBegun returns the settlement s for a call that has begun. It replaces an outcome
// that such a call cannot have: a decline by the user becomes an interruption, and an
// unknown tool or an invalid input becomes a failure.
func asBegun(s events.CallSettled) events.CallSettled {
	s.Began = true
	switch s.Outcome {
	case domain.DeclinedByUser:
		s.Outcome, s.Interruption = domain.Interrupted, domain.ByUser
	case domain.UnknownTool, domain.InvalidInput:
		s.Outcome = domain.Failed
	}
	return s
}

// askingMessage returns the message and the tool name of the call. A result without a
// call has a message of its own and the tool "unknown".
func (r *callResult) askingMessage() (domain.MessageID, string) {
	if r.call == nil {
		return r.session.messageID(r.session.opened, "orphan", string(r.id)), "unknown"
	}
	return r.call.reply.messageID(), r.call.call.Name
}

// settlementID returns the ID of the settlement event that r makes if it is the first
// result of its call.
func (r *callResult) settlementID() domain.EventID {
	if r.call == nil {
		return r.session.eventID(r.at, "orphan", string(r.id))
	}
	return r.session.eventID(r.at, "settled", r.call.reply.key, string(r.id))
}

// lateDraft returns the event of a late result, caused by the settlement.
func (r *callResult) lateDraft() events.Draft {
	message, tool := r.askingMessage()
	settlement := r.first.settlementID()
	late := events.LateResultObserved{
		Message: message, Call: r.id, Tool: tool, Settlement: settlement, Outcome: r.outcome.outcome, Text: r.text, Structured: r.structured,
	}
	if late.Text == "" {
		late.Text = r.content.Text()
	}
	id := r.session.eventID(r.at, "late", message.String(), string(r.id), r.key)
	return events.Draft{ID: id, Time: r.at, Causation: settlement, Event: late}
}

// noteAgent records that the call c started the sub-agent that the structured value
// of the record s names. It ignores a record with several results.
func (f *sessionFile) noteAgent(s parsedRecord, c *modelCall) {
	if agent := agentName(claudeCode, s.record.ToolUseResult); agent != "" && s.resultCount == 1 {
		f.recordSpawn(sessionKey{c.reply.session.key.session, agent}, c)
	}
}

// agentMembers has, by format, the member of a structured value that names the
// sub-agent which the call started.
var agentMembers = map[string]string{claudeCode: "agentId", codex: "agent_id", opencode: "sessionId"}

// agentName returns the name of the sub-agent in a structured value, or an empty
// string. Most values have no such name, so it searches the bytes for the member
// before it decodes the value.
func agentName(format string, structured json.RawMessage) string {
	member := agentMembers[format]
	if member == "" || firstByte(structured) != '{' || !bytes.Contains(structured, []byte(`"`+member+`"`)) {
		return ""
	}
	var value map[string]json.RawMessage
	var agent jsonText
	if decodeLenient(structured, &value); value[member] != nil {
		decodeLenient(value[member], &agent)
	}
	return truncate(string(agent), maxName)
}
