package transcripts

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// A callOutcome is the outcome of a call, as the text of its result describes it.
type callOutcome struct {
	outcome domain.Outcome
	// ran reports that the tool ran or may have run.
	ran          bool
	interruption domain.Interruption
	detail       string
}

// interruptedText is the beginning of the text that the format writes when the user
// interrupts a run.
const interruptedText = "[Request interrupted by user"

// isInterruption reports whether the text of a user message is the mark of an
// interruption.
func isInterruption(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, interruptedText) && strings.HasSuffix(text, "]") && len(text) < 200
}

// An outcomePhrase describes error results by their beginning and by a text that they
// contain, with the outcome of such results. The format has no other sign of the
// outcome. An empty prefix or contains matches every result.
type outcomePhrase struct {
	prefix, contains string
	outcome          callOutcome
}

// The outcomes of phrases. An outcome without ran belongs to a call that ended before
// its tool ran.
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

// errorPhrases are the phrases of a result with the error flag, tried in order: the
// first match counts. A result without any of them is a failure of the tool.
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

// toolErrorPhrases are the phrases within a tool_use_error, tried in order. The
// program refuses such a call before its tool runs, except where the text wraps an
// error of the tool. The last phrase matches every text.
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

// maxPhraseOffset is the number of bytes at the beginning of a result in which
// phrases are searched. An output that quotes a phrase further down does not match.
const maxPhraseOffset = 2000

// outcomeOf returns the outcome of a result, from its text, its error flag and the
// structured value of its record. If the output is stored in another file, the detail
// of the outcome names that place.
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

// errorOutcome returns the outcome of a result with the error flag: the outcome of
// the first phrase that matches, or Failed if none does.
func errorOutcome(output string) callOutcome {
	text := strings.TrimSpace(output)
	head := text[:min(len(text), maxPhraseOffset)]
	// An error of the program itself is between tags; the output of a command can
	// begin with its exit code.
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

// skipExitCode removes the first line of a result, with the exit code, if the next
// text says how the command was interrupted or timed out. It leaves any other result
// unchanged, because what follows is output of the command.
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

// userFeedback returns the message with which the user declined a call, or an empty
// string.
func userFeedback(text string) string {
	_, message, ok := strings.Cut(text, "the user said:")
	if message = strings.TrimSpace(message); !ok || message == "" {
		return ""
	}
	return "feedback: " + truncate(message, maxContext)
}

// abortedOutcome returns the outcome of a command that was interrupted by the user or
// by a deadline, although its result lacks the error flag. It returns end for any
// other result. Both the text and the structured value must show the interruption,
// because a command can print the same text.
func abortedOutcome(end callOutcome, output string, structuredValue json.RawMessage) callOutcome {
	// The text alone is no sign, as a command can print it.
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

// persistedOutput returns a detail with the place of an output that the other agent
// stored in another file. It returns an empty string for an output that is in the
// session file.
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
