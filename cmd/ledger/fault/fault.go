package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/transcripts"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// The exit codes. The help of the root command tells what they mean.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnverified  = 3
	ExitNotFound    = 4
	ExitConflict    = 5
	exitTimeout     = 124
	ExitInterrupted = 130
	ExitUnread      = 141
)

// An Error is an error that a command reports: the cause, with the exit code, a
// stable code for programs, and a hint for the user.
type Error struct {
	Exit       int
	Code       string // a stable word
	Err        error
	Hint       string   // what to do; may be empty
	Command    string   // a command that helps; may be empty
	Candidates []string // what was perhaps meant
	Quiet      bool     // whoever ended the command knows why
}

// Error says what happened, without the hint.
func (f *Error) Error() string { return f.Err.Error() }

// Unwrap returns what happened.
func (f *Error) Unwrap() error { return f.Err }

// Usage returns the fault of arguments that make no sense.
func Usage(format string, args ...any) *Error {
	return &Error{Exit: ExitUsage, Code: "usage", Err: fmt.Errorf(format, args...)}
}

// NotFound returns the fault of something that is not there.
func NotFound(hint, format string, args ...any) *Error {
	return &Error{Exit: ExitNotFound, Code: "not_found", Err: fmt.Errorf(format, args...), Hint: hint}
}

// NumberError is how the standard library begins what it says of a number.
var NumberError = regexp.MustCompile(`strconv\.[A-Za-z]+: parsing "[^"]*": `)

// FromCommandLine returns an error of reading the command line of a command as a fault.
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

// A Mapping maps the errors that wrap one sentinel to the fault that is reported for
// them.
type Mapping struct {
	Is      error // the sentinel
	Exit    int
	Code    string
	Hint    string // empty: no hint
	Command string // that helps; empty: none
}

// Fault returns err as the fault that m maps it to.
func (m Mapping) Fault(err error) *Error {
	return &Error{Exit: m.Exit, Code: m.Code, Err: err, Hint: m.Hint, Command: m.Command}
}

