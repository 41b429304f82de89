package transcripts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// An ending is how a result says that its call ended.
type ending struct {
	outcome      domain.Outcome
	ran          bool // the tool may have run
	interruption domain.Interruption
	detail       string
}

// interruptedText begins what the format writes where a person stopped a run.
const interruptedText = "[Request interrupted by user"

// interrupts reports whether a text of a person's message is the mark of an
// interruption.
func interrupts(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, interruptedText) && strings.HasSuffix(text, "]") && len(text) < 200
}

// A phrase is how a result begins that is marked as an error, and what it
// means. The format has no other sign.
type phrase struct {
	begins, holds string
	ending        ending
}

// phrases are tried in order.
var phrases = []phrase{
	{interruptedText, "", ending{outcome: domain.Interrupted, ran: true, interruption: domain.ByUser}},
	{"The user doesn't want to proceed with this tool use.", "", ending{outcome: domain.DeclinedByUser}},
	{"The user doesn't want to take this action right now.", "", ending{outcome: domain.DeclinedByUser}},
	{"User rejected tool use", "", ending{outcome: domain.DeclinedByUser}},
	{"Permission to use ", " denied", ending{outcome: domain.DeniedByRule}},
	{"Permission to use ", " auto-denied", ending{outcome: domain.DeniedByRule}},
	{"Permission for this action has been denied", "", ending{outcome: domain.DeniedByRule}},
	{"Permission denied by hook", "", ending{outcome: domain.DeniedByRule}},
	{"Claude requested permissions to ", "haven't granted it yet", ending{outcome: domain.DeniedByRule}},
	{"Hook PreToolUse:", "denied", ending{outcome: domain.DeniedByRule}},
	{"PreToolUse:", "hook", ending{outcome: domain.DeniedByRule}},
	{"<tool_use_error>InputValidationError", "", ending{outcome: domain.InvalidInput}},
	{"InputValidationError", "", ending{outcome: domain.InvalidInput}},
	{"<tool_use_error>Error: No such tool available", "", ending{outcome: domain.UnknownTool}},
	{"<tool_use_error>No such tool available", "", ending{outcome: domain.UnknownTool}},
	{"Error: No such tool available", "", ending{outcome: domain.UnknownTool}},
	{"No such tool available", "", ending{outcome: domain.UnknownTool}},
	{"<tool_use_error>Sibling tool call errored", "", ending{outcome: domain.Interrupted, interruption: domain.Superseded}},
	{"<tool_use_error>Cancelled: parallel tool call", "", ending{outcome: domain.Interrupted, interruption: domain.Superseded}},
}

// longestPhrase bounds where in a text a phrase is looked for, so that an
// output that quotes one further down is not taken for it.
const longestPhrase = 2000

// endingOf reads a result: what the model read of it, whether it is marked as
// an error, and the structured value beside it.
func endingOf(shown string, isError bool, beside json.RawMessage) ending {
	end := ending{outcome: domain.Succeeded, ran: true}
	if isError {
		end = failureOf(shown)
	} else if aborted(shown, beside) {
		end = ending{outcome: domain.Interrupted, ran: true, interruption: domain.ByUser}
	}
	if kept := retained(shown, beside); kept != "" {
		end.detail = kept
	}
	return end
}

func failureOf(shown string) ending {
	text := strings.TrimSpace(shown)
	head := text[:min(len(text), longestPhrase)]
	for _, p := range phrases {
		if strings.HasPrefix(head, p.begins) && strings.Contains(head, p.holds) {
			end := p.ending
			if end.outcome == domain.DeclinedByUser {
				end.detail = feedback(text)
			}
			return end
		}
	}
	return ending{outcome: domain.Failed, ran: true}
}

// feedback returns what the person said when refusing, if the text has it.
func feedback(text string) string {
	_, said, ok := strings.Cut(text, "the user said:")
	if said = strings.TrimSpace(said); !ok || said == "" {
		return ""
	}
	return "feedback: " + said
}

// aborted reports whether a command that is not marked as an error was stopped
// by a person: both the text and the structured value say so.
func aborted(shown string, beside json.RawMessage) bool {
	if !strings.Contains(shown, "Command was aborted before completion") {
		return false
	}
	var structured struct {
		Interrupted flag `json:"interrupted"`
	}
	lenient(beside, &structured)
	return bool(structured.Interrupted)
}

// retained says what the format tells of an output that it kept in a file of
// its own, and nothing where it kept none.
func retained(shown string, beside json.RawMessage) string {
	rest, ok := strings.CutPrefix(strings.TrimSpace(shown), "<persisted-output>")
	if !ok {
		return ""
	}
	where, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	detail := "the output is kept elsewhere and is not in the file: " + where
	var structured struct {
		Path text  `json:"persistedOutputPath"`
		Size count `json:"persistedOutputSize"`
	}
	lenient(beside, &structured)
	if structured.Path != "" && !strings.Contains(where, string(structured.Path)) {
		detail += fmt.Sprintf("; path %s", structured.Path)
	}
	if structured.Size > 0 {
		detail += fmt.Sprintf("; %d bytes", structured.Size)
	}
	return detail
}
