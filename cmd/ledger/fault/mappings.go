package fault

import (
	"context"
	"io/fs"
	"syscall"

	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
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
)

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
	{transcripts.ErrForeign, ExitFailed, "foreign_file", "import it with the command of its format: ledger import claude-code|codex|opencode|atif", ""},
	{transcripts.ErrNewer, ExitFailed, "newer_format", "update ledger, or write the file with an older version of its program", ""},
	{runner.ErrElsewhere, ExitConflict, "elsewhere", "wait until that process is done, or end it; ledger recover settles its calls after its lease has expired", ""},
	{runner.ErrLeaseLost, ExitConflict, "lease_lost", "read the session with ledger session show @last; ledger resume continues it", ""},
	{runner.ErrBadReply, ExitFailed, "model_bad_reply", "the log has the reply: ledger event ls --kind ReplyRefused; ledger resume @last with the same --model asks again", ""},
	{events.ErrConflict, ExitConflict, "conflict", "another program appended at the same time: run the command again", ""},
	{eventstoredb.ErrDeleted, ExitFailed, "deleted", "ledger verify lists the hidden and deleted records, and how to restore them while that is possible", "ledger verify"},
	{events.ErrDamaged, ExitFailed, "damaged", "ledger verify lists all damage", "ledger verify"},
	{outputs.ErrFiles, ExitFailed, "damaged", "ledger store check lists all damage", "ledger store check"},
	{outputs.ErrPruned, ExitNotFound, "pruned", "", ""},
	{outputs.ErrNotFound, ExitNotFound, "not_found", "ledger call show CALL lists the outputs of a call", ""},
	{outputs.ErrDamaged, ExitFailed, "damaged", "ledger verify lists all damage", "ledger verify"},
	{domain.ErrBadRef, ExitUsage, "usage", "write a reference as ledger call show prints it: output://SETTLEMENT/CHANNEL", ""},
	{resumable.ErrExists, ExitConflict, "exists", "--overwrite replaces it; or name another file with --to", ""},
	{resumable.ErrNotAFile, ExitUsage, "usage", "name a file with --to, or - for the standard output", ""},
	{resumable.ErrOtherContent, ExitConflict, "other_partial", "--restart removes the partial file and begins anew; or name another file with --to", ""},
	{resumable.ErrAltered, ExitConflict, "altered_partial", "--restart removes the partial file and begins anew", ""},
	{resumable.ErrInUse, ExitConflict, "file_in_use", "wait until that process is done, or name another file with --to", ""},
	{resumable.ErrNoSpace, ExitFailed, "disk_full", "free some space and run the command again: it continues", ""},
	{context.DeadlineExceeded, exitTimeout, "timeout", "", ""},
	{domain.ErrInterrupted, ExitInterrupted, "interrupted", "", ""},
	{context.Canceled, ExitInterrupted, "interrupted", "", ""},
	{syscall.ENOSPC, ExitFailed, "disk_full", "free some space; the recorded events are undamaged, and ledger resume continues a session", ""},
	{fs.ErrNotExist, ExitNotFound, "not_found", "", ""},
	{fs.ErrPermission, ExitFailed, "no_access", "check the owner and the permissions of the file", ""},
}
