package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/importer"
	"github.com/spf13/cobra"
)

// importCommand returns the command group `ledger import`, which has a subcommand for
// each format.
func (a *app) importCommand() *cobra.Command {
	return a.group("import", "Import: read the session files of other agents, and exports of stores", a.importClaude(), a.importJSONLines())
}

// importClaude returns the command `ledger import claude-code`.
func (a *app) importClaude() *cobra.Command {
	return &cobra.Command{
		Use: "claude-code FILE|FOLDER...", Short: "Read session files of Claude Code as sessions",
		Long: `Import session files of Claude Code as sessions: prompts, replies, calls with their
outcomes, settings, hooks and commands, with the times of the file. Offers are
recorded as observed, by tool name only, because the files hold no schemas. A file
that was imported before adds only its new records. FILE - is the standard input.

Of a FOLDER, such as ~/.claude/projects, the command reads all files *.jsonl in it
and in the folders below: sessions, and their sub-agents in */subagents/*.jsonl. It
lists and skips files of other formats there. It does not follow links to folders.

A sub-agent is a session of its own, linked to the session and the call that started
it, in whichever order the files are imported. A sub-agent that is both in its own
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
