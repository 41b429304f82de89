package main

import (
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
	"github.com/settlement-ledger/ledger/cmd/ledger/storefile"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/tables"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// exportCommand returns the command group `ledger export`.
func (a *app) exportCommand() *cobra.Command {
	return a.group("export", "Export: write sessions, tables, or the whole store, to files", a.exportSession(), a.exportTable("calls"), a.exportTable("turns"), a.exportTable("registrations"), a.exportStore())
}

// exportFlags adds the flags of an export to a file to cmd: --to, --overwrite and --restart.
func exportFlags(cmd *cobra.Command, to *string, o *resumable.Options) {
	flags := cmd.Flags()
	flags.StringVar(to, "to", "-", "the file to write; - is the standard output, which cannot be continued")
	flags.BoolVar(&o.Overwrite, "overwrite", false, "replace an existing file")
	flags.BoolVar(&o.Restart, "restart", false, "remove the partial file of an interrupted export, and begin anew")
	must(cmd.MarkFlagFilename("to"))
}

// exportTable returns the command `ledger export NAME` of a table of package tables.
func (a *app) exportTable(name string) *cobra.Command {
	var filter tables.Filter
	var c tables.Config
	var raw bool
	cmd := &cobra.Command{
		Use: name, Short: "Write a table of " + name + " in Parquet, CSV or JSON lines",
		Long: `Write the rows that the flags select in Parquet, CSV or JSON lines, by --format or the
end of FILE. docs/formats.md lists the columns. CSV and JSON lines are compressed if FILE
ends with .gz or .zst. A text cell of CSV that a spreadsheet would take for a formula
begins with an apostrophe; Parquet and JSON lines have the exact texts.

The rows are those of the log up to its end when the export begins. FILE appears under
its name when it is complete; until then there are FILE.partial and
FILE.partial.progress. The same command continues an interrupted export.

Keys, tokens, passwords and home folders are hidden by the rules of docs/redaction.md;
--raw leaves them.`,
		Example: strings.ReplaceAll("  ledger export NAME --to NAME.parquet\n  ledger export NAME --session @last --format csv > NAME.csv\n  ledger export NAME --since 2d --to NAME.jsonl.zst", "NAME", name),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Printer = a.Printer
			if !raw {
				c.Hide = func(text string) string { return redaction.New().Text(text) }
			}
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return tables.Export(cmd.Context(), c, s, r, name, filter)
			})
		},
	}
	exportFlags(cmd, &c.To, &c.Options)
	flags := cmd.Flags()
	flags.StringVar(&c.Format, "format", "", strings.Join(tables.Formats, ", "))
	flags.StringVar(&filter.Session, "session", "", "only rows of this session")
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(tables.Formats, cobra.ShellCompDirectiveNoFileComp)))
	if name != "turns" {
		flags.StringVar(&filter.Tool, "tool", "", "only rows of this tool")
		must(cmd.RegisterFlagCompletionFunc("tool", a.complete(query.ToolWords)))
	}
	if name == "registrations" {
		flags.StringVar(&filter.Location, "location", "", "only rows of this location (a folder)")
		must(cmd.MarkFlagDirname("location"))
	} else {
		flags.StringVar(&filter.Agent, "agent", "", "only rows of this agent")
		must(cmd.RegisterFlagCompletionFunc("agent", a.complete(query.AgentWords)))
	}
	if name == "calls" {
		flags.StringSliceVar(&filter.Outcomes, "outcome", nil, "only calls with one of these outcomes: "+strings.Join(query.OutcomeWords(), ", "))
		flags.BoolVar(&filter.Open, "open", false, "only calls without an end")
		flags.BoolVar(&c.NoText, "no-text", false, "leave out inputs, texts and details")
		must(cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(query.OutcomeWords(), cobra.ShellCompDirectiveNoFileComp)))
	}
	if name != "registrations" {
		flags.StringVar(&filter.More.Path, "path", "", "only calls that used this path, or turns with such a call")
		flags.StringVar(&filter.More.By, "by", "", "only calls with a request that this decided, or turns with such a call")
		flags.StringVar(&filter.More.Text, "text", "", "only calls with these words in the input or in what the model read, or turns with such a call")
		flags.StringVar(&filter.More.Where, "where", "", "only rows for which this condition holds; see docs/queries.md")
	}
	flags.BoolVar(&raw, "raw", false, "leave keys, tokens, passwords and home folders")
	filter.When.AddFlags(cmd, "those")
	return a.noWaitFlag(cmd)
}

// exportStore returns the command `ledger export store`.
func (a *app) exportStore() *cobra.Command {
	var to, format string
	var raw bool
	var o resumable.Options
	cmd := &cobra.Command{
		Use: "store --raw", Short: "Write all records and outputs as JSON lines, from which import jsonl makes an equal store",
		Long: `Write the whole store as JSON lines: every record of every stream, and every stored
output. ledger import jsonl makes an equal store of them. The export has everything
that the store has, secrets too, and so requires --raw.

It ends at the record that is the last one when it begins, also if other processes
append meanwhile. A FILE that ends with .gz or .zst is compressed. The file appears
under its name when it is complete; until then there are FILE.partial and
FILE.partial.progress. The same command continues an interrupted export.`,
		Example: "  ledger export store --raw --to store.jsonl.zst\n  ledger export store --raw | gzip > store.jsonl.gz\n  ledger import jsonl store.jsonl.zst --store ./copy",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "jsonl" {
				return fault.Usage("--format: %q is not jsonl", format)
			}
			if !raw {
				return fault.WithHint(fault.Usage("an export of the store holds everything, secrets too"), "add --raw if that is intended")
			}
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				return storefile.Export(cmd.Context(), a.Printer, s, to, o)
			})
		},
	}
	exportFlags(cmd, &to, &o)
	cmd.Flags().StringVar(&format, "format", "jsonl", "jsonl")
	cmd.Flags().BoolVar(&raw, "raw", false, "write texts as they are, with the secrets in them")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}
