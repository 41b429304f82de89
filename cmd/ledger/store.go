package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// storeCommand returns the group ledger store.
func (a *app) storeCommand() *cobra.Command {
	cmd := a.group("store", "Look after a store: its size, its health, its backups",
		a.storeInfoCommand(),
		a.storeCheckCommand(),
		a.storeBackupCommand(),
		a.storeRestoreCommand(),
		a.storeCompactCommand(),
		a.storeCopyCommand(),
		a.newStoreBench(),
	)
	cmd.Example = `  ledger store info
  ledger store check
  ledger store backup /mnt/backup/ledger
  ledger store restore /mnt/backup/ledger --store ~/ledger-restored
  ledger store bench`
	return cmd
}

// A damageRow is one finding of ledger store check.
type damageRow struct {
	Part     string           `json:"part"`     // log or outputs
	File     *string          `json:"file"`     // relative to the folder of the store
	Offset   *int64           `json:"offset"`   // of the first damaged byte of the file, from 0
	Position *events.Position `json:"position"` // of the damaged record, or of the first of several
	Through  *events.Position `json:"through"`  // of the last of consecutive records with the same damage
	Stream   *events.Stream   `json:"stream"`
	Revision *events.Revision `json:"revision"`
	Output   *string          `json:"output"` // the reference of the damaged or missing output
	Detail   string           `json:"detail"`
}

// offsetOf converts the offset of a finding, which counts from 1 with 0 for no
// offset, to one that counts from 0.
func offsetOf(from1 int64) *int64 {
	if from1 <= 0 {
		return nil
	}
	from1--
	return &from1
}

// A checkup is the JSON result of ledger store check: the amount of data that was
// read, and the findings.
type checkup struct {
	Store       string           `json:"store"`
	Records     uint64           `json:"records"`
	Streams     int              `json:"streams"`
	Checkpoints int              `json:"checkpoints"`
	Outputs     int              `json:"outputs"`
	Files       int              `json:"files"`
	Bytes       int64            `json:"bytes"`
	End         *events.Position `json:"end"`    // of the last record
	Digest      *string          `json:"digest"` // of all records; null if a record could not be read
	Opened      bool             `json:"opened"` // the records could be read; false: only the files were checked
	Closed      bool             `json:"closed"` // the last process closed the store in order
	Locked      bool             `json:"locked"` // the check held the lock, so that no process wrote meanwhile
	Damages     []damageRow      `json:"damages"`
}

