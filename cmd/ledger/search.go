package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// searchCommand returns the command `ledger search`.
func (a *app) searchCommand() *cobra.Command {
	var filter query.Filter
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Search prompts, replies, inputs of calls and what models read",
		Long: `Search the texts of sessions: prompts, replies, inputs of calls, and the texts that models
read of calls. A text is found if it has the words of TEXT next to each other, in this
order; case, accents and the characters between words do not matter. A * at the end
finds words that begin with the last one. --where 'text ~ "…"' compares characters.
The search reads the first 8,192 bytes of each text; after the rows it says how many
texts are longer.`,
		Example: "  ledger search 'permission denied'\n  ledger search timeo* --session @last\n  ledger search rm --where 'kind = input and text ~ \"rm -rf\"' -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.Usage("one text is needed, in quotes if it has spaces: ledger search \"…\"")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(_ *stores.Store, r *index.Snapshot) error {
				return views.Search(a.Printer, r, args[0], filter)
			})
		},
	}
	a.listFlags(cmd, &filter, query.TextList)
	return a.noWaitFlag(cmd)
}

// fileCommand returns the command group `ledger file`, whose subcommand is history.
func (a *app) fileCommand() *cobra.Command {
	return a.group("file", "Files: what calls did to a path", a.noWaitFlag(a.fileHistory()))
}

// fileHistory returns the command `ledger file history`.
func (a *app) fileHistory() *cobra.Command {
	var filter query.Filter
	var full bool
	cmd := &cobra.Command{
		Use: "history PATH", Short: "Show each call that read, wrote or ran on a path, with its changes",
		Long: `Show each call that read, wrote or ran on a path, or wanted to: its outcome says whether
it did. PATH is absolute, relative to the working directory, a folder for all below it,
or the end of a recorded path; in a PATH with * that is any text. The paths are those
that tools report, and those of inputs: members such as path and file_path, the files
of patches, and the words of shell commands that look like paths. Changes are those of
the inputs of edit, write and apply_patch, and of the like tools of imported sessions.`,
		Example: "  ledger file history src/main.go\n  ledger file history main.go --since 2d --full\n  ledger file history '*.sql' --outcome denied -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.FileHistory(cmd.Context(), a.Printer, s, r, args[0], filter, full)
			})
		},
	}
	a.listFlags(cmd, &filter, query.CallList)
	cmd.Flags().BoolVar(&full, "full", false, "show the full changes")
	return cmd
}