// mappings are tried in order: the first one whose sentinel an error wraps is used.
var mappings = []Mapping{
	{events.ErrInUse, ExitConflict, "store_in_use", "end that process, or name another store with --store", ""},
	{eventstoredb.ErrBadAddress, ExitUsage, "usage", "a connection string is esdb://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…][?tls=false]; beside those of the client, it has the settings namespace and maxAppend", ""},
	{eventstoredb.ErrBadNamespace, ExitUsage, "usage", "a namespace is letters, digits and underscores: ?namespace=acme", ""},
	{eventstoredb.ErrUnreachable, ExitFailed, "unreachable", "ledger doctor tells how far it is reached, and what stands in between", "ledger doctor"},
	{eventstoredb.ErrUnauthenticated, ExitFailed, "unauthenticated", "check the user and the password of the connection string; special characters are written %XX", ""},
	{eventstoredb.ErrTooOld, ExitFailed, "server_too_old", "use a newer server; ledger doctor tells which version it has", "ledger doctor"},
	{eventstoredb.ErrPreRelease, ExitFailed, "server_prerelease", "use a released version of the server", ""},
	{eventstoredb.ErrForbidden, ExitFailed, "forbidden", "ledger doctor shows which rights are missing, and the event by which an administrator gives them", "ledger doctor"},
	{eventstoredb.ErrRefused, ExitFailed, "refused", "check what the user may do: ledger doctor shows which rights are missing", "ledger doctor"},
	{remote.ErrUnreachable, ExitFailed, "node_unreachable", "start ledger serve at the node that settled it, or run this there", ""},
	{remote.ErrDenied, ExitFailed, "unauthenticated", "give the user and the password of the node in the connection string", ""},
	{server.ErrNotSafe, ExitUsage, "not_safe", "serve at 127.0.0.1, or give --tls-cert, --tls-key and --users", ""},
	{server.ErrBadUsers, ExitUsage, "usage", "a line is NAME:BCRYPT:ROLES; ledger serve user NAME makes one", ""},
	{outputs.ErrInUse, ExitConflict, "store_in_use", "end that process, or name another store with --store", ""},
	{events.ErrTooLarge, ExitFailed, "too_large", "say maxAppend=16MiB in the connection string, if the server takes as much: ledger serve does, and a database from 25.1 on", ""},
	{events.ErrNewerFormat, ExitFailed, "newer_format", "use the program that wrote it, or a newer one", ""},
	{outputs.ErrFormat, ExitFailed, "newer_format", "use the program that wrote it, or a newer one", ""},
	{events.ErrNotAStore, ExitFailed, "not_a_store", "name a store, an empty folder or one that does not exist with --store", ""},
	{embedded.ErrNotABackup, ExitFailed, "not_a_backup", "name the folder that ledger store backup was given", ""},
	{embedded.ErrNotEmpty, ExitConflict, "not_empty", "restore into a new folder: name it with --store", ""},
	{embedded.ErrBadBackup, ExitFailed, "damaged_backup", "restore another backup; the files that are whole lie under files/ by their SHA-256", ""},
	{transcripts.ErrContradicted, ExitConflict, "contradicted", "import the file into another store with --store", ""},
	{transcripts.ErrForeign, ExitFailed, "foreign_file", "name a session file of Claude Code", ""},
	{runner.ErrElsewhere, ExitConflict, "elsewhere", "wait until it is done, or end it; ledger recover ends what it left when its lease has run out", ""},
	{runner.ErrLeaseLost, ExitConflict, "lease_lost", "look at the session: ledger session show @last; ledger resume carries it on", ""},
	{events.ErrConflict, ExitConflict, "conflict", "another program appended at the same time: run the command again", ""},
	{eventstoredb.ErrDeleted, ExitFailed, "deleted", "ledger verify tells which records somebody hid or deleted, and how to have them back while that is possible", "ledger verify"},
	{events.ErrDamaged, ExitFailed, "damaged", "ledger verify lists everything that is damaged", "ledger verify"},
	{outputs.ErrFiles, ExitFailed, "damaged", "ledger store check lists everything that is damaged", "ledger store check"},
	{outputs.ErrPruned, ExitNotFound, "pruned", "", ""},
	{outputs.ErrNotFound, ExitNotFound, "not_found", "ledger call show CALL lists the outputs of a call", ""},
	{outputs.ErrDamaged, ExitFailed, "damaged", "ledger verify lists everything that is damaged", "ledger verify"},
	{domain.ErrBadRef, ExitUsage, "usage", "a reference is output://SETTLEMENT/CHANNEL, as ledger call show prints it", ""},
	{context.DeadlineExceeded, exitTimeout, "timeout", "", ""},
	{domain.ErrInterrupted, ExitInterrupted, "interrupted", "", ""},
	{context.Canceled, ExitInterrupted, "interrupted", "", ""},
	{syscall.ENOSPC, ExitFailed, "disk_full", "free some space; what is on record is whole, and ledger resume carries a session on", ""},
	{fs.ErrNotExist, ExitNotFound, "not_found", "", ""},
	{fs.ErrPermission, ExitFailed, "no_access", "check who owns the file and who may write to it", ""},
}

// Of returns the fault that an error is.
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
	for _, k := range mappings {
		if errors.Is(err, k.Is) {
			return k.Fault(err)
		}
	}
	return &Error{Exit: ExitFailed, Code: "failed", Err: err}
}

// WithHint returns an error as a fault with another hint.
func WithHint(err error, hint string) error {
	f := *Of(err)
	f.Hint = cmp.Or(hint, f.Hint)
	return &f
}

// unread is the cause of a context that ended because an output has no reader. The
// log has it as an interruption by the shutdown of the process.
type unread struct{ domain.Interruption }

// Unwrap returns the interruption.
func (u unread) Unwrap() error { return u.Interruption }

// ErrUnread is the one value of its type.
var ErrUnread = unread{domain.ByShutdown}

// IsUnread reports whether a context ended because an output has no reader.
func IsUnread(ctx context.Context) bool {
	_, ok := errors.AsType[unread](context.Cause(ctx))
	return ok
}
