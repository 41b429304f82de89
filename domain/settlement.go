package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// An Outcome classifies the end of a call. The zero Outcome is not valid.
type Outcome uint8

// The outcomes: a closed set.
const (
	// Succeeded means that the tool returned and its output was kept whole.
	Succeeded Outcome = iota + 1
	// Failed means that the tool returned a Failure for the model to read.
	Failed
	// UnknownTool means that the turn offered no tool of the name.
	UnknownTool
	// Stale means that the offered registration was no longer in effect.
	Stale
	// InvalidInput means that the input does not fit the schema. The tool did not
	// run.
	InvalidInput
	// InvalidOutput means that the tool ran and its output does not fit the
	// schema.
	InvalidOutput
	// DeniedByRule means that a rule refused a permission that the tool
	// requested.
	DeniedByRule
	// DeclinedByUser means that a person refused a permission that the tool
	// requested.
	DeclinedByUser
	// Disabled means that tools were disabled after the maximum number of steps.
	Disabled
	// Interrupted means that the call was cancelled, before or while it ran.
	Interrupted
	// Defective means that the tool broke, with an unexpected error or a panic.
	Defective
	// RetentionFailed means that the tool returned and its output could not be
	// kept whole.
	RetentionFailed
	// MediaTooLarge means that the tool returned more media than the limit.
	MediaTooLarge
	// Lost means that the call began and its process died. Its outcome is unknown.
	Lost
)

var outcomes = enumNames[Outcome]{"", "succeeded", "failed", "unknown_tool", "stale", "invalid_input", "invalid_output",
	"denied", "declined", "disabled", "interrupted", "defect", "retention_failed", "media_too_large", "lost"}

// Outcomes returns every outcome in order.
func Outcomes() []Outcome {
	all := make([]Outcome, len(outcomes)-1)
	for i := range all {
		all[i] = Outcome(i + 1)
	}
	return all
}

// String returns the name of the constant, as events and the CLI write it;
// "?N" for a value N outside the set.
func (o Outcome) String() string { return outcomes.name(o) }

// MarshalText returns the text of String, or an ErrBadWord for a value outside
// the set.
func (o Outcome) MarshalText() ([]byte, error) { return outcomes.marshal(o) }

// UnmarshalText accepts the texts of String, and the empty text for zero. It
// returns an ErrBadWord for any other text.
func (o *Outcome) UnmarshalText(text []byte) error { return outcomes.unmarshal(o, text) }

// A Settlement is the end of a call: each call has exactly one. The ledger
// stores all of it but ID, and the tool result is a function of it.
type Settlement struct {
	// ID is the ID of the event that records the settlement.
	ID EventID
	// Outcome is the class of the end.
	Outcome Outcome
	// Began is set if the start was recorded, so that the tool may have run.
	Began bool
	// Interruption is the reason of an interruption. Zero: Outcome is not
	// Interrupted.
	Interruption Interruption
	// Text is the text for the model in place of an output. Blank: the default
	// text of the outcome.
	Text string
	// Detail is the error text for the operator. It may be empty.
	Detail string
	// Rule is the deciding rule of a DeniedByRule. Zero: no rule decided.
	Rule Rule

	// Input is the input that ran, if hooks changed it. Nil: the requested input ran.
	Input json.RawMessage
	// Structured is the encoded output. Nil: it is absent, retained or replaced
	// by media.
	Structured json.RawMessage
	// Content is the presentation of the output, within the limits.
	Content Contents
	// Retained describes the outputs that are stored complete in managed
	// storage.
	Retained []Retained
	// Lost is the number of bytes that the tool dropped from its output.
	Lost int64
	// Progress is the last report of an unsuccessful call. Nil: it reported no
	// progress.
	Progress *Progress
	// Files are the files that a successful call read or changed, as far as the tool
	// reports them.
	Files []FileAccess
	// Ran is the time from the recorded start to the return of the tool, in whole
	// milliseconds. Zero: the tool did not run, or less than a millisecond.
	Ran time.Duration

	// Offered is the registration that the turn offered. Zero: the turn offered
	// no tool of this name.
	Offered Offered
	// Effective is the registration of the name that was in effect when the registry
	// resolved the call. If a recovery ended the call, Effective is the registration
	// that ran. Zero: no registration of the name was in effect.
	Effective Offered
	// ChangedBy is the event that made Effective differ from Offered. Zero: they are
	// equal, or the event is unknown.
	ChangedBy EventID
}

