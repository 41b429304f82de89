package domain

import (
	"encoding/json"
	"fmt"
	"strings"
)

// An Outcome is how a call ended. The zero Outcome is not valid.
type Outcome uint8

// The outcomes: a closed set.
const (
	Succeeded       Outcome = iota + 1 // the tool returned, and its output was kept whole
	Failed                             // the tool chose to fail
	UnknownTool                        // the turn offered no such name
	Stale                              // what was offered is no longer in effect
	InvalidInput                       // the input does not fit the schema
	InvalidOutput                      // the tool ran, and its output does not fit the schema
	DeniedByRule                       // a rule refused a permission that the tool asked for
	DeclinedByUser                     // a person refused it
	Disabled                           // tools were disabled after the maximum number of steps
	Interrupted                        // the call was cancelled, before or while it ran
	Defective                          // the tool broke: an unexpected error, or a panic
	RetentionFailed                    // the tool returned, and its output could not be kept whole
	MediaTooLarge                      // the tool returned more media than the limit
	Lost                               // it began, and its process died
)

var outcomes = enumNames[Outcome]{"", "succeeded", "failed", "unknown_tool", "stale", "invalid_input", "invalid_output",
	"denied", "declined", "disabled", "interrupted", "defect", "retention_failed", "media_too_large", "lost"}

// Outcomes returns all of them, in order.
func Outcomes() []Outcome {
	all := make([]Outcome, len(outcomes)-1)
	for i := range all {
		all[i] = Outcome(i + 1)
	}
	return all
}

func (o Outcome) String() string               { return outcomes.name(o) }
func (o Outcome) MarshalText() ([]byte, error) { return outcomes.marshal(o) }

// UnmarshalText accepts what String gives; the empty text is zero.
func (o *Outcome) UnmarshalText(text []byte) error { return outcomes.unmarshal(o, text) }

// A Settlement is the one end of a call. It holds what the ledger keeps, and
// from it alone follows what the model reads.
type Settlement struct {
	ID           EventID      // the event that records it
	Outcome      Outcome      //
	Began        bool         // the start is on record: the tool may have run
	Interruption Interruption // why, where Outcome is Interrupted; else zero
	Text         string       // what the model reads in place of an output; blank: a sentence of the outcome
	Detail       string       // for the operator: what broke; may be empty
	Rule         Rule         // that denied, where Outcome is DeniedByRule and one did

	Input      json.RawMessage // the input that ran, where hooks changed the one asked for; else nil
	Structured json.RawMessage // the encoded output; nil where there is none, it is retained, or media stands for it
	Content    Contents        // its presentation, bounded
	Retained   []Retained      // what is kept whole elsewhere
	Lost       int64           // bytes that the tool dropped before it returned the rest
	Progress   *Progress       // the last one, where the call did not succeed; may be nil

	Offered   Offered // what the turn offered for the name; zero where nothing
	Effective Offered // what was in effect when the call was resolved; of a lost call, what ran; zero where nothing
	ChangedBy EventID // the event that made the two differ; zero where they do not
}

// Agrees reports whether the definition in effect is known to be the one
// offered.
func (s Settlement) Agrees() bool {
	return !s.Offered.Fingerprint.IsZero() && s.Offered.Fingerprint == s.Effective.Fingerprint
}

// defaultTexts holds what the model reads of a call that did not succeed and whose
// settlement has no text, by outcome.
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

// A ToolResult is what a model reads of a settlement. At most one of its fields is
// set; none is for an output that is the empty text.
type ToolResult struct {
	Error      string          // for any outcome but Succeeded; then never empty
	Text       string          // a single part that is text
	Content    Contents        // several parts, or media
	Structured json.RawMessage // where there is no content
}

// Type returns error, text, content or json, as the field that is set.
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

// ToolResult returns what the model reads. It is a function of the settlement
// alone: read back from the log, a settlement reads the same. A byte that is
// not UTF-8 reads as U+FFFD, as JSON keeps it.
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

// errorText returns the text of a call that did not succeed. A blank one would
// read as an output.
func (s Settlement) errorText() string {
	switch {
	case strings.TrimSpace(s.Text) != "":
		return s.Text
	case int(s.Outcome) < len(defaultTexts):
		return defaultTexts[s.Outcome]
	}
	return defaultTexts[0]
}

// validUTF8 is the text that JSON keeps of a text.
func validUTF8(text string) string { return string([]rune(text)) }

const (
	disabledText = "Tools are disabled after the maximum number of steps"
	lostText     = "The process died while this tool ran: its outcome is unknown"
)

// InterruptedBefore returns the end of a call that was interrupted before it
// began.
func InterruptedBefore(i Interruption) Settlement {
	return Settlement{Outcome: Interrupted, Interruption: i, Text: fmt.Sprintf("Tool execution interrupted (%s) before it began", i.String())}
}

// InterruptedWhile returns the end of a call that was interrupted while it ran.
func InterruptedWhile(i Interruption) Settlement {
	text := fmt.Sprintf("Tool execution interrupted (%s): its effects are unknown", i.String())
	return Settlement{Outcome: Interrupted, Interruption: i, Began: true, Text: text}
}

// LostCall returns the end of a call that began in a process that died.
func LostCall(offered, effective Offered) Settlement {
	return Settlement{
		Outcome: Lost, Began: true, Offered: offered, Effective: effective,
		Text: lostText,
	}
}

// DisabledCall returns the end of a call that a model asked for although no
// tools were offered any more.
func DisabledCall() Settlement {
	return Settlement{Outcome: Disabled, Text: disabledText}
}
