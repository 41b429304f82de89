package transcripts

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A modelReply is one message of a model. The format writes a record for each part of
// a message; all records with one message ID form one reply. drafts makes its events
// at the end of the file, when the reply is complete.
type modelReply struct {
	session *fileSession
	// key is the message ID; if the records lack it, the request ID; if they lack both,
	// the key of the first record. The IDs of the reply's events derive from key.
	key string
	// at is the time of the first record.
	at time.Time
	// cause is the last prompt before the reply, or nil.
	cause    *userPrompt
	texts    []string
	thoughts []string
	// size is the size in JSON of texts, thoughts and inputs, at most maxText.
	size   int
	calls  []*modelCall
	model  string
	tokens events.Tokens
	finish string
}

// reply returns the reply to which a record belongs. It adds the reply to the steps
// of the session at its first record.
func (c *fileSession) reply(s parsedRecord, m chatMessage) *modelReply {
	key := string(m.ID)
	if key == "" {
		key = string(s.record.Request)
	}
	if key == "" {
		key = s.key
	}
	if r, ok := c.replies[key]; ok {
		return r
	}
	r := &modelReply{session: c, key: key, at: s.time, cause: c.prompt}
	c.replies[key] = r
	c.steps = append(c.steps, r)
	return r
}

// messageID returns the ID of the reply's message.
func (r *modelReply) messageID() domain.MessageID { return r.session.messageID(r.at, "reply", r.key) }

// turnID returns the ID of the turn that the reply answers.
func (r *modelReply) turnID() domain.TurnID { return r.session.turnID(r.at, r.key) }

// eventID returns the ID of the event that records the reply.
func (r *modelReply) eventID() domain.EventID { return r.session.eventID(r.at, "reply", r.key) }

// merge adds the model, finish reason and token counts of a record. Each record of a
// reply repeats the token counts so far, so the reply gets the largest. The first
// model of a session other than "<synthetic>" becomes the model of the session.
func (r *modelReply) merge(m chatMessage, at time.Time) {
	t := m.tokens()
	r.tokens = events.Tokens{
		Input: max(r.tokens.Input, t.Input), Output: max(r.tokens.Output, t.Output),
		CacheRead: max(r.tokens.CacheRead, t.CacheRead), CacheWrite: max(r.tokens.CacheWrite, t.CacheWrite),
	}
	if r.model == "" {
		r.model = truncate(string(m.Model), maxName)
	}
	if m.StopReason != "" {
		r.finish = truncate(string(m.StopReason), maxName)
	}
	if r.session.model == "" && m.Model != "<synthetic>" {
		r.session.model, r.session.modelAt = r.model, at
	}
}

// addText appends a text to texts, cut to the limit of the event. It ignores a text
// that texts has already, because a record that is repeated with another uuid has the
// same text.
func (f *sessionFile) addText(r *modelReply, texts *[]string, text, name string) {
	if text == "" || slices.Contains(*texts, text) {
		return
	}
	if kept := f.fitText(&r.size, text, name); kept != "" {
		*texts = append(*texts, kept)
	}
}

// drafts returns the observed turn, which offers the tools that the reply calls, and
// the reply, which the turn caused.
func (r *modelReply) drafts() []events.Draft {
	turn := events.TurnMaterialized{
		Turn: r.turnID(), Message: r.messageID(), Agent: r.session.agent, Model: r.model, Tools: []domain.Offered{}, Observed: true,
	}
	received := events.ReplyReceived{
		Turn: turn.Turn, Message: turn.Message, Text: strings.Join(r.texts, "\n\n"), Model: r.model, Tokens: r.tokens, Finish: r.finish,
		Thinking: strings.Join(r.thoughts, "\n\n"),
	}
	for _, c := range r.calls {
		received.Calls = append(received.Calls, c.call)
		if o := c.offered(); !o.IsZero() && !slices.Contains(turn.Tools, o) {
			turn.Tools = append(turn.Tools, o)
		}
	}
	// The turn caused the reply, and the last prompt caused the turn.
	d := events.Draft{ID: r.session.eventID(r.at, "turn", r.key), Time: r.at, Event: turn}
	if r.cause != nil {
		d.Causation = r.cause.eventID()
	}
	return []events.Draft{d, {ID: r.eventID(), Time: r.at, Causation: d.ID, Event: received}}
}

