package builtins

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/builtins/shellcommand"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed bash.md
var bashDescription string

// bashArgs is the input of the tool bash.
type bashArgs struct {
	Command string `json:"command" jsonschema:"the command line"`
	Workdir string `json:"workdir,omitempty" jsonschema:"the directory to run in; the workspace where there is none"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"milliseconds after which the command is ended; 120000 where there is none"`
}

// bashInput is the JSON schema of the constraints on bashArgs: a command that is not
// blank, and a timeout between 1 ms and 10 minutes.
const bashInput = `{"properties":{"command":{"minLength":1,"pattern":"\\S"},"timeout":{"minimum":1,"maximum":600000}}}`

// defaultTimeout is the timeout of a command without one, in milliseconds.
const defaultTimeout = 120_000

// timeoutMillis returns the timeout of the command in milliseconds: the one in the
// input, or defaultTimeout.
func (c bashArgs) timeoutMillis() int {
	if c.Timeout == 0 {
		return defaultTimeout
	}
	return c.Timeout
}

// bashResult is the output of the tool bash.
type bashResult struct {
	Exit      *int     `json:"exit,omitempty"`       // the exit status; nil after a signal or a timeout
	Signal    string   `json:"signal,omitempty"`     // the signal that ended the command; empty if it exited
	Truncated bool     `json:"truncated"`            // the capture limit was exceeded, so output was lost
	Lost      int64    `json:"lost_bytes,omitempty"` // how many bytes of output were lost
	Timeout   bool     `json:"timeout,omitempty"`    // the timeout ended the command
	Output    string   `json:"output"`
	Warnings  []string `json:"warnings,omitempty"`
}

// A bashTool is the tool bash. It runs a command line with Config.Shell.
type bashTool struct{ Config }

// tool returns the domain.Tool of bash. Its input may have a description, which is
// ignored: models add one out of habit.
func (s bashTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[bashArgs, bashResult]{
		Description: bashDescription,
		Input:       domain.Ignoring(domain.Constrained[bashArgs](bashInput), "description"),
		Execute:     s.run,
		Present:     presentBash,
		AsksFirst:   true,
		Title:       bashArgs.title,
		Lost:        func(c bashResult) int64 { return c.Lost },
	})
}

// maxTitle is the maximum length of the title of a command, in runes.
const maxTitle = 120

// title returns the first line of the command that is not blank, cut after maxTitle runes.
func (c bashArgs) title() string {
	line, _, more := strings.Cut(strings.TrimSpace(c.Command), "\n")
	if more {
		line += " ..."
	}
	return truncateRunes(line, maxTitle)
}

// run executes one call. It opens the working directory, asks for permission for every
// command and file in the line, and starts the shell in the opened directory. If the
// context ends first, run reports the last part of the output as progress and returns
// the cause of the context.
func (s bashTool) run(ctx context.Context, in bashArgs, inv domain.Invocation) (bashResult, error) {
	if strings.ContainsRune(in.Command, 0) {
		return bashResult{}, domain.Fail("Unable to execute command: it holds a NUL, which no shell can be given")
	}
	held, err := s.acquireDirectory(ctx, inv, in.Workdir)
	if err != nil {
		return bashResult{}, pathFailure(err, "Unable to execute command: %s", in.Command)
	}
	defer held.release()
	where := held.resolved
	script := shellcommand.Analyze(in.Command, shellcommand.Dialect(s.Shell), s.Environment...)
	metadata, err := json.Marshal(map[string]string{"command": in.Command, "workdir": where.Path})
	if err != nil {
		return bashResult{}, err
	}
	if err := s.assertPermission(ctx, inv, held, permission.Ask{Action: "bash", Resources: script.Resources, Spellings: script.Spellings, Save: script.SavePatterns, Metadata: metadata,
		Preview: permission.TextPreview(domain.PreviewCommand, in.Command)}); err != nil {
		return bashResult{}, err
	}
	dir, err := held.verifiedDirectory()
	if err != nil {
		return bashResult{}, failure(err, "Unable to execute command: %s", in.Command)
	}
	r, err := process.Run(ctx, process.Command{
		Program: s.Shell, Args: []string{"-c", shellcommand.Argument(in.Command)}, Dir: where.Path, OpenDir: dir, Env: s.Environment,
		CaptureLimit: s.CaptureLimit, Timeout: time.Duration(in.timeoutMillis()) * time.Millisecond, GracePeriod: s.Grace,
	})
	if ctx.Err() != nil && err != nil {
		inv.Report(domain.Progress{Content: domain.Contents{domain.Text(lastBytes(captureText(r.Output)))}})
		return bashResult{}, err
	}
	if err != nil {
		return bashResult{}, failure(err, "Unable to execute command: %s", in.Command)
	}
	return newBashResult(r, s.warnings(script)), nil
}

