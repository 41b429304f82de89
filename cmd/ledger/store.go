package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/maintenance"
	"github.com/spf13/cobra"
)

// storeCommand returns the command group `ledger store`.
func (a *app) storeCommand() *cobra.Command {
	cmd := a.group("store", "Maintain a store: size, checks, backups, copies, benchmark",
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

// storeInfoCommand returns the command `ledger store info`.
func (a *app) storeInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "info", Short: "Show the contents, the size and the growth of a store",
		Example: "  ledger store info\n  ledger store info -o json | jq '.kinds'",
		Long: `Read the headers of all records and show their number and size by kind, by category
of stream and for the largest sessions; the growth of the last days; the size of the
folder by tables, logs and outputs; and the file system with its free space. The
levels of the tables and the append statistics are missing while another process has
the folder open.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return maintenance.Info(cmd.Context(), a.Printer, a.Opener)
		},
	}
}

// storeCheckCommand returns the command `ledger store check`.
func (a *app) storeCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Read every file of a store and list the damage; exit 3 if there is any",
		Example: "  ledger store check\n  ledger store check --store /mnt/old/ledger\n  ledger store check -o json | jq '.damages[] | .position'",
		Long: `Read every file of a store that no process has open, without changing it: the
checksums of all blocks, every record, the index against the records and the records
against the index, the order of positions and revisions, checkpoints, and every
stored output against its digest.

Each damaged place is listed with its file and offset and the affected records and
outputs; the check continues after it. If the store does not open, its files are
checked one by one, also on a read-only disk.

ledger verify checks the laws of the events; store check compares the stored bytes with the written ones.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return maintenance.Check(cmd.Context(), a.Printer, a.Opener)
		},
	}
}

// storeBackupCommand returns the command `ledger store backup`.
func (a *app) storeBackupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup DIR", Short: "Back up a store into a folder; a later backup copies only new files",
		Example: "  ledger store backup /mnt/backup/ledger\n  ledger store backup /mnt/backup/ledger -o json | jq -r .digest",
		Long: `Copy a snapshot of the records and the outputs into a folder: an empty or new one,
or an earlier backup of this store. Files that an earlier backup already has are
not written again; each backup re-reads an eighth of them and replaces damaged ones.
The command reads every record back before it completes the backup. It never
replaces a backup by one that lacks records or outputs of it; the earlier backup
stays valid until the new one is complete, also if this one is interrupted.

If ledger serve has the store open, the server makes the backup and continues to
serve; any other program uses the Backup method of package embedded.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return maintenance.Backup(cmd.Context(), a.Printer, a.Opener, args[0])
		},
	}
}

// storeRestoreCommand returns the command `ledger store restore`.
func (a *app) storeRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use: "restore BACKUP", Short: "Restore a backup into a new folder, and check it",
		Example: "  ledger store restore /mnt/backup/ledger --store ~/ledger-restored\n  ledger store restore /mnt/backup/ledger && ledger verify",
		Long: `Copy the files of a backup into the folder of the store, which must be empty or new,
and check each file against its checksum, the records against the digest of the
backup, and the outputs against theirs. If the backup is damaged, the error names
the file, and no store is left.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return maintenance.Restore(cmd.Context(), a.Printer, a.Opener, args[0])
		},
	}
}

// storeCompactCommand returns the command `ledger store compact`.
func (a *app) storeCompactCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compact", Short: "Compact a store to free disk space",
		Example: "  ledger store compact\n  ledger store compact -o json | jq '.before - .after'",
		Long: `Rewrite the tables of records and outputs where that frees space or saves reads, and
remove temporary files of a killed backup. No event is removed: the freed space
belonged to pruned outputs and to obsolete versions in Pebble. compact is refused
while another process has the folder open or is on record as alive.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return maintenance.Compact(cmd.Context(), a.Printer, a.Opener)
		},
	}
}
