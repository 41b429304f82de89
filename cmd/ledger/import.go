package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/importer"
	"github.com/spf13/cobra"
)

// importCommand returns the command group `ledger import`, which has a subcommand for
// each format.
func (a *app) importCommand() *cobra.Command {
	return a.group("import", "Import: read the session files of other agents, and exports of stores", a.importClaude(), a.importCodex(), a.importATIF(), a.importOpencode(), a.importJSONLines())
}

// importClaude returns the command `ledger import claude-code`.
func (a *app) importClaude() *cobra.Command {
	return &cobra.Command{
		Use: "claude-code FILE|FOLDER...", Short: "Read session files of Claude Code as sessions",
		Long: `Import session files of Claude Code as sessions: prompts, replies, calls with their
outcomes, settings, hooks and commands, with the times of the file. Offers are
recorded as observed, by tool name only, because the files hold no schemas. A file
that was imported before adds only its new records. FILE - is the standard input. A file may be compressed with gzip or zstd.

Of a FOLDER, such as ~/.claude/projects, the command reads all files *.jsonl in it
and in the folders below: sessions, and their sub-agents in */subagents/*.jsonl. It
lists and skips files of other formats there. It does not follow links to folders.

A sub-agent is a session of its own, linked to the session and the call that started
it, in whichever order the files are imported. A sub-agent that is both in its own
file and in the progress of that call is one session.`,
		Example: "  ledger import claude-code session.jsonl\n  ledger import claude-code ~/.claude/projects\n" +
			"  ledger import claude-code -o json ~/.claude/projects/*/*.jsonl ~/.claude/projects/*/*/subagents/*.jsonl\n  zcat old.jsonl.gz | ledger import claude-code -",
		Args: importArgs("claude-code"),
		RunE: a.runImport("claude-code"),
	}
}

// importCodex returns the command `ledger import codex`.
func (a *app) importCodex() *cobra.Command {
	return &cobra.Command{
		Use: "codex FILE|FOLDER...", Short: "Read session files of Codex as sessions",
		Long: `Import session files of Codex (rollout-*.jsonl) as sessions: prompts, replies, calls
with their outcomes, approval and sandbox policies, and interruptions, with the times
of the file. Offers are recorded as observed, by tool name only. A file that was
imported before adds only its new records. FILE - is the standard input. A file may be compressed with gzip or zstd.

Of a FOLDER, such as ~/.codex/sessions, the command reads all files *.jsonl in it and
in the folders below. It lists and skips files of other formats there.

A sub-agent is a session of its own, linked to the session and the call that started
it, in whichever order the files are imported. A history that a fork or a sub-agent
repeats from another session is not imported again: import the file of that session.`,
		Example: "  ledger import codex rollout.jsonl\n  ledger import codex ~/.codex/sessions ~/.codex/archived_sessions\n" +
			"  ledger import codex -o json ~/.codex/sessions",
		Args: importArgs("codex"),
		RunE: a.runImport("codex"),
	}
}

// importOpencode returns the command `ledger import opencode`.
func (a *app) importOpencode() *cobra.Command {
	return &cobra.Command{
		Use: "opencode FILE|FOLDER...", Short: "Read sessions of opencode",
		Long: `Import sessions of opencode, with their sub-agents, from one of its containers: the
database opencode.db, the older folder storage, a document of opencode export, or the
lines of opencode run --format json, which have no prompts. A container that was
imported before adds only what is new. The command writes nothing beside the database:
while opencode has it open, it reads a private copy.

FILE - is the standard input, but not for a database. Of a FOLDER, such as
~/.local/share/opencode, the command reads the database and the storage, or else all
files *.db, *.json and *.jsonl in it and in the folders below.`,
		Example: "  ledger import opencode ~/.local/share/opencode\n  opencode export SESSION | ledger import opencode -",
		Args:    importArgs("opencode"),
		RunE:    a.runImport("opencode"),
	}
}

// importATIF returns the command `ledger import atif`.
func (a *app) importATIF() *cobra.Command {
	return &cobra.Command{
		Use: "atif FILE|FOLDER...", Short: "Read ATIF trajectories as sessions",
		Long: `Import documents of the Agent Trajectory Interchange Format, versions 1.0 to 1.8, as
sessions: prompts, replies, calls and results. A result without the ID of its call
belongs to the calls of its step, in order. A document that was imported before adds
only its new steps, and a continued document only the steps that it does not repeat.
FILE - is the standard input. Of a FOLDER the command reads all files *.json in it and
in the folders below, and lists and skips files of other formats.`,
		Example: "  ledger import atif trajectory.json\n  ledger import atif runs/",
		Args:    importArgs("atif"),
		RunE:    a.runImport("atif"),
	}
}

// importArgs returns the check of the arguments of an import of a format: at least one
// file.
func importArgs(format string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fault.Usage("no file is named: ledger import %s FILE|FOLDER...", format)
		}
		return nil
	}
}

// runImport returns the function that imports the named files of a format.
func (a *app) runImport(format string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return importer.Run(cmd.Context(), importer.Config{Printer: a.Printer, Opener: a.Opener, Input: a.in, Format: format}, args)
	}
}
