package transcripts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// An callOutcome is how a result says that its call ended.
type callOutcome struct {
	outcome      domain.Outcome
	ran          bool // the tool may have run
	interruption domain.Interruption
	detail       string
}

// interruptedText begins what the format writes where a person stopped a run.
const interruptedText = "[Request interrupted by user"

// isInterruption reports whether a text of a person's message is the mark of an
// interruption.
func isInterruption(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, interruptedText) && strings.HasSuffix(text, "]") && len(text) < 200
}

// A outcomePhrase is how a result begins that is marked as an error, and what it
// means. The format has no other sign.
type outcomePhrase struct {
	prefix, contains string
	outcome          callOutcome
}

// The endings that phrases mean.
var (
	byUser       = callOutcome{outcome: domain.Interrupted, ran: true, interruption: domain.ByUser}
	byDeadline   = callOutcome{outcome: domain.Interrupted, ran: true, interruption: domain.ByDeadline}
	byShutdown   = callOutcome{outcome: domain.Interrupted, interruption: domain.ByShutdown}
	cancelled    = callOutcome{outcome: domain.Interrupted, interruption: domain.Superseded}
	declined     = callOutcome{outcome: domain.DeclinedByUser}
	denied       = callOutcome{outcome: domain.DeniedByRule}
	invalidInput = callOutcome{outcome: domain.InvalidInput}
	unknownTool  = callOutcome{outcome: domain.UnknownTool}
	failed       = callOutcome{outcome: domain.Failed, ran: true}
)

// errorPhrases are tried in order. What the format calls a tool_use_error was refused
// before the tool ran, but for an error of the tool that it wraps.
var errorPhrases = []outcomePhrase{
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
	{"InputValidationError", "", invalidInput},
	{"Error: No such tool available", "", unknownTool},
	{"No such tool available", "", unknownTool},
}

// toolErrorPhrases are phrases within a tool_use_error.
var toolErrorPhrases = []outcomePhrase{
	{"InputValidationError", "", invalidInput},
	{"Error: No such tool available", "", unknownTool},
	{"No such tool available", "", unknownTool},
	{"Sibling tool call errored", "", cancelled},
	{"Cancelled: parallel tool call", "", cancelled},
	{"Error: Streaming fallback", "", cancelled},
	{"User rejected tool use", "", declined},
	{"File is in a directory that is denied by your permission settings", "", denied},
	{"Permission to use ", " denied", denied},
	{"Error calling tool", "", failed},
	{"", "", invalidInput},
}

// maxPhraseOffset bounds where in a text a phrase is looked for, so that an
// output that quotes one further down is not taken for it.
const maxPhraseOffset = 2000

// outcomeOf reads a result: what the model read of it, whether it is marked as
// an error, and the structured value beside it.
func outcomeOf(output string, isError bool, structured json.RawMessage) callOutcome {
	end := callOutcome{outcome: domain.Succeeded, ran: true}
	if isError {
		end = errorOutcome(output)
	} else {
		end = abortedOutcome(end, output, structured)
	}
	if persisted := persistedOutput(output, structured); persisted != "" {
		end.detail = persisted
	}
	return end
}

func errorOutcome(output string) callOutcome {
	text := strings.TrimSpace(output)
	head := text[:min(len(text), maxPhraseOffset)]
	candidates := errorPhrases
	if within, ok := strings.CutPrefix(head, "<tool_use_error>"); ok {
		head, candidates = strings.TrimSpace(within), toolErrorPhrases
	} else {
		head = strings.TrimSpace(strings.TrimPrefix(skipExitCode(head), "<error>"))
	}
	for _, p := range candidates {
		if strings.HasPrefix(head, p.prefix) && strings.Contains(head, p.contains) {
			end := p.outcome
			if end.outcome == domain.DeclinedByUser {
				end.detail = userFeedback(text)
			}
			return end
		}
	}
	return failed
}

// skipExitCode returns what follows the line of an exit code that a result begins
// with, if that says how the command ended: all else there is its output.
func skipExitCode(head string) string {
	code, rest, ok := strings.Cut(head, "\n")
	if !ok || !strings.HasPrefix(code, "Exit code ") {
		return head
	}
	if rest = strings.TrimLeft(rest, "\n"); strings.HasPrefix(rest, interruptedText) || strings.HasPrefix(rest, "Command timed out after ") {
		return rest
	}
	return head
}

// userFeedback returns what the person said when refusing, if the text has it.
func userFeedback(text string) string {
	_, message, ok := strings.Cut(text, "the user said:")
	if message = strings.TrimSpace(message); !ok || message == "" {
		return ""
	}
	return "feedback: " + truncate(message, maxContext)
}

// abortedOutcome returns how a command ended that is not marked as an error and was
// stopped, as both the text and the structured value say, and otherwise end.
func abortedOutcome(end callOutcome, output string, structuredValue json.RawMessage) callOutcome {
	aborted := strings.Contains(output, "Command was aborted before completion")
	late := strings.HasPrefix(strings.TrimSpace(output), "Command timed out after ")
	if !aborted && !late {
		return end
	}
	var structured struct {
		Interrupted jsonFlag `json:"interrupted"`
	}
	switch decodeLenient(structuredValue, &structured); {
	case !bool(structured.Interrupted):
		return end
	case late:
		return byDeadline
	}
	return byUser
}

// persistedOutput says what the format tells of an output that it kept in a file of
// its own, and nothing where it kept none.
func persistedOutput(output string, structuredValue json.RawMessage) string {
	rest, ok := strings.CutPrefix(strings.TrimSpace(output), "<persisted-output>")
	if !ok {
		return ""
	}
	where, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	where = truncate(where, maxName)
	detail := "the output is kept elsewhere and is not in the file: " + where
	var structured struct {
		Path jsonText  `json:"persistedOutputPath"`
		Size jsonCount `json:"persistedOutputSize"`
	}
	decodeLenient(structuredValue, &structured)
	if structured.Path != "" && !strings.Contains(where, string(structured.Path)) {
		detail += fmt.Sprintf("; path %s", truncate(string(structured.Path), maxName))
	}
	if structured.Size > 0 {
		detail += fmt.Sprintf("; %d bytes", structured.Size)
	}
	return detail
}