// verifiedDirectory returns the working directory as it was opened before permission was
// requested. It returns workspace.ErrNotDirectory for a file. After a person was asked,
// it returns workspace.ErrChanged if the path now leads to another directory. The
// acquiredPath owns the directory.
func (h *acquiredPath) verifiedDirectory() (*os.File, error) {
	handle, err := h.verifiedHandle()
	if err != nil {
		return nil, err
	}
	return handle.Directory()
}

// warnings returns one warning for each word of the line that is an absolute path
// outside the workspace. Warnings inform the model; the call runs all the same.
func (s bashTool) warnings(sc shellcommand.Analysis) []string {
	var warnings []string
	for _, word := range sc.Paths {
		if target, err := s.Workspace.Resolve(word); err == nil && target.External != "" {
			warnings = append(warnings, "the command names a path outside the workspace: "+word)
		}
	}
	return warnings
}

// newBashResult converts the result of package process. Exit and Signal are absent after
// a timeout.
func newBashResult(r process.RunResult, warnings []string) bashResult {
	out := bashResult{Truncated: r.Output.Lost > 0, Lost: r.Output.Lost, Timeout: r.TimedOut, Output: captureText(r.Output), Warnings: warnings}
	switch {
	case r.TimedOut:
	case r.Signal != 0:
		out.Signal = r.Signal.String()
	default:
		out.Exit = &r.Exit
	}
	return out
}

// captureText returns a capture as valid UTF-8, with U+FFFD for invalid bytes. Between
// the head and the tail it states how many bytes were lost.
func captureText(c process.Capture) string {
	head := strings.ToValidUTF8(string(c.Head), "\ufffd")
	if c.Lost == 0 {
		return head
	}
	return fmt.Sprintf("%s\n\n[%d bytes lost here]\n\n%s", head, c.Lost, strings.ToValidUTF8(string(c.Tail), "\ufffd"))
}

// maxExcerpt is the size of the output that an interrupted command reports, in bytes.
const maxExcerpt = 8 << 10

// lastBytes returns the last maxExcerpt bytes of text, after "..." if text is longer.
func lastBytes(text string) string {
	if len(text) <= maxExcerpt {
		return text
	}
	return "..." + strings.ToValidUTF8(text[len(text)-maxExcerpt:], "")
}

// presentBash renders the output for the model: the captured text with notes about lost
// bytes and the timeout, and a second text with the warnings and the exit status.
func presentBash(in bashArgs, out domain.Encoded[bashResult]) []domain.Content {
	c, err := out.Value()
	if err != nil {
		return nil
	}
	output := c.Output
	if output == "" {
		output = "(no output)"
	}
	if c.Truncated {
		output += fmt.Sprintf("\n\n[output capture truncated at the in-memory safety limit] (%d bytes lost)", c.Lost)
	}
	if c.Timeout {
		output += fmt.Sprintf("\n\nCommand exceeded timeout of %d ms. Retry with a larger timeout if it needs more time.", in.timeoutMillis())
	}
	return []domain.Content{domain.Text(output), domain.Text(renderWarnings(c.Warnings) + describeEnd(c))}
}

// renderWarnings returns the warnings as a list that ends in a blank line, or an empty
// text without warnings.
func renderWarnings(warnings []string) string {
	if len(warnings) == 0 {
		return ""
	}
	return "Warnings:\n- " + strings.Join(warnings, "\n- ") + "\n\n"
}

// describeEnd returns a sentence that states how the command ended: timeout, exit code
// or signal.
func describeEnd(c bashResult) string {
	switch {
	case c.Timeout:
		return "Command timed out before completion."
	case c.Exit != nil:
		return fmt.Sprintf("Command exited with code %d.", *c.Exit)
	}
	return fmt.Sprintf("Command was ended by a signal: %s.", c.Signal)
}
