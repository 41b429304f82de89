package domain

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// The errors of this package. Match them with errors.Is. The package doc names
// the functions that return them.
var (
	// ErrBadID reports a text that is not an ID of the expected kind.
	ErrBadID = errors.New("not an ID")
	// ErrBadName reports a text that is not a valid tool name.
	ErrBadName = errors.New("not a tool name")
	// ErrBadRef reports a text that is not an output reference.
	ErrBadRef = errors.New("not an output reference")
	// ErrBadTool reports an incomplete Spec, and the use of a zero Tool or Bound.
	ErrBadTool = errors.New("not a tool")
	// ErrBadSchema reports a schema that is invalid or refers to another
	// document.
	ErrBadSchema = errors.New("schema is not supported")
	// ErrInvalidInput is matched by the ValidationError of an input.
	ErrInvalidInput = errors.New("input does not fit the schema")
	// ErrInvalidOutput is matched by the ValidationError of an output.
	ErrInvalidOutput = errors.New("output does not fit the schema")
	// ErrInterrupted is matched by every Interruption, and by the error of a run
	// that an interruption ended.
	ErrInterrupted = errors.New("interrupted")
	// ErrDenied is matched by every Denied.
	ErrDenied = errors.New("permission denied")
	// ErrDeclined is matched by every Declined.
	ErrDeclined = errors.New("declined")
	// ErrBadWord reports a name or a value outside a closed set.
	ErrBadWord = errors.New("not one of the words allowed here")
)

// A Failure is an error that a tool returns for the model to read. [Fail]
// makes one.
type Failure struct{ message string }

// Error returns the text for the model. It is never blank.
func (f *Failure) Error() string {
	if strings.TrimSpace(f.message) == "" {
		return defaultTexts[Failed]
	}
	return f.message
}

// Fail returns a *Failure with a formatted text. The model reads the text
// unchanged.
func Fail(format string, args ...any) error { return &Failure{fmt.Sprintf(format, args...)} }

// A Defect is a bug in a tool that showed as a panic. It has the panic value
// and the stack for the operator; the model reads only that the call failed.
type Defect struct {
	Value any
	Stack []byte
}

// Error returns the panic value as text, without the stack.
func (d *Defect) Error() string { return fmt.Sprint(d.Value) }

// Unwrap returns the panic value if it is an error, and otherwise nil.
func (d *Defect) Unwrap() error {
	err, _ := d.Value.(error)
	return err
}

// recoverDefect recovers a panic and stores it in err as a *Defect. It must be deferred
// directly by the function that may panic.
func recoverDefect(err *error) {
	if v := recover(); v != nil {
		*err = &Defect{Value: v, Stack: debug.Stack()}
	}
}

// A Denied reports that a rule refused a permission, or that no person was
// available to decide. It matches ErrDenied. A tool returns it unchanged, and
// the call ends as DeniedByRule.
type Denied struct {
	Action   string
	Resource string
	// Rule is the rule that decided. Zero: no rule decided.
	Rule Rule
	// Reason is the reason for a denial without a rule. It is set if Rule is zero.
	Reason string
}

// Error returns the text that the model reads.
func (d *Denied) Error() string {
	text := "Permission denied: " + d.Action + " " + d.Resource
	if d.Reason != "" {
		text += " (" + d.Reason + ")"
	}
	return text
}

// Is reports whether target is ErrDenied.
func (d *Denied) Is(target error) bool { return target == ErrDenied }

// A Declined reports that a person refused a permission. It matches
// ErrDeclined. A tool returns it unchanged, and the call ends as
// DeclinedByUser.
type Declined struct {
	// Feedback is the person's text for the model. It may be empty; the run
	// then stops.
	Feedback string
}

// Error returns the feedback of the person. Without feedback it returns the
// text of ErrDeclined.
func (d *Declined) Error() string {
	if d.Feedback == "" {
		return ErrDeclined.Error()
	}
	return d.Feedback
}

// Is reports whether target is ErrDeclined.
func (d *Declined) Is(target error) bool { return target == ErrDeclined }

// An Interruption is the reason why a call was interrupted. It is an error, so
// that it can be the cause of a cancelled context, and matches ErrInterrupted.
// The zero Interruption is not valid.
type Interruption uint8

// The interruptions.
const (
	// ByUser means that a person cancelled the call.
	ByUser Interruption = iota + 1
	// ByShutdown means that the process is shutting down.
	ByShutdown
	// Superseded means that another run replaced the run of the call.
	Superseded
	// ByDeadline means that the time of the call ran out.
	ByDeadline
)

var interruptions = enumNames[Interruption]{"", "user", "shutdown", "superseded", "deadline"}

// String returns the name of the constant, as events and the CLI write it;
// "?N" for a value N outside the set.
func (i Interruption) String() string { return interruptions.name(i) }

// MarshalText returns the text of String, or an ErrBadWord for a value outside
// the set.
func (i Interruption) MarshalText() ([]byte, error) { return interruptions.marshal(i) }

// UnmarshalText accepts the texts of String, and the empty text for zero. It
// returns an ErrBadWord for any other text.
func (i *Interruption) UnmarshalText(text []byte) error { return interruptions.unmarshal(i, text) }

// Error returns "interrupted: " and the reason.
func (i Interruption) Error() string { return "interrupted: " + i.String() }

// Is reports whether target is ErrInterrupted.
func (i Interruption) Is(target error) bool { return target == ErrInterrupted }

// InterruptionOf returns the Interruption in the error chain of cause, the cause of an
// ended context. If the chain has none, it returns ByDeadline for an exceeded deadline
// and ByShutdown for any other cause.
func InterruptionOf(cause error) Interruption {
	if i, ok := errors.AsType[Interruption](cause); ok {
		return i
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return ByDeadline
	}
	return ByShutdown
}

// interrupted returns an ErrInterrupted that wraps the cause of ctx.
func interrupted(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
}
