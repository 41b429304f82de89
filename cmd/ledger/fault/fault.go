package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// The exit codes, which ledger --help lists. Exit code 0 is success. They are stable.
const (
	// ExitFailed is a general failure.
	ExitFailed = 1
	// ExitUsage reports invalid arguments, or an ambiguous ID.
	ExitUsage = 2
	// ExitUnverified reports that ledger verify, ledger store check or ledger session diff found
	// exceptions, damage or differences.
	ExitUnverified = 3
	// ExitNotFound reports an unknown store, session, turn, call or output.
	ExitNotFound = 4
	// ExitConflict reports that another process has the store, or that the log
	// contradicts the command.
	ExitConflict = 5
	// exitTimeout reports that a deadline passed. It is the code of timeout(1).
	exitTimeout = 124
	// ExitInterrupted is 128 + SIGINT, as a shell reports it.
	ExitInterrupted = 130
	// ExitUnread is 128 + SIGPIPE, as a shell reports it.
	ExitUnread = 141
)

// An Error is an error in the form in which a command reports it.
type Error struct {
	Exit       int      // the exit code
	Code       string   // a stable word for programs, such as store_in_use
	Err        error    // the cause; never nil
	Hint       string   // advice for the user; may be empty
	Command    string   // a command line that helps; may be empty
	Candidates []string // the IDs or names that an ambiguous or unknown argument may mean
	Quiet      bool     // report only the exit code: the user knows the cause or has closed the output
}

// Error returns the text of the cause, without the hint.
func (f *Error) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Error) Unwrap() error { return f.Err }

// Usage returns the fault of invalid arguments: exit code 2. Its cause has the formatted text
// and may wrap an error with %w.
func Usage(format string, args ...any) *Error {
	return &Error{Exit: ExitUsage, Code: "usage", Err: fmt.Errorf(format, args...)}
}

// NotFound returns the fault of an unknown ID or a missing object: exit code 4, with a hint.
// Its cause has the formatted text.
func NotFound(hint, format string, args ...any) *Error {
	return &Error{Exit: ExitNotFound, Code: "not_found", Err: fmt.Errorf(format, args...), Hint: hint}
}

// NumberError matches the beginning of an error text of package strconv for a malformed
// number. Callers replace it by a text for users.
var NumberError = regexp.MustCompile(`strconv\.[A-Za-z]+: parsing "[^"]*": `)

// FromCommandLine maps an error of cobra, which parses the command line, to a usage
// fault. The hint is cobra's suggestion of a similar command if there is one, otherwise
// the command with --help. An error that already wraps an Error is returned unchanged.
func FromCommandLine(command string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	f := Usage("%s", text)
	f.Hint = "see " + command + " --help"
	if _, like, ok := strings.Cut(err.Error(), "Did you mean this?"); ok {
		f.Hint = "did you mean " + strings.Join(strings.Fields(like), " or ") + "?"
	}
	return f
}

// Of returns the fault of an error, which is not nil: the Error that it wraps, or the fault
// of the first matching entry of mappings, or a general failure with exit code 1.
func Of(err error) *Error {
	if f, ok := errors.AsType[*Error](err); ok {
		return f
	}
	if _, ok := errors.AsType[unread](err); ok {
		return &Error{Exit: ExitUnread, Code: "unread", Err: err, Quiet: true}
	}
	if silent, ok := errors.AsType[*shared.UnresponsiveError](err); ok && silent.Stopped {
		pid := silent.Owner.PID
		hint := fmt.Sprintf("continue that process with fg in its terminal, or with kill -CONT %d, or end it with kill -KILL %d: another process goes on then", pid, pid)
		return &Error{Exit: ExitConflict, Code: "store_in_use", Err: err, Hint: hint, Command: fmt.Sprint("kill -CONT ", pid)}
	}
	if failed, ok := errors.AsType[*runner.ProviderError](err); ok {
		return modelFault(err, failed)
	}
	if refused, ok := errors.AsType[*runner.IncompatibleError](err); ok {
		f := &Error{Exit: ExitFailed, Code: "model_incompatible", Err: err, Hint: "change the parameters of the model, or choose another model"}
		if refused.Tool != "" {
			f.Hint = "leave the tool out (a rule deny ACTION *, tools.deny of an MCP server, the file of the tool), or choose another model"
		}
		return f
	}
	for _, k := range mappings {
		if errors.Is(err, k.Is) {
			return k.Fault(err)
		}
	}
	return &Error{Exit: ExitFailed, Code: "failed", Err: err}
}

// modelHints are the hints for failed requests to a model.
var modelHints = map[runner.FailureKind]string{
	runner.AuthenticationFailure: "check the key in the environment variable of the provider, and what it may use; docs/models.md lists the variables",
	runner.InvalidRequest:        "check the name of the model, the base URL and the parameters in models.toml; ledger turn show @last shows the request",
	runner.ContextExceeded:       "the last message, or the system prompt with the tools, is too large: choose a model with a larger context, offer fewer tools, or begin a new session with a shorter prompt",
	runner.RateLimited:           "wait, and continue with ledger resume @last and the same --model",
	runner.Overloaded:            "wait, and continue with ledger resume @last and the same --model",
	runner.ConnectionFailure:     "check the address of the server, --base-url, and the network; then continue with ledger resume @last",
	runner.StreamStalled:         "continue with ledger resume @last and the same --model",
	runner.StreamCut:             "continue with ledger resume @last and the same --model",
	runner.StreamFailure:         "check that --base-url and --api fit the server",
}

// modelFault returns the fault of a failed request to a model. Its code is model_ and the
// kind of the failure.
func modelFault(err error, failed *runner.ProviderError) *Error {
	return &Error{Exit: ExitFailed, Code: "model_" + string(failed.Failure), Err: err, Hint: modelHints[failed.Failure]}
}

// WithHint returns a copy of the fault of err with another hint. An empty hint keeps the hint
// of the fault.
func WithHint(err error, hint string) error {
	f := *Of(err)
	f.Hint = cmp.Or(hint, f.Hint)
	return &f
}

// unread is the type of ErrUnread. It wraps an interruption, which the log records as a
// shutdown of the process.
type unread struct{ domain.Interruption }

// Unwrap returns the interruption.
func (u unread) Unwrap() error { return u.Interruption }

// ErrUnread is the cause of a context that ended because the reader of the standard output,
// or of the standard error, closed the pipe.
var ErrUnread = unread{domain.ByShutdown}

// IsUnread reports whether ctx ended with ErrUnread.
func IsUnread(ctx context.Context) bool {
	_, ok := errors.AsType[unread](context.Cause(ctx))
	return ok
}