// A modelCall is a tool call that a reply contains.
type modelCall struct {
	reply *modelReply
	call  domain.Call
	// inputDigest is the digest of the whole input if the input in call is cut, and
	// zero otherwise.
	inputDigest contentDigest
	at          time.Time
	// result is the first result, or nil while the call is open.
	result *callResult
	// began reports that progress or a sub-agent shows that the call ran.
	began bool
	// starts reports that the call starts another agent.
	starts bool
}

// offered returns the observed registration of the tool, or zero for an invalid name.
func (c *modelCall) offered() domain.Offered { return c.reply.session.offered(c.call.Name) }

// spawnTools has, by format, the tools that start another agent.
var spawnTools = map[string]map[string]bool{
	claudeCode: {"Task": true, "Agent": true},
	codex:      {"spawn_agent": true},
	opencode:   {"task": true},
}

// readCall adds a call to the reply r, and attaches the results and sub-agents that
// were read before the call. It ignores a repetition of a call. It refuses a call
// without an ID or with an ID that is too long, a call that contradicts an earlier
// call with the same ID in r, and a call for which the event has no room.
func (f *sessionFile) readCall(s parsedRecord, r *modelReply, b contentBlock) {
	id := domain.CallID(b.ID)
	if id == "" {
		f.refuse("call of %q has no id", truncate(string(b.Name), maxName))
		return
	}
	if len(id) > maxName {
		f.refuse("call ID of %d bytes is longer than %d", len(id), maxName)
		return
	}
	for _, c := range r.calls {
		if c.call.ID == id {
			// A repeated call has the same input, whose members may have another
			// order.
			same := c.inputDigest == sumParts(b.Input) || c.inputDigest == contentDigest{} && sameInput(c.call.Input, b.Input)
			if c.call.Name != truncate(string(b.Name), maxName) || !same {
				f.refuse("call %q comes again in the same reply with another name or input", id)
			}
			return
		}
	}
	// Each call counts towards the size of the reply, so that many small calls cannot
	// exceed the limit of the event.
	if r.size += callOverhead + len(id) + min(len(b.Name), maxName); r.size > maxText {
		f.refuse("call %q: its reply is too long with it", id)
		return
	}
	c := &modelCall{reply: r, at: s.time, call: domain.Call{ID: id, Name: truncate(string(b.Name), maxName), Input: b.Input}}
	if kept := f.fitText(&r.size, string(b.Input), "input of call "+string(id)); len(kept) != len(b.Input) {
		c.inputDigest = sumParts(b.Input)
		c.call.Input, _ = json.Marshal(kept)
	}
	c.starts = spawnTools[f.format][c.call.Name]
	r.session.observeTool(c.call.Name, s.time)
	r.calls = append(r.calls, c)
	r.session.steps = append(r.session.steps, c)
	f.calls[id] = append(f.calls[id], c)
	f.report.Calls++
	f.report.Open++
	f.attachEarly(c)
	for _, child := range f.awaitedSpawns[id] {
		f.recordSpawn(child, c)
	}
	delete(f.awaitedSpawns, id)
}

// sameInput reports whether two inputs are the same JSON value. Inputs without a
// canonical form must have the same bytes.
func sameInput(a, b json.RawMessage) bool {
	if string(a) == string(b) {
		return true
	}
	x, err := domain.Canonical(a)
	if err != nil {
		return false
	}
	y, err := domain.Canonical(b)
	return err == nil && string(x) == string(y)
}

// startedID returns the ID of the event that starts the call.
func (c *modelCall) startedID() domain.EventID {
	return c.reply.session.eventID(c.at, "started", c.reply.key, string(c.call.ID))
}

// drafts returns the start of the call, if the file shows that it began, and
// otherwise no event.
func (c *modelCall) drafts() []events.Draft {
	if !c.hasBegun() {
		return nil
	}
	return []events.Draft{{ID: c.startedID(), Time: c.at, Causation: c.reply.eventID(), Event: events.CallStarted{
		Turn: c.reply.turnID(), Message: c.reply.messageID(), Call: c.call.ID, Tool: c.call.Name, Offered: c.offered(), Effective: c.offered(),
	}}}
}

// hasBegun reports whether progress, a sub-agent or the result shows that the call
// ran.
func (c *modelCall) hasBegun() bool { return c.began || c.result != nil && c.result.outcome.ran }
