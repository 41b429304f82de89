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
	"github.com/settlement-ledger/ledger/events/embedded/backup"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/transcripts"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// The exit codes, which ledger --help lists. Exit code 0 is success. They are stable.
const (
	// ExitFailed is a general failure.
	ExitFailed = 1
	// ExitUsage reports invalid arguments, or an ambiguous ID.
	ExitUsage = 2
	// ExitUnverified reports that ledger verify or ledger store check found
	// exceptions or damage.
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

// FromCommandLine maps an error of cobra, which parses the command line, to a usage fault.
// The hint is cobra's suggestion of a similar command if there is one, otherwise the command
// with --help. It returns an error that wraps an Error unchanged.
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

// A Mapping maps each error that wraps one sentinel to the fault that a command reports.
type Mapping struct {
	Is      error  // the sentinel
	Exit    int    // the exit code
	Code    string // the stable word for programs
	Hint    string // advice for the user; may be empty
	Command string // a command line that helps; may be empty
}

// Fault returns the fault of m with the cause err.
func (m Mapping) Fault(err error) *Error {
	return &Error{Exit: m.Exit, Code: m.Code, Err: err, Hint: m.Hint, Command: m.Command}
}

// mappings is the table of Of. Order matters: Of uses the first entry whose sentinel an error
// wraps, and some errors wrap several.
var mappings = []Mapping{
	{events.ErrInUse, ExitConflict, "store_in_use", "end that process, or name another store with --store", ""},
	{eventstoredb.ErrBadAddress, ExitUsage, "usage", "write esdb://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…][?tls=false]; the ledger adds the settings namespace and maxAppend to those of the client", ""},
	{eventstoredb.ErrBadNamespace, ExitUsage, "usage", "write a namespace of letters, digits and underscores: ?namespace=acme", ""},
	{eventstoredb.ErrUnreachable, ExitFailed, "unreachable", "ledger doctor shows which step of the connection fails", "ledger doctor"},
	{eventstoredb.ErrUnauthenticated, ExitFailed, "unauthenticated", "check the user and the password of the connection string; special characters are written %XX", ""},
	{eventstoredb.ErrTooOld, ExitFailed, "server_too_old", "use a newer server; ledger doctor shows its version", "ledger doctor"},
	{eventstoredb.ErrPreRelease, ExitFailed, "server_prerelease", "use a released version of the server", ""},
	{eventstoredb.ErrForbidden, ExitFailed, "forbidden", "ledger doctor shows the missing rights, and the event by which an administrator grants them", "ledger doctor"},
	{eventstoredb.ErrRefused, ExitFailed, "refused", "the error ends with the reason of the server; ledger doctor shows missing rights", "ledger doctor"},
	{remote.ErrUnreachable, ExitFailed, "node_unreachable", "start ledger serve on the machine that settled the call, or run this command there", ""},
	{remote.ErrDenied, ExitFailed, "unauthenticated", "put the user and the password of the node into the connection string", ""},
	{server.ErrNotSafe, ExitUsage, "not_safe", "serve at 127.0.0.1, or set --tls-cert, --tls-key and --users", ""},
	{auth.ErrBadUsers, ExitUsage, "usage", "write lines of NAME:BCRYPT:ROLES; ledger serve user NAME prints one", ""},
	{outputs.ErrInUse, ExitConflict, "store_in_use", "end that process, or name another store with --store", ""},
	{events.ErrTooLarge, ExitFailed, "too_large", "set maxAppend=16MiB in the connection string if the server accepts it: ledger serve does, and a database from version 25.1 on", ""},
	{events.ErrNewerFormat, ExitFailed, "newer_format", "use the version of ledger that wrote the store, or a newer one", ""},
	{outputs.ErrFormat, ExitFailed, "newer_format", "use the version of ledger that wrote the store, or a newer one", ""},
	{events.ErrNotAStore, ExitFailed, "not_a_store", "name a store, an empty folder or a new folder with --store", ""},
	{backup.ErrNotABackup, ExitFailed, "not_a_backup", "name the folder that ledger store backup wrote to", ""},
	{backup.ErrNotEmpty, ExitConflict, "not_empty", "restore into a new folder: name it with --store", ""},
	{backup.ErrBadBackup, ExitFailed, "damaged_backup", "restore another backup; the undamaged files are in files/, named by their SHA-256", ""},
	{transcripts.ErrContradicted, ExitConflict, "contradicted", "import the file into another store with --store", ""},
	{transcripts.ErrForeign, ExitFailed, "foreign_file", "name a session file of Claude Code", ""},
	{runner.ErrElsewhere, ExitConflict, "elsewhere", "wait until that process is done, or end it; ledger recover settles its calls after its lease has expired", ""},
	{runner.ErrLeaseLost, ExitConflict, "lease_lost", "read the session with ledger session show @last; ledger resume continues it", ""},
	{events.ErrConflict, ExitConflict, "conflict", "another program appended at the same time: run the command again", ""},
	{eventstoredb.ErrDeleted, ExitFailed, "deleted", "ledger verify lists the hidden and deleted records, and how to restore them while that is possible", "ledger verify"},
	{events.ErrDamaged, ExitFailed, "damaged", "ledger verify lists all damage", "ledger verify"},
	{outputs.ErrFiles, ExitFailed, "damaged", "ledger store check lists all damage", "ledger store check"},
	{outputs.ErrPruned, ExitNotFound, "pruned", "", ""},
	{outputs.ErrNotFound, ExitNotFound, "not_found", "ledger call show CALL lists the outputs of a call", ""},
	{outputs.ErrDamaged, ExitFailed, "damaged", "ledger verify lists all damage", "ledger verify"},
	{domain.ErrBadRef, ExitUsage, "usage", "write a reference as ledger call show prints it: output://SETTLEMENT/CHANNEL", ""},
	{context.DeadlineExceeded, exitTimeout, "timeout", "", ""},
	{domain.ErrInterrupted, ExitInterrupted, "interrupted", "", ""},
	{context.Canceled, ExitInterrupted, "interrupted", "", ""},
	{syscall.ENOSPC, ExitFailed, "disk_full", "free some space; the recorded events are undamaged, and ledger resume continues a session", ""},
	{fs.ErrNotExist, ExitNotFound, "not_found", "", ""},
	{fs.ErrPermission, ExitFailed, "no_access", "check the owner and the permissions of the file", ""},
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
	for _, k := range mappings {
		if errors.Is(err, k.Is) {
			return k.Fault(err)
		}
	}
	return &Error{Exit: ExitFailed, Code: "failed", Err: err}
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
