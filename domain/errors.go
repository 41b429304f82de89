package domain

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// The errors of this package. Callers match them with errors.Is.
var (
	ErrBadID         = errors.New("not an ID")
	ErrBadName       = errors.New("not a tool name")
	ErrBadRef        = errors.New("not an output reference")
	ErrBadTool       = errors.New("not a tool")
	ErrBadSchema     = errors.New("schema cannot be honoured")
	ErrInvalidInput  = errors.New("input does not fit the schema")
	ErrInvalidOutput = errors.New("output does not fit the schema")
	ErrInterrupted   = errors.New("interrupted")
	ErrDenied        = errors.New("permission denied")
	ErrDeclined      = errors.New("declined")
	ErrBadWord       = errors.New("not one of the words allowed here")
)

// A Failure is an ending that a tool chose and that the model should read.
// [Fail] makes one.
type Failure struct{ message string }

// Error is what the model reads. It is never blank.
func (f *Failure) Error() string {
	if strings.TrimSpace(f.message) == "" {
		return defaultTexts[Failed]
	}
	return f.message
}

// Fail returns a *Failure. The text is for the model, and nobody else adds to
// it.
func Fail(format string, args ...any) error { return &Failure{fmt.Sprintf(format, args...)} }

// A Defect is a bug in a tool: it panicked. It carries what the panic was
// given and the stack, for the operator.
type Defect struct {
	Value any
	Stack []byte
}

// Error says what the panic was given, without the stack.
func (d *Defect) Error() string { return fmt.Sprint(d.Value) }

// Unwrap returns the error that the panic was given, if it was one.
func (d *Defect) Unwrap() error {
	err, _ := d.Value.(error)
	return err
}

// recoverDefect turns a panic of the function that defers it into a *Defect in err.
func recoverDefect(err *error) {
	if v := recover(); v != nil {
		*err = &Defect{Value: v, Stack: debug.Stack()}
	}
}

// A Denied is the refusal of a permission by a rule, or because there was
// nobody to ask. It is an ErrDenied. A tool returns it as it got it.
type Denied struct {
	Action   string
	Resource string
	Rule     Rule   // zero where no rule decided
	Reason   string // why, where no rule decided; empty otherwise
}

// Error is what the model reads.
func (d *Denied) Error() string {
	text := "Permission denied: " + d.Action + " " + d.Resource
	if d.Reason != "" {
		text += " (" + d.Reason + ")"
	}
	return text
}

// Is reports whether target is ErrDenied.
func (d *Denied) Is(target error) bool { return target == ErrDenied }

// A Declined is the refusal of a permission by a person. It is an
// ErrDeclined. A tool returns it as it got it.
type Declined struct {
	Feedback string // what the person allowsType the model to read; may be empty
}

// Error is the feedback, or that there is none.
func (d *Declined) Error() string {
	if d.Feedback == "" {
		return ErrDeclined.Error()
	}
	return d.Feedback
}

// Is reports whether target is ErrDeclined.
func (d *Declined) Is(target error) bool { return target == ErrDeclined }

// An Interruption says why a call was interrupted. Each is an error, to be the
// cause with which a context is cancelled, and each is an ErrInterrupted. The
// zero Interruption is not valid.
type Interruption uint8

// The interruptions.
const (
	ByUser     Interruption = iota + 1 // a person asked for it
	ByShutdown                         // the process was told to end
	Superseded                         // something else took its place
	ByDeadline                         // its time ran out
)

var interruptions = enumNames[Interruption]{"", "user", "shutdown", "superseded", "deadline"}

func (i Interruption) String() string               { return interruptions.name(i) }
func (i Interruption) MarshalText() ([]byte, error) { return interruptions.marshal(i) }

// UnmarshalText accepts what String gives; the empty text is zero.
func (i *Interruption) UnmarshalText(text []byte) error { return interruptions.unmarshal(i, text) }

// Error says why, in a word.
func (i Interruption) Error() string { return "interrupted: " + i.String() }

// Is reports whether target is ErrInterrupted.
func (i Interruption) Is(target error) bool { return target == ErrInterrupted }

// InterruptionOf returns the Interruption in the chain of a context's cause;
// for any other cause, ByDeadline where a deadline passed and ByShutdown where
// none did.
func InterruptionOf(cause error) Interruption {
	if i, ok := errors.AsType[Interruption](cause); ok {
		return i
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return ByDeadline
	}
	return ByShutdown
}

// interrupted returns an ErrInterrupted with the cause of ctx.
func interrupted(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
}
