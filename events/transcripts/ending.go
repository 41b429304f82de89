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

// The endings that phrases mean.
var (
	byUser     = ending{outcome: domain.Interrupted, ran: true, interruption: domain.ByUser}
	byDeadline = ending{outcome: domain.Interrupted, ran: true, interruption: domain.ByDeadline}
	byShutdown = ending{outcome: domain.Interrupted, interruption: domain.ByShutdown}
	cancelled  = ending{outcome: domain.Interrupted, interruption: domain.Superseded}
	declined   = ending{outcome: domain.DeclinedByUser}
	denied     = ending{outcome: domain.DeniedByRule}
	unusable   = ending{outcome: domain.InvalidInput}
	unknown    = ending{outcome: domain.UnknownTool}
	failed     = ending{outcome: domain.Failed, ran: true}
)

// phrases are tried in order. What the format calls a tool_use_error was refused
// before the tool ran, but for an error of the tool that it wraps.
var phrases = []phrase{
	{interruptedText, "", byUser},
	{"Command timed out after ", "", byDeadline},
	{"Command timed out\n", "", byDeadline},
	{"MCP error -32001: Request timed out", "", byDeadline},
	{"The user doesn't want to proceed with this tool use.", "", declined},
	{"The user doesn't want to take this action right now.", "", declined},
	{"User rejected tool use", "", declined},
	{"Permission prompt was aborted.", "", declined},
	{"The agent proposed a plan that was rejected by the user", "", declined},
	{"User declined to answer questions", "", declined},
	{"Tool permission stream closed before response received", "", byShutdown},
	{"Tool permission request failed", "", byShutdown},
	{"Permission to use ", " denied", denied},
	{"Permission to use ", " auto-denied", denied},
	{"Permission for this action has been denied", "", denied},
	{"Permission denied by hook", "", denied},
	{"Claude requested permissions to ", "haven't granted it yet", denied},
	{"This Bash command contains multiple operations.", "require approval", denied},
	{"This command requires approval", "", denied},
	{"Hook PreToolUse:", "denied", denied},
	{"PreToolUse:", "hook", denied},
	{"Execution stopped by PreToolUse hook", "", denied},
	{"InputValidationError", "", unusable},
	{"Error: No such tool available", "", unknown},
	{"No such tool available", "", unknown},
}

// refusals are phrases within a tool_use_error.
var refusals = []phrase{
	{"InputValidationError", "", unusable},
	{"Error: No such tool available", "", unknown},
	{"No such tool available", "", unknown},
	{"Sibling tool call errored", "", cancelled},
	{"Cancelled: parallel tool call", "", cancelled},
	{"Error: Streaming fallback", "", cancelled},
	{"User rejected tool use", "", declined},
	{"File is in a directory that is denied by your permission settings", "", denied},
	{"Permission to use ", " denied", denied},
	{"Error calling tool", "", failed},
	{"", "", unusable},
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
	} else {
		end = abortedOr(end, shown, beside)
	}
	if kept := retained(shown, beside); kept != "" {
		end.detail = kept
	}
	return end
}

func failureOf(shown string) ending {
	text := strings.TrimSpace(shown)
	head := text[:min(len(text), longestPhrase)]
	of := phrases
	if within, ok := strings.CutPrefix(head, "<tool_use_error>"); ok {
		head, of = strings.TrimSpace(within), refusals
	} else {
		head = strings.TrimSpace(strings.TrimPrefix(behindCode(head), "<error>"))
	}
	for _, p := range of {
		if strings.HasPrefix(head, p.begins) && strings.Contains(head, p.holds) {
			end := p.ending
			if end.outcome == domain.DeclinedByUser {
				end.detail = feedback(text)
			}
			return end
		}
	}
	return failed
}

// behindCode returns what follows the line of an exit code that a result begins
// with, if that says how the command ended: all else there is its output.
func behindCode(head string) string {
	code, rest, ok := strings.Cut(head, "\n")
	if !ok || !strings.HasPrefix(code, "Exit code ") {
		return head
	}
	if rest = strings.TrimLeft(rest, "\n"); strings.HasPrefix(rest, interruptedText) || strings.HasPrefix(rest, "Command timed out after ") {
		return rest
	}
	return head
}

// feedback returns what the person said when refusing, if the text has it.
func feedback(text string) string {
	_, said, ok := strings.Cut(text, "the user said:")
	if said = strings.TrimSpace(said); !ok || said == "" {
		return ""
	}
	return "feedback: " + beginning(said, mostContext)
}

// abortedOr returns how a command ended that is not marked as an error and was
// stopped, as both the text and the structured value say, and otherwise end.
func abortedOr(end ending, shown string, beside json.RawMessage) ending {
	aborted := strings.Contains(shown, "Command was aborted before completion")
	late := strings.HasPrefix(strings.TrimSpace(shown), "Command timed out after ")
	if !aborted && !late {
		return end
	}
	var structured struct {
		Interrupted flag `json:"interrupted"`
	}
	switch lenient(beside, &structured); {
	case !bool(structured.Interrupted):
		return end
	case late:
		return byDeadline
	}
	return byUser
}

// retained says what the format tells of an output that it kept in a file of
// its own, and nothing where it kept none.
func retained(shown string, beside json.RawMessage) string {
	rest, ok := strings.CutPrefix(strings.TrimSpace(shown), "<persisted-output>")
	if !ok {
		return ""
	}
	where, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	where = beginning(where, mostName)
	detail := "the output is kept elsewhere and is not in the file: " + where
	var structured struct {
		Path text  `json:"persistedOutputPath"`
		Size count `json:"persistedOutputSize"`
	}
	lenient(beside, &structured)
	if structured.Path != "" && !strings.Contains(where, string(structured.Path)) {
		detail += fmt.Sprintf("; path %s", beginning(string(structured.Path), mostName))
	}
	if structured.Size > 0 {
		detail += fmt.Sprintf("; %d bytes", structured.Size)
	}
	return detail
}
