package fault

import (
	"errors"

	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jetstream"
	"github.com/settlement-ledger/ledger/projections/publish/jsonl"
)

// Publishing maps an error of the packages publish, jetstream and jsonl to a fault. It returns
// any other error unchanged, for Of to map. The table of Of lacks the sentinels of these
// packages.
func Publishing(err error) error {
	for _, k := range []Mapping{
		{Is: publish.ErrNoConsumer, Exit: ExitNotFound, Code: "not_found", Hint: "ledger consumer ls lists them", Command: "ledger consumer ls"},
		{Is: publish.ErrDifferentJob, Exit: ExitConflict, Code: "conflict", Hint: "give it another --name, or let ledger consumer forget remove the old one"},
		{Is: publish.ErrRunning, Exit: ExitConflict, Code: "conflict", Hint: "end the process that runs it, or give this one another --name"},
		{Is: publish.ErrTooManyDeadLetters, Exit: ExitFailed, Code: "poisoned", Hint: "ledger consumer show lists them; mend the target, ledger consumer retry, and run this again"},
		{Is: publish.ErrDamaged, Exit: ExitFailed, Code: "damaged", Hint: "ledger consumer forget removes it; what was published is then published again"},
		{Is: publish.ErrBadName, Exit: ExitUsage, Code: "usage"},
		{Is: publish.ErrBadTopic, Exit: ExitUsage, Code: "usage"},
		{Is: jetstream.ErrBadURL, Exit: ExitUsage, Code: "usage", Hint: "a URL is nats://[USER:PASSWORD@]HOST[:PORT]"},
		{Is: jsonl.ErrInUse, Exit: ExitConflict, Code: "conflict", Hint: "end the other publisher, or name another file"},
		{Is: jsonl.ErrForeign, Exit: ExitFailed, Code: "foreign_file", Hint: "name a file that does not exist"},
	} {
		if errors.Is(err, k.Is) {
			return k.Fault(err)
		}
	}
	return err
}
