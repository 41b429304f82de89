package transcripts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

func nth(part, place int) string {
	if part == 0 && place == 0 {
		return ""
	}
	return fmt.Sprintf("#%d.%d", part, place)
}

// system reads what the program notes.
func (f *file) system(s saying) {
	r := s.record
	switch r.Subtype {
	case "compact_boundary", "microcompact_boundary":
		m := r.Compact
		e := events.ContextCompacted{Trigger: beginning(string(m.Trigger), mostName), Before: int64(m.Before), After: int64(m.After)}
		f.around(s.chain, "compaction", func(c *chain) { c.say(s.at, e, "compacted", s.key) })
	case "api_error":
		e := events.ProviderFailed{Detail: f.shortened(failureIn(r.Error), "api error"), Status: statusIn(r.Error), Attempt: int64(r.Attempt)}
		f.around(s.chain, "api error", func(c *chain) { c.say(s.at, e, "provider", s.key) })
	case "local_command":
		rest, found := portions(string(r.Content))
		f.portions(s, 0, found)
		if len(found) == 0 {
			f.aside(s, "", events.ContextCommandOutput, rest)
		}
	case "stop_hook_summary":
		for i, h := range r.Hooks {
			f.hook(saying{record: r, key: s.key + nth(i, 0), at: s.at, chain: s.chain}, hook{Event: "Stop", Command: h.Command})
		}
	default:
		f.ignore("system/" + string(r.Subtype))
	}
}

// mostNested is how many objects deep the message of an error is looked for.
const mostNested = 10

// failureIn returns the message of an error of the provider. Of an error without
// a message it returns the innermost object that it read, as JSON.
func failureIn(failed json.RawMessage) string {
	switch first(failed) {
	case '"':
		var t text
		lenient(failed, &t)
		return string(t)
	case 0:
		return "no detail"
	}
	for range mostNested {
		var e struct {
			Message text            `json:"message"`
			Error   json.RawMessage `json:"error"`
		}
		lenient(failed, &e)
		if e.Message != "" {
			return string(e.Message)
		}
		if first(e.Error) != '{' {
			break
		}
		failed = e.Error
	}
	return string(failed)
}

func statusIn(failed json.RawMessage) int64 {
	var e struct {
		Status count `json:"status"`
	}
	lenient(failed, &e)
	return int64(e.Status)
}

// A hook is a command that the program runs where something happens.
type hook struct{ Name, Event, Command, Call, Outcome, Output text }

// hook records that a hook ran.
func (f *file) hook(s saying, h hook) {
	if h.Name == "" {
		h.Name = h.Event
	}
	size := 0
	e := events.CommandRan{
		By: events.ByHook, Name: beginning(string(h.Name), mostName), Command: f.within(&size, string(h.Command), "command of a hook"),
		Call: domain.CallID(beginning(string(h.Call), mostName)), Outcome: string(h.Outcome),
		Output: f.shortened(string(h.Output), "output of a hook"),
	}
	f.around(s.chain, "hook", func(c *chain) { c.say(s.at, e, "hook", s.key) })
}

// hookOutcomes are how hooks ended, by the type of the attachment that says so.
var hookOutcomes = map[text]text{
	"hook_success": "success", "hook_non_blocking_error": "failed", "hook_error_during_execution": "failed",
	"hook_blocking_error": "blocked", "hook_cancelled": "cancelled", "hook_stopped_continuation": "stopped", "async_hook_response": "success",
}

// attached reads an attachment.
func (f *file) attached(s saying) {
	a := s.record.Attachment
	outcome, ran := hookOutcomes[a.Type]
	switch {
	case a.Type == "queued_command":
		f.queued(s)
	case ran:
		output := []string{string(a.Stdout), string(a.Stderr)}
		if output[0] == "" {
			output[0] = spelled(a.Content)
		}
		if a.Blocking.Error != "" {
			output = []string{string(a.Blocking.Error)}
		}
		if a.Command == "" {
			a.Command = a.Blocking.Command
		}
		f.hook(s, hook{Name: a.HookName, Event: a.HookEvent, Command: a.Command, Call: a.ToolUse, Outcome: outcome, Output: text(strings.TrimSpace(strings.Join(output, "\n")))})
	case a.Type == "hook_additional_context":
		f.aside(s, "", events.ContextHook, spelled(a.Content))
	default:
		f.ignore("attachment/" + string(a.Type))
	}
}

// spelled returns a content that is a text or a list of texts.
func spelled(content json.RawMessage) string { return prose(blocks(content)) }

// settings takes the settings that a record names.
func (f *file) settings(s saying) {
	c, ok := f.chains[s.chain]
	if !ok {
		return
	}
	r := s.record
	c.set(events.SettingLocation, string(r.CWD), s.at)
	c.set(events.SettingProgramVersion, string(r.Version), s.at)
	c.set(events.SettingGitBranch, string(r.Branch), s.at)
	c.set(events.SettingPermissionMode, string(r.Mode), s.at)
}
