package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	exitFailed      = 1
	exitUsage       = 2
	exitUnverified  = 3
	exitNotFound    = 4
	exitConflict    = 5
	exitTimeout     = 124
	exitInterrupted = 130
	exitUnread      = 141
)

// A fault is an error with what whoever typed the command needs to go on.
type fault struct {
	exit       int
	code       string // a stable word
	err        error
	hint       string   // what to do; may be empty
	command    string   // a command that helps; may be empty
	candidates []string // what was perhaps meant
	quiet      bool     // whoever ended the command knows why
}

// Error says what happened, without the hint.
func (f *fault) Error() string { return f.err.Error() }

// Unwrap returns what happened.
func (f *fault) Unwrap() error { return f.err }

// misuse returns the fault of arguments that make no sense.
func misuse(format string, args ...any) *fault {
	return &fault{exit: exitUsage, code: "usage", err: fmt.Errorf(format, args...)}
}

// notFound returns the fault of something that is not there.
func notFound(hint, format string, args ...any) *fault {
	return &fault{exit: exitNotFound, code: "not_found", err: fmt.Errorf(format, args...), hint: hint}
}

// numberError is how the standard library begins what it says of a number.
var numberError = regexp.MustCompile(`strconv\.[A-Za-z]+: parsing "[^"]*": `)