// storeCheckCommand returns the command ledger store check.
func (a *app) storeCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Read everything in a store and list what is damaged; exit 3 if anything is",
		Example: "  ledger store check\n  ledger store check --store /mnt/old/ledger\n  ledger store check -o json | jq '.damages[] | .position'",
		Long: `Read every file of a store that nobody has open, and change nothing: the sums of
all blocks of all files, every record, the index against the records and the
records against the index, the order of positions and revisions, checkpoints, and
every kept output against its digest.

What is damaged is listed with its file and its place, and the records and the
outputs that it takes along; reading goes on behind it. A store that does not
open is checked as far as its files go, also on a disk that cannot be written to.

ledger verify checks what the records say; this checks that they are what was
written.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.storeCheck(cmd.Context()) },
	}
}

// storeCheck checks the store and prints the findings. Any finding is a fault.
func (a *app) storeCheck(ctx context.Context) error {
	dir, err := a.presentStore()
	if err != nil {
		return err
	}
	c, err := a.checkAt(ctx, dir)
	if err != nil {
		return err
	}
	if err := a.Object(c, func() { a.checkPage(c) }); err != nil || len(c.Damages) == 0 {
		return err
	}
	return &fault.Error{
		Exit: fault.ExitUnverified, Code: "damaged", Err: fmt.Errorf("check %s: %s", dir, render.Count(len(c.Damages), "damage")),
		Hint: "keep a copy of the folder as it is, and restore the last backup beside it: ledger store restore BACKUP --store NEW",
	}
}

// presentStore returns the folder of the store, which must exist.
func (a *app) presentStore() (string, error) {
	dir, err := a.Folder()
	if err == nil && stores.Missing(dir) {
		return "", stores.NoStore(dir)
	}
	return dir, err
}

// checkAt checks the log and the outputs of the store in dir, and that every output
// that a record names exists. Damage is in the result; an error means that the check
// itself could not run to its end.
func (a *app) checkAt(ctx context.Context, dir string) (*checkup, error) {
	c := &checkup{Store: dir, Damages: []damageRow{}}
	progress := a.Progress()
	defer progress.End()
	named := engine.NewNamedOutputs()
	log, err := embedded.Check(ctx, dir, func(f embedded.Finding) {
		c.Damages = append(c.Damages, damageRow{
			Part: "log", File: render.OrNull(f.File), Offset: offsetOf(f.Offset), Position: render.OrNull(f.Position), Through: render.OrNull(f.Through),
			Stream: render.OrNull(f.Stream), Revision: render.OrNull(f.Revision), Detail: f.Detail,
		})
	}, embedded.CheckOptions{Checkpoint: checkpointFault, Record: named.Add, Progress: progress.Check})
	if err != nil {
		return nil, err
	}
	c.Records, c.Streams, c.Checkpoints, c.End, c.Digest = log.Records, log.Streams, log.Checkpoints, render.OrNull(log.End), render.OrNull(log.Digest)
	c.Files, c.Bytes, c.Opened, c.Closed, c.Locked = log.Files, log.Bytes, log.Opened, log.Closed, log.Locked
	kept, err := outputs.Check(ctx, filepath.Join(dir, stores.OutputsName), nil, func(f outputs.Corruption) {
		row := damageRow{Part: stores.OutputsName, Offset: offsetOf(f.Offset), Detail: f.Detail}
		if f.File != "" {
			row.File = render.OrNull(stores.OutputsName + "/" + f.File)
		}
		if !f.Ref.Settlement().IsZero() {
			row.Output = render.OrNull(f.Ref.String())
		}
		c.Damages = append(c.Damages, row)
	}, func(bytes, total int64) { progress.Bytes("outputs", bytes, total) })
	if err != nil {
		return nil, err
	}
	known, err := outputs.Inventory(ctx, filepath.Join(dir, stores.OutputsName), nil)
	if err != nil && kept.Opened {
		return c, context.Cause(ctx) // the findings already list unreadable outputs
	}
	for _, lost := range named.Missing(known) {
		c.Damages = append(c.Damages, damageRow{Part: stores.OutputsName, Output: render.OrNull(lost.Ref.String()), Stream: render.OrNull(lost.Stream), Detail: lost.Reason})
	}
	c.Outputs, c.Files, c.Bytes = kept.Outputs, c.Files+kept.Files, c.Bytes+kept.Bytes
	return c, nil
}

// checkpointFault returns the damage of a checkpoint, or nil. The checkpoints of
// consumers, of bus groups, of persistent subscriptions and of the store itself only
// have to be JSON; any other checkpoint must be that of a view.
func checkpointFault(name string, data []byte) error {
	for _, other := range []string{"publish", "bus/", "group/", "store/"} {
		if !strings.HasPrefix(name, other) {
			continue
		}
		if len(data) > 0 && !json.Valid(data) {
			return errors.New("it is not JSON")
		}
		return nil
	}
	return projections.CheckpointFault(data)
}

// checkPage prints a checkup for a person.
func (a *app) checkPage(c *checkup) {
	t := render.Table{Head: []string{"~DAMAGED", "?>OFFSET", ">POSITION", "?>THROUGH", "~STREAM", "?>REVISION", "~OUTPUT", "~DETAIL"}}
	for _, d := range c.Damages {
		file, offset, stream, revision := d.Part, "", "", ""
		if d.File != nil {
			file = *d.File
		}
		if d.Offset != nil {
			offset = fmt.Sprint(*d.Offset)
		}
		if d.Stream != nil {
			stream = render.OneLine(string(*d.Stream), 40)
		}
		if d.Revision != nil {
			revision = fmt.Sprint(*d.Revision)
		}
		t.Add(a.Styled(render.Red, file), offset, render.StringOf(d.Position), render.StringOf(d.Through), stream, revision, render.ValueOf(d.Output), render.OneLine(d.Detail, 160))
	}
	if len(t.Rows) > 0 {
		a.Table(t)
		a.Line("")
	}
	a.Line("%s in %s, %s and %s read: %s.", render.Count(int(c.Records), "record"), render.Count(c.Streams, "stream"), render.Count(c.Checkpoints, "checkpoint"),
		render.Count(c.Outputs, "output"), render.Count(c.Files, "file")+" of "+render.Bytes(c.Bytes))
	if !c.Opened {
		a.Line("The records could not be read: the database does not open. Its files were looked at.")
	}
	if !c.Closed {
		a.Line("The store was not closed in order: that nothing is missing at its end is not proven.")
	}
	if !c.Locked {
		a.Line("The lock of the folder is missing or may not be read: a process may have written meanwhile.")
	}
	if c.Digest != nil {
		a.Line("Digest to position %s: %s", render.StringOf(c.End), *c.Digest)
	}
	if len(c.Damages) == 0 {
		a.Line("%s", a.Styled(render.Green, "✓ everything is as it was written"))
		return
	}
	a.Line("%s", a.Styled(render.Red, "✗ "+render.Count(len(c.Damages), "damage")))
}

// A backupRow is the JSON result of ledger store backup and restore.
type backupRow struct {
	Backup   string           `json:"backup"`
	Store    string           `json:"store"`
	Position events.Position  `json:"position"` // of the last record in the backup
	Records  uint64           `json:"records"`
	Digest   string           `json:"digest"`
	Made     render.Timestamp `json:"made"`
	Files    int              `json:"files"`
	Bytes    int64            `json:"bytes"`
	Written  writtenRow       `json:"written"` // the part that this run wrote; the rest was there
	Missing  []string         `json:"missing"` // outputs that records name and the store does not hold
}

// A writtenRow is the number and the size of the files that a backup wrote.
type writtenRow struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// backupRowOf returns the row of a backup in dir of the store named store.
func backupRowOf(dir, store string, b embedded.Backup, w embedded.Written) backupRow {
	return backupRow{dir, store, b.Position, b.Records, b.Digest, render.Timestamp(b.Made), len(b.Files), b.Bytes(), writtenRow{w.Files, w.Bytes}, append([]string{}, b.Missing...)}
}

// storeBackupCommand returns the command ledger store backup.
func (a *app) storeBackupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup DIR", Short: "Copy a store into a folder, the second time only what is not there yet",
		Example: "  ledger store backup /mnt/backup/ledger\n  ledger store backup /mnt/backup/ledger -o json | jq -r .digest",
		Long: `Copy the records and the outputs of one moment into a folder: an empty one, one
