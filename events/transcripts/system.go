package transcripts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// partSuffix returns the suffix that distinguishes the names of events from different
// parts of one record. It is empty for the first part, so that its event has the name
// of the record.
func partSuffix(part, place int) string {
	if part == 0 && place == 0 {
		return ""
	}
	return fmt.Sprintf("#%d.%d", part, place)
}

// readSystem reads a system record: a compaction, an error of the provider, a command
// of the user, or a summary of hooks. It counts other subtypes as ignored.
func (f *sessionFile) readSystem(s parsedRecord) {
	r := s.record
	switch r.Subtype {
	case "compact_boundary", "microcompact_boundary":
		m := r.Compact
		e := events.ContextCompacted{Trigger: truncate(string(m.Trigger), maxName), Before: int64(m.Before), After: int64(m.After)}
		f.whenOpened(s.session, "compaction", func(c *fileSession) { c.addFact(s.time, e, "compacted", s.key) })
	case "api_error":
		e := events.ProviderFailed{Detail: f.limitContext(errorMessage(r.Error), "api error"), Status: errorStatus(r.Error), Attempt: int64(r.Attempt)}
		f.whenOpened(s.session, "api error", func(c *fileSession) { c.addFact(s.time, e, "provider", s.key) })
	case "local_command":
		rest, found := splitTags(string(r.Content))
		f.addTagged(s, 0, found)
		if len(found) == 0 {
			f.addContext(s, "", events.ContextCommandOutput, rest)
		}
	case "stop_hook_summary":
		for i, h := range r.Hooks {
			f.addHook(parsedRecord{record: r, key: s.key + partSuffix(i, 0), time: s.time, session: s.session}, hookRun{Event: "Stop", Command: h.Command})
		}
	default:
		f.countIgnored("system/" + string(r.Subtype))
	}
}

// maxNested is the depth to which errorMessage searches the objects of an error.
const maxNested = 10

// errorMessage returns the message of a provider error. If no object has one, it
// returns the innermost object as JSON, and "no detail" for an absent error.
func errorMessage(failed json.RawMessage) string {
	switch firstByte(failed) {
	case '"':
		var t jsonText
		decodeLenient(failed, &t)
		return string(t)
	case 0:
		return "no detail"
	}
	for range maxNested {
		var e struct {
			Message jsonText        `json:"message"`
			Error   json.RawMessage `json:"error"`
		}
		decodeLenient(failed, &e)
		if e.Message != "" {
			return string(e.Message)
		}
		if firstByte(e.Error) != '{' {
			break
		}
		failed = e.Error
	}
	return string(failed)
}

// errorStatus returns the HTTP status of a provider error, or 0 if it has none.
func errorStatus(failed json.RawMessage) int64 {
	var e struct {
		Status jsonCount `json:"status"`
	}
	decodeLenient(failed, &e)
	return int64(e.Status)
}

// A hookRun is one run of a hook command, with the event of the program that caused
// it. Fields that a record lacks are empty.
type hookRun struct{ Name, Event, Command, Call, Outcome, Output jsonText }

// addHook records that a hook ran, once its session has begun. A hook without a name
// has the name of its event.
func (f *sessionFile) addHook(s parsedRecord, h hookRun) {
	if h.Name == "" {
		h.Name = h.Event
	}
	size := 0
	e := events.CommandRan{
		By: events.ByHook, Name: truncate(string(h.Name), maxName), Command: f.fitText(&size, string(h.Command), "command of a hook"),
		Call: domain.CallID(truncate(string(h.Call), maxName)), Outcome: string(h.Outcome),
		Output: f.limitContext(string(h.Output), "output of a hook"),
	}
	f.whenOpened(s.session, "hook", func(c *fileSession) { c.addFact(s.time, e, "hook", s.key) })
}

// hookOutcomes are the outcomes of hooks by the type of attachment that reports them.
var hookOutcomes = map[jsonText]jsonText{
	"hook_success": "success", "hook_non_blocking_error": "failed", "hook_error_during_execution": "failed",
	"hook_blocking_error": "blocked", "hook_cancelled": "cancelled", "hook_stopped_continuation": "stopped", "async_hook_response": "success",
}

// readAttachment reads an attachment record: a queued message, the result of a hook,
// or a context from a hook. It counts other types as ignored.
func (f *sessionFile) readAttachment(s parsedRecord) {
	a := s.record.Attachment
	outcome, ran := hookOutcomes[a.Type]
	switch {
	case a.Type == "queued_command":
		f.readQueued(s)
	case ran:
		output := []string{string(a.Stdout), string(a.Stderr)}
		if output[0] == "" {
			output[0] = contentText(a.Content)
		}
		if a.Blocking.Error != "" {
			output = []string{string(a.Blocking.Error)}
		}
		if a.Command == "" {
			a.Command = a.Blocking.Command
		}
		f.addHook(s, hookRun{Name: a.HookName, Event: a.HookEvent, Command: a.Command, Call: a.ToolUse, Outcome: outcome, Output: jsonText(strings.TrimSpace(strings.Join(output, "\n")))})
	case a.Type == "hook_additional_context":
		f.addContext(s, "", events.ContextHook, contentText(a.Content))
	default:
		f.countIgnored("attachment/" + string(a.Type))
	}
}

// contentText returns the text of a content field as plainText joins it. The field is
// a JSON string, a block, or an array of both.
func contentText(content json.RawMessage) string { return plainText(contentBlocks(content)) }

// readSettings records the settings that a record of a session that has begun
// contains: location, program version, branch and permission mode.
func (f *sessionFile) readSettings(s parsedRecord) {
	c, ok := f.sessions[s.session]
	if !ok {
		return
	}
	r := s.record
	c.changeSetting(events.SettingLocation, string(r.CWD), s.time)
	c.changeSetting(events.SettingProgramVersion, string(r.Version), s.time)
	c.changeSetting(events.SettingGitBranch, string(r.Branch), s.time)
	c.changeSetting(events.SettingPermissionMode, string(r.Mode), s.time)
}
