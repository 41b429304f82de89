package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/importer"
	"github.com/spf13/cobra"
)

// importCommand returns the command import, which has a subcommand for each format.
func (a *app) importCommand() *cobra.Command {
	return a.group("import", "Import: read the session files of other agents", a.importClaude())
}

// importClaude returns the command import claude-code.
func (a *app) importClaude() *cobra.Command {
	return &cobra.Command{
		Use: "claude-code FILE|FOLDER...", Short: "Read session files of Claude Code as sessions",
		Long: `Read session files of Claude Code as sessions: prompts, replies, calls and how
they ended, settings, hooks and what else surrounds calls, with their own times.
What was offered is recorded as observed, by the names of the tools alone. A file
that was imported before adds only what is new in it. FILE - is the standard
input.

Of a FOLDER all files *.jsonl are read, those in the folders below it too, as in
~/.claude/projects: sessions, and their sub-agents in */subagents/*.jsonl. Files
there that are something else are named and passed over. Links to folders are not
followed.

A sub-agent is a session of its own. It finds the session and the call that began
it in whatever order their files are imported, and one that is both in its own
file and in the progress of that call is one session.`,
		Example: "  ledger import claude-code session.jsonl\n  ledger import claude-code ~/.claude/projects\n" +
			"  ledger import claude-code -o json ~/.claude/projects/*/*.jsonl ~/.claude/projects/*/*/subagents/*.jsonl\n  zcat old.jsonl.gz | ledger import claude-code -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.Usage("no file is named: ledger import claude-code FILE|FOLDER...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return importer.Run(cmd.Context(), importer.Config{Printer: a.Printer, Opener: a.Opener, Input: a.in}, args)
		},
	}
}