that does not exist, or an earlier backup of this store, of which the files that
are still needed stay and are not written again; an eighth of them is read again
each time, and what rotted is written again. Every record is read back before the
backup counts, and a backup in the folder is never replaced by one that lacks
records or outputs that it holds. Until then the earlier backup in the folder stays as it is,
also if this one is interrupted.

Where ledger serve has the store open it makes the backup, and goes on serving;
any other program does so with the Backup method of package embedded.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.storeBackup(cmd.Context(), args[0])
		},
	}
}

// storeBackup backs the store up into dir and prints the result.
func (a *app) storeBackup(ctx context.Context, dir string) error {
	if _, err := a.Folder(); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return a.Write(ctx, func(s *stores.Store) error {
		row, err := backUp(ctx, s, dir)
		if err != nil {
			return err
		}
		return a.Object(row, func() {
			a.Line("%s to position %s, %s of %s; %s of %s written.", render.Count(int(row.Records), "record"), row.Position,
				render.Count(row.Files, "file"), render.Bytes(row.Bytes), render.Count(row.Written.Files, "file"), render.Bytes(row.Written.Bytes))
			a.Line("Digest: %s", row.Digest)
			if len(row.Missing) > 0 {
				a.Line("%s", a.Styled(render.Red, "✗ "+render.Count(len(row.Missing), "output")+" that the records name, not in the store: ledger store check lists them"))
			}
		})
	})
}

// backUp makes a backup of a folder. If another process serves the folder, it asks
// that process to make the backup.
func backUp(ctx context.Context, s *stores.Store, dir string) (backupRow, error) {
	if s.Sharing == nil {
		return backupRow{}, fault.Usage("a backup is of a folder: %s is not one", s.Name)
	}
	made, err := s.Sharing.Backup(ctx, dir)
	return backupRowOf(dir, s.Name, made.Backup, made.Written), err
}

