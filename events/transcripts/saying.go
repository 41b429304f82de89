package transcripts

import (
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A saying is a record in its place.
type saying struct {
	record  record
	key     string // names the record for ever
	at      time.Time
	chain   chainKey
	results int // of a person's record
}

// A prompt is a step: what the agent was asked.
type prompt struct {
	chain *chain
	at    time.Time
	key   string
	text  string
	media domain.Contents
}

func (p *prompt) id() domain.EventID { return p.chain.event(p.at, "prompt", p.key) }

func (p *prompt) drafts() []events.Draft {
	return []events.Draft{{ID: p.id(), Time: p.at, Event: events.PromptAdmitted{
		Message: p.chain.message(p.at, "prompt", p.key), Text: p.text, Media: p.media,
	}}}
}

// person reads a record of the person's side: prompts, results, the marks of
// interruptions, and what the program says in the person's place.
func (f *file) person(s saying) {
	m, ok := s.record.spoken()
	if !ok {
		f.refuse("user record has no message")
		return
	}
	f.spoke(m)
	parts := blocks(m.Content)
	for _, b := range parts {
		if b.Type == "tool_result" {
			s.results++
		}
	}
	for i, b := range parts {
		if b.Type == "tool_result" {
			f.result(s, b, i)
		}
	}
	f.words(s, parts)
}

// queued reads what a person, or the program, said while the agent worked.
func (f *file) queued(s saying) {
	a := s.record.Attachment
	parts := blocks(a.Prompt)
	if a.Mode != "" && a.Mode != "prompt" {
		f.aside(s, "", events.ContextNotification, prose(parts))
		return
	}
	f.words(s, parts)
}

// words reads what a person's record says outside of results.
func (f *file) words(s saying, parts []block) {
	r := s.record
	switch text := prose(parts); {
	case text == "":
	case interrupts(text):
		c := f.chain(s)
		c.say(s.at, events.SessionInterrupted{Reason: domain.ByUser, Detail: strings.TrimSpace(text)}, "interrupted", s.key)
	case bool(r.Summary):
		f.aside(s, "", events.ContextSummary, text)
	case strings.HasPrefix(text, "Stop hook feedback:"):
		f.aside(s, "", events.ContextHook, text)
	default:
		f.divided(s, parts, bool(r.Meta || r.OnlyShown) || r.Origin.Kind != "" && r.Origin.Kind != "human")
	}
}

// divided splits a record into the text of a person and the text that the program
// put around it. With program, all of the record is the program's.
func (f *file) divided(s saying, parts []block, program bool) {
	var own []block
	for i, b := range parts {
		if b.Type != "text" {
			own = append(own, b)
			continue
		}
		rest, found := portions(string(b.Text))
		f.portions(s, i, found)
		if len(found) == 0 || strings.TrimSpace(rest) != "" {
			b.Text = text(rest)
			own = append(own, b)
		}
	}
	said := prose(own)
	switch {
	case len(own) == 0:
	case strings.TrimSpace(said) == "":
		f.ignore("blank text")
	case program:
		source := events.ContextProgram
		if s.record.Origin.Kind == "task-notification" {
			source = events.ContextNotification
		}
		f.aside(s, "", source, said)
	default:
		c := f.chain(s)
		p := &prompt{chain: c, at: s.at, key: s.key, media: f.pictures(own)}
		size := weightOf(p.media)
		p.text = f.within(&size, said, "prompt")
		c.steps = append(c.steps, p)
		c.prompt = p
	}
}

// pictures returns the media of a prompt.
func (f *file) pictures(parts []block) domain.Contents {
	var all domain.Contents
	for _, b := range parts {
		if media, ok := b.media(); ok && b.Type != "text" {
			all = append(all, media)
		} else if b.Type == "image" || b.Type == "document" {
			f.ignore("block/" + string(b.Type))
		}
	}
	return slices.DeleteFunc(f.bounded(all, "prompt"), func(c domain.Content) bool {
		_, isText := c.(domain.Text)
		return isText
	})
}

// aside records a text that no person wrote.
func (f *file) aside(s saying, nth, source, text string) {
	if strings.TrimSpace(text) == "" {
		f.ignore("blank text")
		return
	}
	e := f.contextOf(source, text)
	f.around(s.chain, "context/"+source, func(c *chain) { c.say(s.at, e, "context", s.key+nth) })
}

// A portion is what the program wrote between two tags.
type portion struct{ tag, text string }

// machineTags are the tags between which the program writes, and what it writes
// there.
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

// commandTags are the tags of what a person gave to the program, and not to the
// agent.
var commandTags = []string{"command-name", "command-message", "command-args", "command-contents", "bash-input"}

// portions sets apart what the program wrote at the beginning of a text, and the
// reminders at its end. A tag that is not closed reaches to the end.
func portions(text string) (rest string, found []portion) {
	rest = text
	for {
		head := strings.TrimSpace(rest)
		tag, body, ok := opened(head)
		if !ok {
			break
		}
		inner, behind, _ := strings.Cut(body, "</"+tag+">")
		found = append(found, portion{tag, strings.TrimSpace(inner)})
		rest = behind
	}
	const opens, closes = "<system-reminder>", "</system-reminder>"
	for {
		tail := strings.TrimSpace(rest)
		at := strings.LastIndex(tail, opens)
		if at < 0 || !strings.HasSuffix(tail, closes) || strings.Count(tail[at:], closes) != 1 {
			break
		}
		found = append(found, portion{"system-reminder", strings.TrimSpace(strings.TrimSuffix(tail[at+len(opens):], closes))})
		rest = strings.TrimRight(tail[:at], " \t\r\n")
	}
	if len(found) > 0 {
		rest = strings.TrimSpace(rest)
	}
	return rest, found
}

// opened returns the tag of the program that a text begins with, and what
// follows it. A tag may have attributes.
func opened(text string) (tag, behind string, ok bool) {
	inner, isTag := strings.CutPrefix(text, "<")
	if !isTag {
		return "", "", false
	}
	end := strings.IndexByte(inner[:min(len(inner), mostName)], '>')
	if end < 0 {
		return "", "", false
	}
	tag, _, _ = strings.Cut(inner[:end], " ")
	if machineTags[tag] == "" && !slices.Contains(commandTags, tag) {
		return "", "", false
	}
	return tag, inner[end+1:], true
}

// portions records what the program wrote in a part of a record: one command, if
// the part has any of its tags, and a text for each other tag.
func (f *file) portions(s saying, part int, found []portion) {
	ran := events.CommandRan{By: events.ByUser}
	size, is := 0, false
	for i, p := range found {
		switch p.tag {
		case "command-name":
			ran.Name, is = beginning(p.text, mostName), true
		case "command-args":
			ran.Command, is = f.within(&size, p.text, "arguments of a command"), true
		case "bash-input":
			ran.Name, ran.Command, is = "bash", f.within(&size, p.text, "line of a command"), true
		case "command-message", "command-contents":
			if ran.Name == "" {
				ran.Name = beginning(p.text, mostName)
			}
			is = true
		default:
			f.aside(s, nth(part, i), machineTags[p.tag], p.text)
		}
	}
	if is {
		f.around(s.chain, "command", func(c *chain) { c.say(s.at, ran, "command", s.key+nth(part, 0)) })
	}
}

// reply reads a record of the model's side: a part of a reply.
func (f *file) reply(s saying) {
	m, ok := s.record.spoken()
	if !ok {
		f.refuse("assistant record has no message")
		return
	}
	f.spoke(m)
	parts := blocks(m.Content)
	if bool(s.record.APIError) && !slices.ContainsFunc(parts, func(b block) bool { return b.Type == "tool_use" }) {
		failed := events.ProviderFailed{Detail: f.shortened(prose(parts), "api error"), Status: int64(s.record.Status)}
		f.around(s.chain, "api error", func(c *chain) { c.say(s.at, failed, "provider", s.key) })
		return
	}
	r := f.chain(s).reply(s, m)
	r.hear(m, s.at)
	for _, b := range parts {
		switch b.Type {
		case "text":
			f.add(r, &r.texts, string(b.Text), "reply")
		case "thinking":
			if b.Thinking == "" {
				f.ignore("block/thinking without a text")
			}
			f.add(r, &r.thoughts, string(b.Thinking), "thinking")
		case "tool_use":
			f.call(s, r, b)
		case "tool_result":
			f.refuse("result of %q stands in a reply", beginning(string(b.ToolUseID), mostName))
		default:
			f.ignore("block/" + string(b.Type))
		}
	}
}

// spoke takes it that a record of the format was met: what a model or a person
// said has a content.
func (f *file) spoke(m message) {
	if first(m.Content) != 0 {
		f.known = true
	}
}

// progress reads the sign that a call runs: hooks that ran, what a sub-agent
// says, and otherwise only that it runs. Before it runs, only its hooks speak.
func (f *file) progress(s saying, document []byte) {
	data := s.record.Data
	switch data.Type {
	case "":
		f.ignore("progress")
		return
	case "hook_progress":
		f.hook(s, hook{Name: data.HookName, Event: data.HookEvent, Command: data.Command, Call: s.record.call(f)})
	case "agent_progress":
		f.agent(s, document)
	default:
		f.ignore("progress/" + string(data.Type))
	}
	if data.Type == "hook_progress" && !strings.HasPrefix(string(data.HookEvent), "PostToolUse") {
		return
	}
	for _, id := range []text{s.record.ToolUse, s.record.ParentToolUse} {
		if calls := f.calls[domain.CallID(id)]; id != "" && len(calls) > 0 {
			if c := calls[len(calls)-1]; c.result == nil {
				c.began = true
			}
			return
		}
	}
}

// call returns the call that a record of progress is of.
func (r record) call(f *file) text {
	if len(f.calls[domain.CallID(r.ToolUse)]) > 0 || r.ParentToolUse == "" {
		return r.ToolUse
	}
	return r.ParentToolUse
}

// agent reads what a sub-agent says in a record of progress of the call that
// began it: a record within the record.
func (f *file) agent(s saying, document []byte) {
	data := s.record.Data
	if first(data.Message) != '{' {
		f.ignore("progress/agent_progress without a message")
		return
	}
	var inner record
	lenient(data.Message, &inner)
	inner.Session, inner.Sidechain, inner.Agent = s.record.Session, true, data.Agent
	if inner.Agent == "" {
		inner.Agent = s.record.ParentToolUse
	}
	if inner.CWD == "" {
		inner.CWD, inner.Branch, inner.Version = s.record.CWD, s.record.Branch, s.record.Version
	}
	at := s.at
	if own, ok := inner.time(); ok {
		at = own
	}
	if inner.Type != "user" && inner.Type != "assistant" {
		f.ignore("progress/agent_progress/" + string(inner.Type))
		return
	}
	within := saying{record: inner, at: at, chain: f.chainOf(inner)}
	var again bool
	if within.key, again = f.keyOf(inner, document); again {
		f.ignore("repeated record")
		return
	}
	if s.record.ParentToolUse != "" {
		f.spawnedBy(within.chain, domain.CallID(s.record.ParentToolUse))
	}
	f.speak(within)
}