// Agrees reports whether the offered and the effective definition are known
// and equal.
func (s Settlement) Agrees() bool {
	return !s.Offered.Fingerprint.IsZero() && s.Offered.Fingerprint == s.Effective.Fingerprint
}

// defaultTexts holds, by outcome, the tool result of an unsuccessful call
// whose settlement has no text.
var defaultTexts = [...]string{
	"Tool call ended in an unknown way",
	Succeeded:       "",
	Failed:          "Tool execution failed without a message",
	UnknownTool:     "Unknown tool",
	Stale:           "Stale tool call",
	InvalidInput:    "Invalid tool input",
	InvalidOutput:   "Tool returned an invalid value for its output schema",
	DeniedByRule:    "Permission denied",
	DeclinedByUser:  "The user declined this tool call",
	Disabled:        disabledText,
	Interrupted:     "Tool execution interrupted",
	Defective:       "Tool execution failed without a message",
	RetentionFailed: "Tool execution failed: its output could not be kept whole",
	MediaTooLarge:   "Tool execution failed: its media are over the limit",
	Lost:            lostText,
}

// A ToolResult is the part of a settlement that the model reads. At most one
// field is set. If no field is set, the output is the empty text.
type ToolResult struct {
	// Error is the text of the call if its outcome is not Succeeded, and is then never
	// blank.
	Error string
	// Text is the output if it is a single part that is text.
	Text string
	// Content is the output if it has several parts, or media.
	Content Contents
	// Structured is the encoded value, if there is no content.
	Structured json.RawMessage
}

// Type returns "error", "content" or "json" if that field is set, and otherwise
// "text".
func (r ToolResult) Type() string {
	switch {
	case r.Structured != nil:
		return "json"
	case r.Content != nil:
		return "content"
	case r.Error != "":
		return "error"
	}
	return "text"
}

// ToolResult returns the result for the model. A settlement read back from the
// log returns an equal result: invalid UTF-8 is replaced by U+FFFD here as in
// JSON.
func (s Settlement) ToolResult() ToolResult {
	if s.Outcome != Succeeded {
		return ToolResult{Error: validUTF8(s.errorText())}
	}
	if len(s.Content) == 0 {
		return ToolResult{Structured: s.Structured}
	}
	if text, ok := s.Content[0].(Text); ok && len(s.Content) == 1 {
		return ToolResult{Text: validUTF8(string(text))}
	}
	return ToolResult{Content: s.Content.validUTF8()}
}

// errorText returns the text of an unsuccessful call. It is never blank,
// because a model would take a blank text for an output.
func (s Settlement) errorText() string {
	switch {
	case strings.TrimSpace(s.Text) != "":
		return s.Text
	case int(s.Outcome) < len(defaultTexts):
		return defaultTexts[s.Outcome]
	}
	return defaultTexts[0]
}

// validUTF8 returns text with each invalid byte replaced by U+FFFD, as JSON
// stores it.
func validUTF8(text string) string { return string([]rune(text)) }

// The texts that a settlement and its default text share.
const (
	disabledText = "Tools are disabled after the maximum number of steps"
	lostText     = "The process died while this tool ran: its outcome is unknown"
)

// InterruptedBefore returns the settlement of a call that was interrupted
// before its start was recorded.
func InterruptedBefore(i Interruption) Settlement {
	return Settlement{Outcome: Interrupted, Interruption: i, Text: fmt.Sprintf("Tool execution interrupted (%s) before it began", i.String())}
}

// InterruptedWhile returns the settlement of a call that was interrupted while
// it ran.
func InterruptedWhile(i Interruption) Settlement {
	text := fmt.Sprintf("Tool execution interrupted (%s): its effects are unknown", i.String())
	return Settlement{Outcome: Interrupted, Interruption: i, Began: true, Text: text}
}

// LostCall returns the settlement of a call whose process died while it ran.
func LostCall(offered, effective Offered) Settlement {
	return Settlement{
		Outcome: Lost, Began: true, Offered: offered, Effective: effective,
		Text: lostText,
	}
}

// DisabledCall returns the settlement of a call that a model requested
// although the turn had no tools, because the session had reached its maximum
// number of steps.
func DisabledCall() Settlement {
	return Settlement{Outcome: Disabled, Text: disabledText}
}
