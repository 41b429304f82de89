package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
	"github.com/settlement-ledger/ledger/cmd/ledger/storefile"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/spf13/cobra"
)

// exportCommand returns the command group `ledger export`.
func (a *app) exportCommand() *cobra.Command {
	return a.group("export", "Export: write the whole store to a file", a.exportStore())
}

// exportFlags adds the flags of an export to a file to cmd: --to, --overwrite and --restart.
func exportFlags(cmd *cobra.Command, to *string, o *resumable.Options) {
	flags := cmd.Flags()
	flags.StringVar(to, "to", "-", "the file to write; - is the standard output, which cannot be continued")
	flags.BoolVar(&o.Overwrite, "overwrite", false, "replace an existing file")
	flags.BoolVar(&o.Restart, "restart", false, "remove the partial file of an interrupted export, and begin anew")
	must(cmd.MarkFlagFilename("to"))
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
