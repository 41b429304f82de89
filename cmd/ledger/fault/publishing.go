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
		{Is: publish.ErrNoConsumer, Exit: ExitNotFound, Code: "not_found", Hint: "ledger consumer ls lists the consumers", Command: "ledger consumer ls"},
		{Is: publish.ErrDifferentJob, Exit: ExitConflict, Code: "conflict", Hint: "choose another --name, or remove the old consumer with ledger consumer forget"},
		{Is: publish.ErrRunning, Exit: ExitConflict, Code: "conflict", Hint: "end the process that runs this consumer, or choose another --name"},
		{Is: publish.ErrTooManyDeadLetters, Exit: ExitFailed, Code: "poisoned", Hint: "list them with ledger consumer show; repair the target, run ledger consumer retry, then this command again"},
		{Is: publish.ErrDamaged, Exit: ExitFailed, Code: "damaged", Hint: "remove the consumer with ledger consumer forget; the next run then publishes every record again"},
		{Is: publish.ErrBadName, Exit: ExitUsage, Code: "usage"},
		{Is: publish.ErrBadTopic, Exit: ExitUsage, Code: "usage"},
		{Is: jetstream.ErrBadURL, Exit: ExitUsage, Code: "usage", Hint: "write a URL of the form nats://[USER:PASSWORD@]HOST[:PORT]"},
		{Is: jsonl.ErrInUse, Exit: ExitConflict, Code: "conflict", Hint: "end the other publisher, or name another file"},
		{Is: jsonl.ErrForeign, Exit: ExitFailed, Code: "foreign_file", Hint: "name a file that does not exist"},
	} {
		if errors.Is(err, k.Is) {
			return k.Fault(err)
		}
	}
	return err
}
