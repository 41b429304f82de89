package transcripts

import (
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A parsedRecord is a record with the key, time and session that its own fields may
// lack.
type parsedRecord struct {
	record fileRecord
	// key is the permanent name of the record, see [sessionFile.recordKey].
	key string
	// time is the time of the record or, if the record has none, of the last line
	// before it with a time.
	time    time.Time
	session sessionKey
	// resultCount is the number of results in a user record.
	resultCount int
}

// A userPrompt is a prompt of the user: a step of a session, and the cause of the
// replies and facts after it.
type userPrompt struct {
	session *fileSession
	at      time.Time
	key     string
	text    string
	media   domain.Contents
}

// eventID returns the ID of the event of the prompt.
func (p *userPrompt) eventID() domain.EventID { return p.session.eventID(p.at, "prompt", p.key) }

// drafts returns the event of the prompt.
func (p *userPrompt) drafts() []events.Draft {
	return []events.Draft{{ID: p.eventID(), Time: p.at, Event: events.PromptAdmitted{
		Message: p.session.messageID(p.at, "prompt", p.key), Text: p.text, Media: p.media,
	}}}
}

// readUser reads a user record: results, prompts, interruptions and text that the
// program wrote in place of the user. It counts the results before it reads them,
// because a structured value of the record belongs to a result only if there is just
// one.
func (f *sessionFile) readUser(s parsedRecord) {
	m, parts, ok := s.record.messageParts()
	if !ok {
		f.refuse("user record has no message")
		return
	}
	f.noteMessage(m)
	for _, b := range parts {
		if b.Type == "tool_result" {
			s.resultCount++
		}
	}
	// Results come first, because the text of the record follows them in the session.
	for i, b := range parts {
		if b.Type == "tool_result" {
			f.readResult(s, b, i)
		}
	}
	f.readUserText(s, parts)
}

// readQueued reads a message that was queued while the agent worked: a prompt, or a
// notification of the program.
func (f *sessionFile) readQueued(s parsedRecord) {
	a := s.record.Attachment
	parts := contentBlocks(a.Prompt)
	if a.Mode != "" && a.Mode != "prompt" {
		f.addContext(s, "", events.ContextNotification, plainText(parts))
		return
	}
	f.readUserText(s, parts)
}

// readUserText reads the parts of a user record that are not results: an
// interruption, a summary, the feedback of a hook, or a prompt with text of the
// program around it.
func (f *sessionFile) readUserText(s parsedRecord, parts []contentBlock) {
	r := s.record
	switch text := plainText(parts); {
	case text == "":
	case isInterruption(text):
		c := f.sessionFor(s)
		c.addFact(s.time, events.SessionInterrupted{Reason: domain.ByUser, Detail: strings.TrimSpace(text)}, "interrupted", s.key)
	case bool(r.Summary):
		f.addContext(s, "", events.ContextSummary, text)
	case strings.HasPrefix(text, "Stop hook feedback:"):
		f.addContext(s, "", events.ContextHook, text)
	default:
		f.splitProgramText(s, parts, bool(r.Meta || r.OnlyShown) || r.Origin.Kind != "" && r.Origin.Kind != "human")
	}
}

// splitProgramText splits the parts of a record into the prompt of the user and the
// text that the program put around it between tags. If the argument program is true,
// the program wrote the whole record, which then has no prompt.
func (f *sessionFile) splitProgramText(s parsedRecord, parts []contentBlock, program bool) {
	var own []contentBlock
	for i, b := range parts {
		if b.Type != "text" {
			own = append(own, b)
			continue
		}
		// Keep the part if it has text of the user, or no tag at all.
		rest, found := splitTags(string(b.Text))
		f.addTagged(s, i, found)
		if len(found) == 0 || strings.TrimSpace(rest) != "" {
			b.Text = jsonText(rest)
			own = append(own, b)
		}
	}
	prose := plainText(own)
	switch {
	case len(own) == 0:
	case strings.TrimSpace(prose) == "":
		f.countIgnored("blank text")
	case program:
		source := events.ContextProgram
		if s.record.Origin.Kind == "task-notification" {
			source = events.ContextNotification
		}
		f.addContext(s, "", source, prose)
	default:
		f.addPrompt(s, own)
	}
}

// addPrompt adds a prompt with the texts and media of parts to the session of s.
func (f *sessionFile) addPrompt(s parsedRecord, parts []contentBlock) {
	c := f.sessionFor(s)
	p := &userPrompt{session: c, at: s.time, key: s.key, media: f.promptMedia(parts)}
	size := contentSize(p.media)
	p.text = f.fitText(&size, plainText(parts), "prompt")
	c.steps = append(c.steps, p)
	c.prompt = p
}

// promptMedia returns the media of a prompt within the limits. It leaves out media
// without data, which it counts as ignored, and media over the limit, which it
// reports as cut.
func (f *sessionFile) promptMedia(parts []contentBlock) domain.Contents {
	var all domain.Contents
	for _, b := range parts {
		if media, ok := b.media(); ok && b.Type != "text" {
			all = append(all, media)
		} else if b.Type == "image" || b.Type == "document" {
			f.countIgnored("block/" + string(b.Type))
		}
	}
	return slices.DeleteFunc(f.limitContents(all, "prompt"), func(c domain.Content) bool {
		_, isText := c.(domain.Text)
		return isText
	})
}

// addContext records a text that the user did not write, at once or, if the session
// has not begun, when it begins. nth distinguishes several texts of one record.
func (f *sessionFile) addContext(s parsedRecord, nth, source, text string) {
	if strings.TrimSpace(text) == "" {
		f.countIgnored("blank text")
		return
	}
	e := f.contextEvent(source, text)
	f.whenOpened(s.session, "context/"+source, func(c *fileSession) { c.addFact(s.time, e, "context", s.key+nth) })
}

// A taggedText is a text that the program wrote between two tags, such as
// system-reminder, with the name of the tag.
type taggedText struct{ tag, text string }

// machineTags are the tags of text that the program writes, with the source that the
// ContextAdded event of the text names.
var machineTags = map[string]string{
	"local-command-stdout": events.ContextCommandOutput, "local-command-stderr": events.ContextCommandOutput,
	"bash-stdout": events.ContextCommandOutput, "bash-stderr": events.ContextCommandOutput,
	"local-command-caveat": events.ContextReminder, "system-reminder": events.ContextReminder,
	"task-notification": events.ContextNotification, "agent-notification": events.ContextNotification,
	"bash-notification": events.ContextNotification, "teammate-message": events.ContextNotification,
	"user-prompt-submit-hook": events.ContextHook, "session-start-hook": events.ContextHook, "post-tool-use-hook": events.ContextHook,
	"ide_opened_file": events.ContextProgram, "ide_selection": events.ContextProgram, "ide_diagnostics": events.ContextProgram,
	"new-diagnostics": events.ContextProgram, "uploaded_files": events.ContextProgram,
}

// commandTags are the tags of a command that the user gave to the program. Together
// they form one CommandRan event.
var commandTags = []string{"command-name", "command-message", "command-args", "command-contents", "bash-input"}

// splitTags separates the tagged texts at the beginning of a text, and the reminders
// at its end, from the rest. A tag without an end tag extends to the end of the text.
// Tags in the middle belong to the user's text. The rest is unchanged if there is no
// tag.
func splitTags(text string) (rest string, found []taggedText) {
	rest = text
	for {
		head := strings.TrimSpace(rest)
		// Each known tag at the beginning belongs to the program. The first other
		// text ends the search.
		tag, body, ok := openingTag(head)
		if !ok {
			break
		}
		inner, behind, _ := strings.Cut(body, "</"+tag+">")
		found = append(found, taggedText{tag, strings.TrimSpace(inner)})
		rest = behind
	}
	const opens, closes = "<system-reminder>", "</system-reminder>"
	for {
		tail := strings.TrimSpace(rest)
		// The reminder must reach to the end of the text, and must not contain
		// another end tag: otherwise the user quotes it.
		at := strings.LastIndex(tail, opens)
		if at < 0 || !strings.HasSuffix(tail, closes) || strings.Count(tail[at:], closes) != 1 {
			break
		}
		found = append(found, taggedText{"system-reminder", strings.TrimSpace(strings.TrimSuffix(tail[at+len(opens):], closes))})
		rest = strings.TrimRight(tail[:at], " \t\r\n")
	}
	if len(found) > 0 {
		rest = strings.TrimSpace(rest)
	}
	return rest, found
}

// openingTag returns the known tag at the beginning of a text and the text behind it.
// ok is false if the text does not begin with a known tag. The tag may have
// attributes.
func openingTag(text string) (tag, behind string, ok bool) {
	inner, isTag := strings.CutPrefix(text, "<")
	if !isTag {
		return "", "", false
	}
	end := strings.IndexByte(inner[:min(len(inner), maxName)], '>')
	if end < 0 {
		return "", "", false
	}
	tag, _, _ = strings.Cut(inner[:end], " ")
	if machineTags[tag] == "" && !slices.Contains(commandTags, tag) {
		return "", "", false
	}
	return tag, inner[end+1:], true
}

// addTagged records the tagged texts of one part of a record: one command for all
// command tags, and a context for each other tag.
func (f *sessionFile) addTagged(s parsedRecord, part int, found []taggedText) {
	ran := events.CommandRan{By: events.ByUser}
	size, is := 0, false
	for i, p := range found {
		switch p.tag {
		case "command-name":
			ran.Name, is = truncate(p.text, maxName), true
		case "command-args":
			ran.Command, is = f.fitText(&size, p.text, "arguments of a command"), true
		case "bash-input":
			ran.Name, ran.Command, is = "bash", f.fitText(&size, p.text, "line of a command"), true
		case "command-message", "command-contents":
			if ran.Name == "" {
				ran.Name = truncate(p.text, maxName)
			}
			is = true
		default:
			f.addContext(s, partSuffix(part, i), machineTags[p.tag], p.text)
		}
	}
	if is {
		f.whenOpened(s.session, "command", func(c *fileSession) { c.addFact(s.time, ran, "command", s.key+partSuffix(part, 0)) })
	}
}

// readAssistant reads an assistant record: a part of a reply, or an error of the
// provider that the program shows as a reply.
func (f *sessionFile) readAssistant(s parsedRecord) {
	m, parts, ok := s.record.messageParts()
	if !ok {
		f.refuse("assistant record has no message")
		return
	}
	f.noteMessage(m)
	// An error of the provider looks like a reply of a synthetic model. With a call
	// in it, it is a real reply.
	if bool(s.record.APIError) && !slices.ContainsFunc(parts, func(b contentBlock) bool { return b.Type == "tool_use" }) {
		failed := events.ProviderFailed{Detail: f.limitContext(plainText(parts), "api error"), Status: int64(s.record.Status)}
		f.whenOpened(s.session, "api error", func(c *fileSession) { c.addFact(s.time, failed, "provider", s.key) })
		return
	}
	r := f.sessionFor(s).reply(s, m)
	r.merge(m, s.time)
	for _, b := range parts {
		switch b.Type {
		case "text":
			f.addText(r, &r.texts, string(b.Text), "reply")
		case "thinking":
			if b.Thinking == "" {
				f.countIgnored("block/thinking without a text")
			}
			f.addText(r, &r.thoughts, string(b.Thinking), "thinking")
		case "tool_use":
			f.readCall(s, r, b)
		case "tool_result":
			f.refuse("result of %q is in a reply", truncate(string(b.ToolUseID), maxName))
		default:
			f.countIgnored("block/" + string(b.Type))
		}
	}
}

// noteMessage recognizes the format of the file if the message has content.
func (f *sessionFile) noteMessage(m chatMessage) {
	if firstByte(m.Content) != 0 {
		f.recognized = true
	}
}

// readProgress reads a progress record of a hook, of a sub-agent, or of a running
// call. It marks the latest call with the record's call ID as begun, unless that call
// has a result. A record of a hook marks the call only if the event of the hook is
// PostToolUse, because other hooks can run before the call.
func (f *sessionFile) readProgress(s parsedRecord, document []byte) {
	data := s.record.Data
	switch data.Type {
	case "":
		f.countIgnored("progress")
		return
	case "hook_progress":
		f.addHook(s, hookRun{Name: data.HookName, Event: data.HookEvent, Command: data.Command, Call: s.record.progressCall(f)})
	case "agent_progress":
		f.readAgentProgress(s, document)
	default:
		f.countIgnored("progress/" + string(data.Type))
	}
	// A hook before the call does not show that the call runs.
	if data.Type == "hook_progress" && !strings.HasPrefix(string(data.HookEvent), "PostToolUse") {
		return
	}
	for _, id := range []jsonText{s.record.ToolUse, s.record.ParentToolUse} {
		if calls := f.calls[domain.CallID(id)]; id != "" && len(calls) > 0 {
			if c := calls[len(calls)-1]; c.result == nil {
				c.began = true
			}
			return
		}
	}
}

// progressCall returns the ID of the call to which a progress record belongs. The
// record can name it in either of two fields.
func (r fileRecord) progressCall(f *sessionFile) jsonText {
	if len(f.calls[domain.CallID(r.ToolUse)]) > 0 || r.ParentToolUse == "" {
		return r.ToolUse
	}
	return r.ParentToolUse
}

// readAgentProgress reads a record of a sub-agent that is nested in a progress record
// of the call that started the sub-agent. The nested record takes the fields that it
// lacks from the outer one.
func (f *sessionFile) readAgentProgress(s parsedRecord, document []byte) {
	data := s.record.Data
	if firstByte(data.Message) != '{' {
		f.countIgnored("progress/agent_progress without a message")
		return
	}
	var inner fileRecord
	decodeLenient(data.Message, &inner)
	// The inner record names no session; it belongs to the sub-agent of the outer
	// one.
	inner.Session, inner.Sidechain, inner.Agent = s.record.Session, true, data.Agent
	if inner.Agent == "" {
		inner.Agent = s.record.ParentToolUse
	}
	if inner.CWD == "" {
		inner.CWD, inner.Branch, inner.Version = s.record.CWD, s.record.Branch, s.record.Version
	}
	at := s.time
	if own, ok := inner.timestamp(); ok {
		at = own
	}
	if inner.Type != "user" && inner.Type != "assistant" {
		f.countIgnored("progress/agent_progress/" + string(inner.Type))
		return
	}
	session := f.sessionKeyOf(inner)
	key, again := f.recordKey(&inner, document)
	if again {
		f.countIgnored("repeated record")
		return
	}
	within := parsedRecord{record: inner, key: key, time: at, session: session}
	if s.record.ParentToolUse != "" {
		f.spawnedByCall(within.session, domain.CallID(s.record.ParentToolUse))
	}
	f.readMessage(within)
}
