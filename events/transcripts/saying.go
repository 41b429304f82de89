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
	chain   string
	results int // of a person's record
}

// person reads a record of the person's side: prompts, results, and the marks
// of interruptions.
func (f *file) person(s saying) {
	m, ok := s.record.spoken()
	if !ok {
		f.refuse("user record has no message")
		return
	}
	parts := blocks(m.Content)
	results := 0
	for _, b := range parts {
		if b.Type == "tool_result" {
			results++
		}
	}
	s.results = results
	for i, b := range parts {
		if b.Type == "tool_result" {
			f.result(s, b, i)
		}
	}
	if text := prose(parts); text != "" {
		f.words(s, text)
	}
}

// queued reads what a person said while the agent worked.
func (f *file) queued(s saying) {
	a := s.record.Attachment
	if text := prose(blocks(a.Prompt)); text != "" && a.Type == "queued_command" && (a.Mode == "" || a.Mode == "prompt") {
		f.words(s, text)
	}
}

// unsaid begin the texts that the program writes in the person's place and
// that are not meant for the agent.
var unsaid = []string{"<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>", "<bash-stdout>", "<bash-stderr>"}

// words reads what a person's record says outside of results.
func (f *file) words(s saying, text string) {
	r := s.record
	begins := func(prefix string) bool { return strings.HasPrefix(text, prefix) }
	switch {
	case interrupts(text):
		c := f.chain(s)
		c.say(events.Draft{
			ID: c.event(s.at, "interrupted", s.key), Time: s.at, Causation: c.cause,
			Event: events.SessionInterrupted{Reason: domain.ByUser, Detail: strings.TrimSpace(text)},
		})
	case bool(r.Meta || r.Summary || r.OnlyShown) || slices.ContainsFunc(unsaid, begins):
	default:
		c := f.chain(s)
		id := c.event(s.at, "prompt", s.key)
		c.say(events.Draft{ID: id, Time: s.at, Event: events.PromptAdmitted{Message: c.message(s.at, "prompt", s.key), Text: text}})
		c.cause = id
	}
}

// reply reads a record of the model's side: a part of a reply.
func (f *file) reply(s saying) {
	m, ok := s.record.spoken()
	if !ok {
		f.refuse("assistant record has no message")
		return
	}
	r := f.chain(s).reply(s, m)
	r.hear(m, s.at)
	for _, b := range blocks(m.Content) {
		switch b.Type {
		case "text":
			r.add(string(b.Text))
		case "tool_use":
			f.call(s, r, b)
		case "tool_result":
			f.refuse("result of %q stands in a reply", b.ToolUseID)
		}
	}
}

// progress reads the sign that a call runs. Before it ran, only its hooks
// speak.
func (f *file) progress(s saying) {
	data := s.record.Data
	if data.Type == "" || data.Type == "hook_progress" && !strings.HasPrefix(string(data.HookEvent), "PostToolUse") {
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
