package transcripts

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// readCall reads a call that is an item. It ignores a call that an event or an
// earlier item has shown.
func (c *codexReader) readCall(s parsedRecord, p codexPayload) {
	f := c.f
	c.hasItems = true
	b := contentBlock{ID: p.CallID, Name: p.Name, Input: codexInput(p)}
	if b.ID == "" {
		b.ID = p.ID
	}
	if p.Namespace != "" {
		b.Name = p.Namespace + "__" + b.Name
	}
	if b.Name == "" {
		b.Name = jsonText(strings.TrimSuffix(string(p.Type), "_call"))
	}
	if known := f.callFor(f.sessionFor(s), domain.CallID(b.ID)); known != nil && known.reply.session == f.sessionFor(s) &&
		known.call.Name == truncate(string(b.Name), maxName) && sameInput(known.call.Input, b.Input) {
		f.countIgnored("repeated call")
		return
	}
	f.readCall(s, c.reply(s), b)
	// The provider runs these tools itself, and the item says how they ended.
	if p.Type == "web_search_call" || p.Type == "image_generation_call" {
		if p.Status == "completed" || p.Status == "failed" {
			p.CallID = b.ID
			p.Success = json.RawMessage(strconv.FormatBool(p.Status == "completed"))
			c.readOutput(s, p)
		}
	}
}

// codexInput returns the input of a call as JSON. The arguments of a function are JSON
// in a string; a text that is not JSON remains a string.
func codexInput(p codexPayload) json.RawMessage {
	for _, input := range []json.RawMessage{p.Arguments, p.Input, p.Action} {
		switch firstByte(input) {
		case 0:
			continue
		case '"':
			var text string
			if json.Unmarshal(input, &text) == nil && json.Valid([]byte(text)) {
				return json.RawMessage(text)
			}
		}
		return input
	}
	return json.RawMessage("{}")
}

// readOutput reads the result of a call.
func (c *codexReader) readOutput(s parsedRecord, p codexPayload) {
	f := c.f
	id := domain.CallID(p.CallID)
	switch {
	case id == "":
		f.refuse("result has no call_id")
		return
	case len(id) > maxName:
		f.refuse("call ID of %d bytes is longer than %d", len(id), maxName)
		return
	}
	r := &callResult{session: f.sessionFor(s), id: id, key: s.key, at: s.time}
	call := f.callFor(r.session, id)
	content, failed, detail := codexOutput(p.Output)
	if string(p.Success) == "false" {
		failed = true
	}
	if end, ok := c.ended[id]; ok {
		failed, detail = failed || end.failed, firstText(jsonText(detail), jsonText(end.detail))
		delete(c.ended, id)
	}
	for i, b := range content {
		content[i] = b.fromURL()
	}
	shown := f.limitContents(blockContents(content), "result of call "+string(id))
	f.report.Results++
	f.settle(r, shown, failed, detail, codexOutcome(shown.Text(), failed))
	c.structure(r, call, p)
	f.placeResult(r, call)
	if agent := agentName(codex, r.structured); agent != "" {
		c.recordSpawn(p.CallID, jsonText(agent))
	}
}

// structure keeps a successful result that is a JSON object as the structured value.
// If an event names the sub-agent of the call, the value names it too.
func (c *codexReader) structure(r *callResult, call *modelCall, p codexPayload) {
	if r.outcome.outcome != domain.Succeeded || call == nil || !call.starts {
		return
	}
	value := map[string]json.RawMessage{}
	decodeLenient(json.RawMessage(r.content.Text()), &value)
	for child, by := range c.f.spawners {
		if by == call && value["agent_id"] == nil {
			value["agent_id"], _ = json.Marshal(child.agent)
		}
	}
	if structured, err := json.Marshal(value); err == nil && len(value) > 0 {
		c.f.keepStructured(r, structured, 1)
	}
}

// settle sets the outcome and the contents of a result, and counts its error. failed
// reports that the format marks the result as an error; detail describes its end.
func (f *sessionFile) settle(r *callResult, shown domain.Contents, failed bool, detail string, outcome callOutcome) {
	if failed {
		f.report.Errors++
	} else if exitPattern(shown.Text()) > 0 {
		f.report.ErrorsText++
	}
	if r.outcome = outcome; detail != "" {
		r.addDetail(detail)
	}
	r.keepContents(shown)
}

// codexOutput returns the contents of an output, whether the format marks it as an
// error, and its exit status in words. The output is a text, a list of parts, or an
// object; a text may be an object with the output and its exit status.
func codexOutput(output json.RawMessage) (content []contentBlock, failed bool, detail string) {
	var o struct {
		Content  json.RawMessage `json:"content"`
		Success  json.RawMessage `json:"success"`
		Output   json.RawMessage `json:"output"`
		Metadata struct {
			ExitCode json.RawMessage `json:"exit_code"`
		} `json:"metadata"`
	}
	switch firstByte(output) {
	case '"':
		var text jsonText
		decodeLenient(output, &text)
		if strings.HasPrefix(string(text), "{") && json.Valid([]byte(text)) {
			decodeLenient(json.RawMessage(text), &o)
			if o.Metadata.ExitCode != nil && o.Output != nil {
				failed, detail = exitStatus(o.Metadata.ExitCode)
				return contentBlocks(o.Output), failed, detail
			}
		}
		return []contentBlock{{Type: "text", Text: text}}, false, ""
	case '{':
		decodeLenient(output, &o)
		if o.Content != nil {
			return contentBlocks(o.Content), string(o.Success) == "false", ""
		}
	}
	return contentBlocks(output), false, ""
}

