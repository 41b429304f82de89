package transcripts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// ReadOpencode reads a session file of opencode to its end: a document of
// `opencode export`, or JSON lines with parts, those of `opencode run --format json`
// among them. [ReadPath] also reads the database and the storage folder. The errors and
// the report contain the name. A file without a record of the format is an
// [ErrForeign]. Other faults are in the report, by the number of the line or message.
func ReadOpencode(name string, r io.Reader) (*Transcript, error) {
	f := newSessionFile(name, opencode)
	o := newOpencodeReader(f)
	buffered := bufio.NewReaderSize(r, maxHead)
	head, _ := buffered.Peek(maxHead)
	rest, isObject := bytes.CutPrefix(bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\uFEFF"))), []byte("{"))
	rest = bytes.TrimSpace(rest)
	if isObject && (bytes.HasPrefix(rest, []byte(`"info"`)) || bytes.HasPrefix(rest, []byte(`"messages"`))) {
		err := newDocumentReader(f, buffered).read(o.readMember, []string{"messages"}, o.readElement)
		return f.finishDocument(err, "message")
	}
	return readLines(f, newLineScanner(buffered, maxLine), o.readLine)
}

// An opencodeReader is the state of reading sessions of opencode.
type opencodeReader struct {
	f *sessionFile
	// key is the current session, which begun reports to have begun.
	key   sessionKey
	begun bool
	// messages counts the messages with one ID: redactors write one ID over many.
	messages map[string]int
	// replyKey names the reply to which lines without a message ID belong.
	replyKey string
	// lastPart is the ID of the last text part, which a later line may repeat with more
	// text.
	lastPart string
	// finished has the parts step-finish that were read, by ID.
	finished map[string]bool
}

// newOpencodeReader returns the state before the first record.
func newOpencodeReader(f *sessionFile) *opencodeReader {
	return &opencodeReader{f: f, messages: map[string]int{}, finished: map[string]bool{}}
}

// An opencodeInfo describes a session.
type opencodeInfo struct {
	ID        jsonText     `json:"id"`
	Parent    jsonText     `json:"parentID"`
	Directory jsonText     `json:"directory"`
	Version   jsonText     `json:"version"`
	Agent     jsonText     `json:"agent"`
	Time      opencodeTime `json:"time"`
	Revert    struct {
		Message jsonText `json:"messageID"`
	} `json:"revert"`
}

// An opencodeTime has milliseconds since 1970.
type opencodeTime struct {
	Created jsonUint `json:"created"`
	Start   jsonUint `json:"start"`
	End     jsonUint `json:"end"`
}

// An opencodeMessage is a message of the user or of the model.
type opencodeMessage struct {
	ID      jsonText     `json:"id"`
	Session jsonText     `json:"sessionID"`
	Role    jsonText     `json:"role"`
	Time    opencodeTime `json:"time"`
	ModelID jsonText     `json:"modelID"`
	Model   struct {
		ID jsonText `json:"modelID"`
	} `json:"model"`
	Tokens opencodeTokens `json:"tokens"`
	Finish jsonText       `json:"finish"`
	Error  opencodeError  `json:"error"`
	Path   struct {
		CWD jsonText `json:"cwd"`
	} `json:"path"`
}

// opencodeTokens are token counts; output excludes the reasoning.
type opencodeTokens struct {
	Input     jsonCount `json:"input"`
	Output    jsonCount `json:"output"`
	Reasoning jsonCount `json:"reasoning"`
	Cache     struct {
		Read  jsonCount `json:"read"`
		Write jsonCount `json:"write"`
	} `json:"cache"`
}

// counts returns the token counts of an event.
func (t opencodeTokens) counts() events.Tokens {
	return events.Tokens{Input: int64(t.Input), Output: int64(t.Output + t.Reasoning), CacheRead: int64(t.Cache.Read), CacheWrite: int64(t.Cache.Write)}
}

// An opencodeError is the error that ended a message.
type opencodeError struct {
	Name jsonText `json:"name"`
	Data struct {
		Message jsonText  `json:"message"`
		Status  jsonCount `json:"statusCode"`
	} `json:"data"`
}

// An opencodePart is a part of a message. Type decides which members are set.
type opencodePart struct {
	Type      jsonText       `json:"type"`
	ID        jsonText       `json:"id"`
	Message   jsonText       `json:"messageID"`
	Session   jsonText       `json:"sessionID"`
	Text      jsonText       `json:"text"`
	Synthetic jsonFlag       `json:"synthetic"`
	Tool      jsonText       `json:"tool"`
	CallID    jsonText       `json:"callID"`
	State     opencodeState  `json:"state"`
	Tokens    opencodeTokens `json:"tokens"`
	Reason    jsonText       `json:"reason"`
	MIME      jsonText       `json:"mime"`
	URL       jsonText       `json:"url"`
	Auto      jsonFlag       `json:"auto"`
}

// An opencodeState is the state of a call.
type opencodeState struct {
	Status      jsonText        `json:"status"`
	Input       json.RawMessage `json:"input"`
	Output      jsonText        `json:"output"`
	Error       jsonText        `json:"error"`
	Metadata    json.RawMessage `json:"metadata"`
	Time        opencodeTime    `json:"time"`
	Attachments []struct {
		MIME jsonText `json:"mime"`
		URL  jsonText `json:"url"`
	} `json:"attachments"`
}

// timeOf returns the first time that is given, and otherwise the last time of the file.
func (o *opencodeReader) timeOf(all ...jsonUint) time.Time {
	for _, ms := range all {
		if at := time.UnixMilli(int64(ms)).UTC(); ms > 0 && at.Year() < 10000 {
			return at
		}
	}
	return o.f.at
}

// readMember reads the member info of an export.
func (o *opencodeReader) readMember(name string, value json.RawMessage) {
	if name != "info" {
		o.f.countIgnored(name)
		return
	}
	var info opencodeInfo
	decodeLenient(value, &info)
	if info.ID == "" {
		return
	}
	o.f.recognized = true
	o.readInfo(info)
}

// readInfo begins the session that info describes.
func (o *opencodeReader) readInfo(info opencodeInfo) {
	f := o.f
	o.key = sessionKey{session: truncate(string(info.ID), maxName)}
	if info.Parent != "" && info.Parent != info.ID {
		o.key = sessionKey{session: truncate(string(info.Parent), maxName), agent: o.key.session}
	}
	f.at = o.timeOf(info.Time.Created)
	c := o.begin(f.at)
	if info.Agent != "" {
		c.agent = domain.AgentID(truncate(string(info.Agent), maxName))
	}
	c.changeSetting(events.SettingLocation, string(info.Directory), f.at)
	c.changeSetting(events.SettingProgramVersion, string(info.Version), f.at)
	c.changeSetting(events.SettingReverted, string(info.Revert.Message), f.at)
}

// begin returns the current session, and begins it at its first call.
func (o *opencodeReader) begin(at time.Time) *fileSession {
	o.begun = true
	if o.f.source == "" {
		o.f.source = o.key.session
	}
	// A session that began as a root keeps its key, also if its parent is known later.
	own := o.key.session
	if o.key.agent != "" {
		own = o.key.agent
	}
	if c := o.f.named[sessionName(opencode, escapeName(own))]; c != nil && own != "" {
		o.key = c.key
	}
	return o.f.sessionFor(parsedRecord{time: at, session: o.key})
}

// readElement reads an element of the messages of an export.
func (o *opencodeReader) readElement(_ string, value json.RawMessage) {
	var m struct {
		Info  json.RawMessage   `json:"info"`
		Parts []json.RawMessage `json:"parts"`
	}
	decodeLenient(value, &m)
	o.readMessage(m.Info, m.Parts)
}

// readMessage reads a message with its parts.
func (o *opencodeReader) readMessage(info json.RawMessage, parts []json.RawMessage) {
	f := o.f
	f.line++
	f.report.Records++
	if firstByte(info) != '{' {
		f.refuse("message has no info")
		return
	}
	var m opencodeMessage
	decodeLenient(info, &m)
	f.recognized = true
	if f.at = o.timeOf(m.Time.Created); f.firstDigest == (contentDigest{}) {
		f.firstDigest = sumParts(info)
	}
	if !o.begun && m.Session != "" {
		o.key = sessionKey{session: truncate(string(m.Session), maxName)}
	}
	c := o.begin(f.at)
	id := truncate(string(m.ID), maxName)
	name := c.source + "\x00" + id
	key := id
	if o.messages[name]++; o.messages[name] > 1 || id == "" {
		key = fmt.Sprintf("%s#%d", id, o.messages[name])
	}
	s := parsedRecord{key: key, time: f.at, session: o.key}
	all := make([]opencodePart, len(parts))
	for i, p := range parts {
		decodeLenient(p, &all[i])
	}
	c.changeSetting(events.SettingLocation, string(m.Path.CWD), s.time)
	switch m.Role {
	case "user":
		o.readPrompt(s, all)
	case "assistant":
		o.readReply(s, m, all)
	default:
		f.refuse("message has the role %q", truncate(string(m.Role), maxKind))
	}
}

// readPrompt reads the parts of a message of the user.
func (o *opencodeReader) readPrompt(s parsedRecord, parts []opencodePart) {
	f := o.f
	var own []contentBlock
	for i, p := range parts {
		switch {
		case p.Type == "text" && bool(p.Synthetic):
			f.addContext(s, partSuffix(i+1, 0), events.ContextProgram, string(p.Text))
		case p.Type == "text":
			own = append(own, contentBlock{Type: "text", Text: p.Text})
		case p.Type == "file":
			own = append(own, dataBlock(p.MIME, p.URL))
		case p.Type == "compaction":
			trigger := "manual"
			if p.Auto {
				trigger = events.CompactedAuto
			}
			f.sessionFor(s).addFact(s.time, events.ContextCompacted{Trigger: trigger}, "compacted", s.key)
		default:
			f.countIgnored("part/" + string(p.Type))
		}
	}
	if len(own) > 0 {
		f.addPrompt(s, own)
	}
}

// dataBlock returns the part of a file with a data URL. Another URL becomes a text.
func dataBlock(mime, url jsonText) contentBlock {
	document, err := json.Marshal(string(url))
	if b := (contentBlock{Type: "input_image", URL: document}).fromURL(); err == nil && b.Source.Data != "" {
		return b
	}
	return contentBlock{Type: "text", Text: "[" + mime + " " + jsonText(truncate(string(url), maxName)) + "]"}
}

// readReply reads a message of the model with its parts.
func (o *opencodeReader) readReply(s parsedRecord, m opencodeMessage, parts []opencodePart) {
	f := o.f
	r := f.sessionFor(s).reply(s, chatMessage{ID: jsonText(s.key)})
	o.setModel(r, firstText(m.ModelID, m.Model.ID), s.time)
	if m.Finish != "" {
		r.finish = truncate(string(m.Finish), maxName)
	}
	steps := 0
	for _, p := range parts {
		if p.Type == "step-finish" {
			steps++
		}
		o.readPart(s, r, p, false)
	}
	if steps == 0 {
		r.tokens = m.Tokens.counts()
	}
	o.readError(s, m.Error)
}

// setModel sets the model of a reply, and of its session if that has no model yet.
func (o *opencodeReader) setModel(r *modelReply, model string, at time.Time) {
	if r.model = firstText(jsonText(r.model), jsonText(truncate(model, maxName))); r.session.model == "" && r.model != "" {
		r.session.model, r.session.modelAt = r.model, at
	}
}

// readError records the error that ended a message.
func (o *opencodeReader) readError(s parsedRecord, e opencodeError) {
	f := o.f
	switch e.Name {
	case "":
	case "MessageAbortedError":
		f.sessionFor(s).addFact(s.time, events.SessionInterrupted{Reason: domain.ByUser, Detail: truncate(string(e.Data.Message), maxName)}, "interrupted", s.key)
	default:
		detail := f.limitContext(string(e.Name)+": "+string(e.Data.Message), "error")
		f.sessionFor(s).addFact(s.time, events.ProviderFailed{Detail: detail, Status: int64(e.Data.Status)}, "provider", s.key)
	}
}

// readPart reads a part of a reply. In a file of lines, a later line may repeat a part
// with more contents.
func (o *opencodeReader) readPart(s parsedRecord, r *modelReply, p opencodePart, lines bool) {
	f := o.f
	switch p.Type {
	case "text", "reasoning":
		texts, name := &r.texts, "reply"
		if p.Type == "reasoning" {
			texts, name = &r.thoughts, "thinking"
		}
		if n := len(*texts); lines && p.ID != "" && o.lastPart == string(p.ID) && n > 0 && strings.HasPrefix(string(p.Text), (*texts)[n-1]) {
			r.size -= len((*texts)[n-1])
			*texts = (*texts)[:n-1]
		}
		o.lastPart = string(p.ID)
		f.addText(r, texts, string(p.Text), name)
	case "tool":
		o.readTool(s, r, p, lines)
	case "step-finish":
		if id := s.key + "\x00" + string(p.ID); !lines || p.ID == "" || !o.finished[id] {
			o.finished[id] = true
			r.tokens = addTokens(r.tokens, p.Tokens.counts())
		}
		if p.Reason != "" && r.finish == "" {
			r.finish = truncate(string(p.Reason), maxName)
		}
	case "step-start":
	default:
		f.countIgnored("part/" + string(p.Type))
	}
}

// opencodePhrases are the texts of errors that the program writes, with their outcome.
// The format has no other sign of these.
var opencodePhrases = []outcomePhrase{
	{"The user rejected permission", "", declined},
	{"The user has specified a rule", "", denied},
	{"The user dismissed this question", "", declined},
	{"Tool execution aborted", "", byUser},
	{"Tool execution was interrupted", "", byUser},
	{"The ", " tool was called with invalid arguments", invalidInput},
	{"Model tried to call unavailable tool", "", unknownTool},
}

// readTool reads a call with its state.
func (o *opencodeReader) readTool(s parsedRecord, r *modelReply, p opencodePart, lines bool) {
	f := o.f
	b := contentBlock{ID: p.CallID, Name: p.Tool, Input: p.State.Input}
	if b.ID == "" {
		b.ID = p.ID
	}
	if c := firstByte(b.Input); c == 0 || c == 'n' {
		b.Input = json.RawMessage("{}")
	}
	id := domain.CallID(b.ID)
	var call *modelCall
	if known := f.callFor(r.session, id); lines && known != nil && known.reply.session == r.session && known.call.Name == string(p.Tool) {
		switch {
		case known.result == nil:
			if call = known; string(call.call.Input) == "{}" {
				call.call.Input = b.Input
			}
		case known.reply == r && sameInput(known.call.Input, b.Input):
			f.countIgnored("repeated part")
			return
		}
	}
	if call == nil {
		// An equal ID in one message is that of a redactor.
		for n := 2; slices.ContainsFunc(r.calls, func(c *modelCall) bool { return c.call.ID == domain.CallID(b.ID) }); n++ {
			b.ID = jsonText(fmt.Sprintf("%s#%d", id, n))
		}
		n := len(r.calls)
		asked := s
		asked.time = o.timeOf(p.State.Time.Start, jsonUint(s.time.UnixMilli()))
		if f.readCall(asked, r, b); len(r.calls) == n {
			return
		}
		call = r.calls[n]
	}
	call.began = call.began || p.State.Status == "running"
	if child := agentName(opencode, p.State.Metadata); child != "" {
		f.recordSpawn(sessionKey{o.ownID(), child}, call)
	}
	o.readState(s, call, p.State)
}

// ownID returns the ID of the current session.
func (o *opencodeReader) ownID() string {
	if o.key.agent != "" {
		return o.key.agent
	}
	return o.key.session
}

// readState reads the result of a call, if its state has one.
func (o *opencodeReader) readState(s parsedRecord, call *modelCall, state opencodeState) {
	f := o.f
	if state.Status != "completed" && state.Status != "error" {
		return
	}
	r := &callResult{
		session: call.reply.session, id: call.call.ID, key: s.key + "/" + string(call.call.ID), at: o.timeOf(state.Time.End, jsonUint(s.time.UnixMilli())),
	}
	text, failedCall := string(state.Output), state.Status == "error"
	outcome := callOutcome{outcome: domain.Succeeded, ran: true}
	if failedCall {
		text, outcome = string(state.Error), failed
		for _, phrase := range slices.Backward(opencodePhrases) {
			if strings.HasPrefix(text, phrase.prefix) && strings.Contains(truncate(text, maxName), phrase.contains) {
				outcome = phrase.outcome
			}
		}
	}
	var meta struct {
		Exit json.RawMessage `json:"exit"`
		Path jsonText        `json:"outputPath"`
	}
	decodeLenient(state.Metadata, &meta)
	_, detail := exitStatus(meta.Exit)
	contents := domain.Contents{domain.Text(text)}
	for _, a := range state.Attachments {
		if media, ok := dataBlock(a.MIME, a.URL).media(); ok {
			contents = append(contents, media)
		}
	}
	f.report.Results++
	f.settle(r, f.limitContents(contents, "result of call "+string(call.call.ID)), failedCall, detail, outcome)
	if meta.Path != "" {
		r.addDetail("the whole output was in " + truncate(string(meta.Path), maxName))
	}
	if !failedCall {
		f.keepStructured(r, state.Metadata, 1)
	}
	f.placeResult(r, call)
}

// An opencodeLine is a line with a part: the part itself, or an event with a part.
type opencodeLine struct {
	opencodePart
	Stamp jsonUint        `json:"timestamp"`
	Part  json.RawMessage `json:"part"`
	Error json.RawMessage `json:"error"`
	// The members of a part that was written with those of its message.
	Role  jsonText      `json:"_role"`
	CWD   jsonText      `json:"_cwd"`
	At    jsonUint      `json:"_ts"`
	Model jsonText      `json:"_model"`
	Fault opencodeError `json:"_error"`
}

// opencodeTypes are the types of lines.
var opencodeTypes = []string{
	"text", "reasoning", "tool", "step-start", "step-finish", "file", "patch", "snapshot", "agent", "compaction", "retry", "subtask",
	"step_start", "step_finish", "tool_use", "error",
}

// readLine reads a line with a part.
func (o *opencodeReader) readLine(l opencodeLine, document []byte) {
	f := o.f
	if !slices.Contains(opencodeTypes, string(l.Type)) || l.Role == "" && l.Session == "" && l.Part == nil && l.Message == "" && l.CallID == "" {
		if f.foreign == "" {
			f.foreign = fmt.Sprintf("line %d: record of type %q", f.line, truncate(string(l.Type), maxKind))
		}
		f.countIgnored("line/" + string(l.Type))
		return
	}
	f.recognized = true
	if f.firstDigest == (contentDigest{}) {
		f.firstDigest = sumParts(document)
	}
	if l.Session != "" && l.Role == "" {
		// The stream of a run has no prompts, and calls only when they are finished.
		f.report.Prompts, f.report.Interrupted = nil, nil
	}
	key, again := f.recordKey(&fileRecord{Timestamp: "x"}, document)
	if again {
		f.countIgnored("repeated record")
		return
	}
	p := l.opencodePart
	if firstByte(l.Part) == '{' {
		p = opencodePart{}
		decodeLenient(l.Part, &p)
	}
	f.at = o.timeOf(l.Stamp, l.At, p.State.Time.End, p.State.Time.Start)
	if id := firstText(l.Session, p.Session); id != o.ownID() {
		o.key, o.replyKey = sessionKey{session: truncate(id, maxName)}, ""
	}
	s := parsedRecord{key: key, time: f.at}
	c := o.begin(f.at)
	s.session = o.key
	c.changeSetting(events.SettingLocation, string(l.CWD), f.at)
	switch {
	case l.Role == "user":
		o.replyKey = ""
		o.readPrompt(s, []opencodePart{p})
		if c.model == "" && l.Model != "" {
			c.model, c.modelAt = truncate(string(l.Model), maxName), f.at
		}
	case l.Type == "error":
		var e opencodeError
		decodeLenient(l.Error, &e)
		o.readError(s, e)
	default:
		if o.replyKey == "" || p.Message == "" && p.Type == "step-start" {
			o.replyKey = key
		}
		if p.Message != "" {
			o.replyKey = truncate(string(p.Message), maxName)
		}
		s.key = o.replyKey
		r := c.reply(s, chatMessage{ID: jsonText(o.replyKey)})
		o.setModel(r, firstText(l.Model, jsonText(c.model)), f.at)
		o.readPart(s, r, p, true)
		o.readError(parsedRecord{key: key, time: s.time, session: s.session}, l.Fault)
	}
}
