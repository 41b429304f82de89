package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/maintenance"
	"github.com/spf13/cobra"
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

// storeInfoCommand returns the command ledger store info.
func (a *app) storeInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "info", Short: "Show what a store holds, how large it is and how it grows",
		Example: "  ledger store info\n  ledger store info -o json | jq '.kinds'",
		Long: `Read the headers of all records and show their number and size, by kind, by
category of stream and for the largest sessions; how much came on each of the last
days; how large the folder is and what of it is tables, logs and outputs; and
what file system it is on, with how much of that is free. How the tables lie and how
fast records came is not shown while another process has the folder open.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return maintenance.Info(cmd.Context(), a.Printer, a.Opener)
		},
	}
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return maintenance.Check(cmd.Context(), a.Printer, a.Opener)
		},
	}
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
			return maintenance.Backup(cmd.Context(), a.Printer, a.Opener, args[0])
		},
	}
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return maintenance.Restore(cmd.Context(), a.Printer, a.Opener, args[0])
		},
	}
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return maintenance.Compact(cmd.Context(), a.Printer, a.Opener)
		},
	}
}