// usage returns an error of reading the command line of a command as a fault.
func usage(command string, err error) error {
	if _, ok := errors.AsType[*fault](err); ok {
		return err
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	f := misuse("%s", text)
	f.hint = "see " + command + " --help"
	if _, like, ok := strings.Cut(err.Error(), "Did you mean this?"); ok {
		f.hint = "did you mean " + strings.Join(strings.Fields(like), " or ") + "?"
	}
	return f
}

// A known says which fault an error is.
type known struct {
	is   error
	exit int
	code string
	hint string

	command string
}

// knowns are looked through in order.
var knowns = []known{
	{events.ErrInUse, exitConflict, "store_in_use", "end that process, or name another store with --store", ""},
	{eventstoredb.ErrBadAddress, exitUsage, "usage", "a connection string is esdb://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…][?tls=false]; beside those of the client, it has the settings namespace and maxAppend", ""},
	{eventstoredb.ErrBadNamespace, exitUsage, "usage", "a namespace is letters, digits and underscores: ?namespace=acme", ""},
	{eventstoredb.ErrUnreachable, exitFailed, "unreachable", "ledger doctor tells how far it is reached, and what stands in between", "ledger doctor"},
	{eventstoredb.ErrUnauthenticated, exitFailed, "unauthenticated", "check the user and the password of the connection string; special characters are written %XX", ""},
	{eventstoredb.ErrTooOld, exitFailed, "server_too_old", "use a newer server; ledger doctor tells which version it has", "ledger doctor"},
	{eventstoredb.ErrPreRelease, exitFailed, "server_prerelease", "use a released version of the server", ""},
	{eventstoredb.ErrForbidden, exitFailed, "forbidden", "ledger doctor shows which rights are missing, and the event by which an administrator gives them", "ledger doctor"},
	{eventstoredb.ErrRefused, exitFailed, "refused", "check what the user may do: ledger doctor shows which rights are missing", "ledger doctor"},
	{remote.ErrUnreachable, exitFailed, "node_unreachable", "start ledger serve at the node that settled it, or run this there", ""},
	{remote.ErrDenied, exitFailed, "unauthenticated", "give the user and the password of the node in the connection string", ""},
	{server.ErrNotSafe, exitUsage, "not_safe", "serve at 127.0.0.1, or give --tls-cert, --tls-key and --users", ""},
	{server.ErrBadUsers, exitUsage, "usage", "a line is NAME:BCRYPT:ROLES; ledger serve user NAME makes one", ""},
	{outputs.ErrInUse, exitConflict, "store_in_use", "end that process, or name another store with --store", ""},
	{events.ErrTooLarge, exitFailed, "too_large", "say maxAppend=16MiB in the connection string, if the server takes as much: ledger serve does, and a database from 25.1 on", ""},
	{events.ErrNewerFormat, exitFailed, "newer_format", "use the program that wrote it, or a newer one", ""},
	{outputs.ErrFormat, exitFailed, "newer_format", "use the program that wrote it, or a newer one", ""},
	{events.ErrNotAStore, exitFailed, "not_a_store", "name a store, an empty folder or one that does not exist with --store", ""},
	{embedded.ErrNotABackup, exitFailed, "not_a_backup", "name the folder that ledger store backup was given", ""},
	{embedded.ErrNotEmpty, exitConflict, "not_empty", "restore into a new folder: name it with --store", ""},
	{embedded.ErrBadBackup, exitFailed, "damaged_backup", "restore another backup; the files that are whole lie under files/ by their SHA-256", ""},
	{transcripts.ErrContradicted, exitConflict, "contradicted", "import the file into another store with --store", ""},
	{transcripts.ErrForeign, exitFailed, "foreign_file", "name a session file of Claude Code", ""},
	{runner.ErrElsewhere, exitConflict, "elsewhere", "wait until it is done, or end it; ledger recover ends what it left when its lease has run out", ""},
	{runner.ErrLeaseLost, exitConflict, "lease_lost", "look at the session: ledger session show @last; ledger resume carries it on", ""},
	{events.ErrConflict, exitConflict, "conflict", "another program appended at the same time: run the command again", ""},
	{eventstoredb.ErrDeleted, exitFailed, "deleted", "ledger verify tells which records somebody hid or deleted, and how to have them back while that is possible", "ledger verify"},
	{events.ErrDamaged, exitFailed, "damaged", "ledger verify lists everything that is damaged", "ledger verify"},
	{outputs.ErrFiles, exitFailed, "damaged", "ledger store check lists everything that is damaged", "ledger store check"},
	{outputs.ErrPruned, exitNotFound, "pruned", "", ""},
	{outputs.ErrNotFound, exitNotFound, "not_found", "ledger call show CALL lists the outputs of a call", ""},
	{outputs.ErrDamaged, exitFailed, "damaged", "ledger verify lists everything that is damaged", "ledger verify"},
	{domain.ErrBadRef, exitUsage, "usage", "a reference is output://SETTLEMENT/CHANNEL, as ledger call show prints it", ""},
	{context.DeadlineExceeded, exitTimeout, "timeout", "", ""},
	{domain.ErrInterrupted, exitInterrupted, "interrupted", "", ""},
	{context.Canceled, exitInterrupted, "interrupted", "", ""},
	{syscall.ENOSPC, exitFailed, "disk_full", "free some space; what is on record is whole, and ledger resume carries a session on", ""},
	{fs.ErrNotExist, exitNotFound, "not_found", "", ""},
	{fs.ErrPermission, exitFailed, "no_access", "check who owns the file and who may write to it", ""},
}

// faultOf returns the fault that an error is.
func faultOf(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if _, ok := errors.AsType[unread](err); ok {
		return &fault{exit: exitUnread, code: "unread", err: err, quiet: true}
	}
	if silent, ok := errors.AsType[*shared.UnresponsiveError](err); ok && silent.Stopped {
		pid := silent.Owner.PID
		hint := fmt.Sprintf("continue that process with fg in its terminal, or with kill -CONT %d, or end it with kill -KILL %d: another process goes on then", pid, pid)
		return &fault{exit: exitConflict, code: "store_in_use", err: err, hint: hint, command: fmt.Sprint("kill -CONT ", pid)}
	}
	for _, k := range knowns {
		if errors.Is(err, k.is) {
			return &fault{exit: k.exit, code: k.code, err: err, hint: k.hint, command: k.command}
		}
	}
	return &fault{exit: exitFailed, code: "failed", err: err}
}

// report tells an error on the standard error and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	f := faultOf(err)
	if !f.quiet {
		a.tell(f)
	}
	return f.exit
}

// tell writes a fault for a person, or as an object for a program.
func (a *app) tell(f *fault) {
	if a.output == asTable {
		fmt.Fprint(a.err, f.text())
		return
	}
	fmt.Fprintln(a.err, string(f.object()))
}

func (f *fault) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "error: %s\n", visible(f.Error()))
	for _, c := range f.candidates {
		fmt.Fprintf(&b, "  %s\n", visible(c))
	}
	if f.hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", visible(f.hint))
	}
	return b.String()
}

func (f *fault) object() []byte {
	object, err := encode(struct {
		Code       string   `json:"code"`
		Message    string   `json:"message"`
		Guidance   *string  `json:"guidance"`
		Command    *string  `json:"recovery_command"`
		Candidates []string `json:"candidates,omitempty"`
	}{f.code, f.Error(), opt(f.hint), opt(f.command), f.candidates})
	if err != nil {
		object = json.RawMessage(`{"code":"failed"}`)
	}
	return object
}

// hinted returns an error as a fault with another hint.
func hinted(err error, hint string) error {
	f := *faultOf(err)
	f.hint = cmp.Or(hint, f.hint)
	return &f
}