// storeRestoreCommand returns the command ledger store restore.
func (a *app) storeRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use: "restore BACKUP", Short: "Make a store of a backup, in a new folder, and check it",
		Example: "  ledger store restore /mnt/backup/ledger --store ~/ledger-restored\n  ledger store restore /mnt/backup/ledger && ledger verify",
		Long: `Put the files of a backup into the folder of the store, which must be empty or not
exist, and hold each to its sum, the records to the digest of the backup, and the
outputs to theirs. A backup that is damaged names the file and leaves no store.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.storeRestore(cmd.Context(), args[0]) },
	}
}

// storeRestore restores a backup into the folder of the store and checks the result.
// Damage that the backup itself contains is a fault; the store remains.
func (a *app) storeRestore(ctx context.Context, backup string) error {
	dir, err := a.Folder()
	if err != nil {
		return err
	}
	made, err := embedded.Restore(ctx, backup, dir, nil)
	if err != nil {
		return err
	}
	c, err := a.checkAt(ctx, dir)
	if err != nil {
		return err
	}
	if len(c.Damages) == 0 { // a damaged store may not open; its findings are printed
		s, err := a.OpenSharedFolder(ctx, dir)
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			return err
		}
	}
	row := backupRowOf(backup, dir, made, embedded.Written{Files: len(made.Files), Bytes: made.Bytes()})
	err = a.Object(row, func() {
		a.Line("%s to position %s, from a backup of %s.", render.Count(int(row.Records), "record"), row.Position, a.LongTime(made.Made))
		a.Line("Digest: %s", row.Digest)
		if len(c.Damages) > 0 {
			a.checkPage(c)
		}
	})
	if err == nil && len(c.Damages) > 0 {
		return &fault.Error{
			Exit: fault.ExitUnverified, Code: "damaged", Err: fmt.Errorf("restore %s: %s, which the backup has as well", dir, render.Count(len(c.Damages), "damage")),
			Hint: "ledger store check lists them",
		}
	}
	return err
}

// storeCompactCommand returns the command ledger store compact.
func (a *app) storeCompactCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compact", Short: "Rewrite a store where that gives back space",
		Example: "  ledger store compact\n  ledger store compact -o json | jq '.before - .after'",
		Long: `Rewrite the records and the outputs where that takes less room or fewer reads, and
remove what a backup that was killed left. Nothing of the log is removed: the
space is that of outputs that were pruned, and of what Pebble keeps twice. No other
process may work in the store meanwhile: while one has the folder open, or is on
record as alive, compact is refused.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.storeCompact(cmd.Context()) },
	}
}

// storeCompact compacts the store and prints its size before and after.
func (a *app) storeCompact(ctx context.Context) error {
	dir, err := a.presentStore()
	if err != nil {
		return err
	}
	before, err := folderSize(dir)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := a.compactAt(ctx, dir); err != nil {
		return err
	}
	after, err := folderSize(dir)
	if err != nil {
		return err
	}
	row := struct {
		Store   string  `json:"store"`
		Before  int64   `json:"before"`
		After   int64   `json:"after"`
		Seconds float64 `json:"seconds"`
	}{dir, before, after, time.Since(begun).Seconds()}
	return a.Object(row, func() { a.Line("%s before, %s after.", render.Bytes(before), render.Bytes(after)) })
}

// compactAt opens the store in dir exclusively and compacts it. It refuses while a
// process with a valid lease is on record: that process could not renew its lease
// meanwhile.
func (a *app) compactAt(ctx context.Context, dir string) (err error) {
	s, err := a.OpenFolder(ctx, dir, storedir.Owner{Command: a.Command})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	lives, err := stores.Current(ctx, s, runner.Processes())
	if err != nil {
		return err
	}
	var alive []string
	for _, p := range s.Judge(lives, a.Now()).Living {
		alive = append(alive, fmt.Sprintf("process %d (%s on %s, its lease runs until %s)", p.PID, p.Program, p.Host, p.Until.UTC().Format(time.RFC3339)))
	}
	if len(alive) > 0 {
		return fault.WithHint(fmt.Errorf("compact %s: %w by %s", dir, events.ErrInUse, strings.Join(alive, ", ")), "end these processes, or wait until their leases have run out")
	}
	return errors.Join(s.Folder.Log.Compact(ctx), s.Folder.Outputs.Compact(ctx))
}
