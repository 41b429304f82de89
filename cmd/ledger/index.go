package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/indexing"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// sqlCommand returns the command `ledger sql`.
func (a *app) sqlCommand() *cobra.Command {
	var opts indexing.Options
	cmd := &cobra.Command{
		Use: "sql STATEMENT", Short: "Query the index of the store with SQL",
		Long: `Run one SQL statement over the index, a SQLite database that is filled from the log,
and print its rows: as a table, with -o json or -o jsonl as objects, or with --csv.
The index first reads the events that it does not have yet. A statement can only
read. docs/schema.md describes the tables; ledger index status prints the path of the
database, which other programs can read too.`,
		Example: `  ledger sql "SELECT tool, outcome, count(*) FROM calls GROUP BY tool, outcome"
  ledger sql "SELECT session, title, input_tokens FROM sessions ORDER BY number DESC LIMIT 5" -o json
  ledger sql "SELECT kind, session, call FROM texts WHERE id IN (SELECT rowid FROM text_search WHERE text_search MATCH 'timeout')" --csv`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.Usage("one statement is needed, in quotes: ledger sql \"SELECT …\"")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return indexing.SQL(cmd.Context(), a.Printer, a.Opener, args[0], opts)
		},
	}
	cmd.Flags().BoolVar(&opts.NoWait, "no-wait", false, "read the index as it is, and say how far behind the log it is")
	cmd.Flags().BoolVar(&opts.CSV, "csv", false, "print CSV with a line of names")
	return cmd
}

// indexCommand returns the command group `ledger index`, whose subcommands are status and
// rebuild.
func (a *app) indexCommand() *cobra.Command {
	var text, noText bool
	rebuild := &cobra.Command{
		Use: "rebuild", Short: "Fill the index from the beginning of the log",
		Long: `Fill a new index from the beginning of the log, and replace the old one by it. Until
then other commands use the old one. An index of another log, of another version or
with damage is rebuilt by the next command that needs it, without this one.
With --no-text the index has no full text: it takes half of the time and three
quarters of the space, and no statement can search texts. Later fills and rebuilds keep
that until --text.`,
		Example: "  ledger index rebuild\n  ledger index rebuild --no-text",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fill := (*index.Index).Rebuild
			switch {
			case text && noText:
				return fault.Usage("--text and --no-text exclude each other: give one of them")
			case text:
				fill = (*index.Index).RebuildWithText
			case noText:
				fill = (*index.Index).RebuildWithoutText
			}
			return indexing.Rebuild(cmd.Context(), a.Printer, a.Opener, fill)
		},
	}
	rebuild.Flags().BoolVar(&text, "text", false, "the index has full text, also if the old one has not")
	rebuild.Flags().BoolVar(&noText, "no-text", false, "the index has no full text")
	return a.group("index", "Index: the SQLite database that queries read",
		&cobra.Command{
			Use: "status", Short: "Show the path of the index and how far it is",
			Long: `Show the path of the index, its size, its last event, and whether it is current, is
behind the log, or is rebuilt by the next command that needs it. Nothing is changed.`,
			Example: "  ledger index status\n  sqlite3 -readonly \"$(ledger index status -o json | jq -r .path)\"",
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return indexing.Status(cmd.Context(), a.Printer, a.Opener)
			},
		},
		rebuild)
}