// exitStatus reports whether an exit status is not 0, and returns it in words.
func exitStatus(code json.RawMessage) (failed bool, detail string) {
	n, err := strconv.ParseInt(string(code), 10, 64)
	if err != nil || n == 0 {
		return false, ""
	}
	return true, fmt.Sprintf("exit status %d", n)
}

// codexPhrases are the beginnings of results that the program writes, with their
// outcome. The format has no other sign of these.
var codexPhrases = []outcomePhrase{
	{"exec command rejected by user", "", declined},
	{"patch rejected by user", "", declined},
	{"rejected by user", "", declined},
	{"aborted by user", "", byUser},
	{"aborted", "", byUser},
	{"command timed out after ", "", byDeadline},
	{"unsupported call: ", "", unknownTool},
	{"unsupported custom tool call: ", "", unknownTool},
	{"failed to parse function arguments: ", "", invalidInput},
	{"approval policy is ", "reject command", denied},
	{"Script failed", "approval policy is ", denied},
	{"Script failed", "", failed},
	{"failed in sandbox ", "", failed},
	{"execution error: ", "", failed},
	{"apply_patch verification failed: ", "", failed},
}

// codexOutcome returns the outcome of a result from its text and from its mark as an
// error.
func codexOutcome(text string, marked bool) callOutcome {
	// A phrase of the program stands in the first lines.
	head := truncate(strings.TrimSpace(text), 4096)
	for _, p := range codexPhrases {
		if strings.HasPrefix(head, p.prefix) && strings.Contains(head, p.contains) {
			return p.outcome
		}
	}
	if marked || exitPattern(text) > 0 {
		return failed
	}
	return callOutcome{outcome: domain.Succeeded, ran: true}
}

// exitLine matches a line with an exit status that the program writes before the
// output.
var exitLine = regexp.MustCompile(`(?m)^(?:Process exited with code|Exit code:) (\d+)$`)

// exitPattern returns the exit status in the lines before the output, or 0.
func exitPattern(text string) int {
	head, _, found := strings.Cut(truncate(text, 4096), "\nOutput:")
	if !found {
		return 0
	}
	m := exitLine.FindStringSubmatch(head)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// readBegin reads the beginning of a call that the program runs.
func (c *codexReader) readBegin(s parsedRecord, p codexPayload) {
	if call := c.eventCall(s, p); call != nil && call.result == nil {
		call.began = true
	}
}

// eventCall returns the call that an event is about. If the session has no call that
// is an item, the event is all that the file shows of the call, and eventCall adds it.
func (c *codexReader) eventCall(s parsedRecord, p codexPayload) *modelCall {
	f := c.f
	session := f.sessionFor(s)
	if call := f.callFor(session, domain.CallID(p.CallID)); call != nil && call.reply.session == session {
		return call
	}
	if c.hasItems || p.CallID == "" {
		f.countIgnored("event/" + string(p.Type))
		return nil
	}
	b := contentBlock{ID: p.CallID}
	switch {
	case p.Invocation.Tool != "":
		b.Name, b.Input = p.Invocation.Server+"__"+p.Invocation.Tool, p.Invocation.Arguments
	case strings.HasPrefix(string(p.Type), "patch"):
		b.Name, b.Input = "apply_patch", p.Changes
	default:
		b.Name, b.Input = "shell", p.Command
	}
	if firstByte(b.Input) == 0 {
		b.Input = json.RawMessage("{}")
	}
	f.readCall(s, c.reply(s), b)
	return f.callFor(session, domain.CallID(p.CallID))
}

// readEnd reads the end of a call that the program ran. It completes the result that
// the items have, or is the result of a call that only events show.
func (c *codexReader) readEnd(s parsedRecord, p codexPayload) {
	f := c.f
	hadItems := c.hasItems
	call := c.eventCall(s, p)
	if call == nil {
		return
	}
	failed, detail := exitStatus(p.ExitCode)
	if string(p.Success) == "false" || p.Status == "failed" || p.Status == "declined" {
		failed = true
	}
	if strings.Contains(truncate(string(p.Result), 64), `"Err"`) {
		failed = true
	}
	id := domain.CallID(p.CallID)
	switch r := call.result; {
	case r == nil && hadItems:
		c.ended[id] = codexEnd{failed: failed, detail: detail}
		call.began = true
	case r == nil:
		text := firstText(p.Aggregated, p.Stdout+p.Stderr, jsonText(p.Result))
		r := &callResult{session: call.reply.session, id: id, key: s.key, at: s.time}
		shown := f.limitContents(domain.Contents{domain.Text(text)}, "result of call "+string(id))
		outcome := codexOutcome("", failed)
		if p.Status == "declined" {
			outcome = declined
		}
		f.report.Results++
		f.settle(r, shown, failed, detail, outcome)
		c.endReply()
		f.placeResult(r, call)
	case failed && r.outcome.outcome == domain.Succeeded:
		// The command ran on after the result that the model read.
		shown := r.content
		f.report.Errors++
		r.outcome, r.content, r.structured = codexOutcome("", true), nil, nil
		if detail != "" {
			r.addDetail(detail)
		}
		r.keepContents(shown)
	}
}
