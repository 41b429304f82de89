package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessionexport"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// exportSession returns the command `ledger export session`.
func (a *app) exportSession() *cobra.Command {
	c := sessionexport.Config{Format: sessionexport.HTML}
	cmd := &cobra.Command{
		Use: "session [SESSION...]", Short: "Write sessions as pages, lines or traces",
		Long: `Write sessions in a format for people or for other programs:

  html   one page with timeline, filter, search and diffs, which needs no network
  md     text with headings, in which nothing of the session is markup
  jsonl  one entry on each line, complete
  atif   a trajectory with its subsessions, which ledger run --script replays
  otlp   spans of OpenTelemetry as JSON, by its conventions for generative AI

Keys, tokens, passwords and home folders are hidden by the rules of docs/redaction.md,
and the command says how many; --raw leaves them. Images are not changed. A session
that is still open is written up to its last event, and marked as open.

Without --to the session is written to the standard output. A FILE appears under its
name when it is complete. A FOLDER gets a file for each session, and a run that was
interrupted goes on with those that are missing.`,
		Example: "  ledger export session @last --to session.html\n  ledger export session --since 7d --format jsonl --to sessions/\n" +
			"  ledger export session 4K2P9Q --format jsonl --raw | jq 'select(.calls)'",
		ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				c.IDs = args
				return sessionexport.Run(cmd.Context(), a.Printer, s, r, c)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&c.Format, "format", "the format of the files: html, md, jsonl, atif or otlp")
	flags.StringVar(&c.To, "to", "", "the file, or the folder if it is one or ends with a slash (default: the standard output)")
	flags.BoolVar(&c.Full, "full", false, "whole texts in html and md, not their first 16 KiB; in otlp, the inputs and results of calls")
	flags.BoolVar(&c.Raw, "raw", false, "leave keys, tokens, passwords, home folders and names")
	flags.StringVar(&c.Agent, "agent", "", "only sessions of this agent")
	c.When.AddFlags(cmd, "sessions with an event")
	flags.IntVar(&c.Limit, "limit", 0, "at most this many, the last ones (0: all)")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(sessionexport.Formats, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("agent", a.complete(query.AgentWords)))
	return a.noWaitFlag(cmd)
}
