package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/replaying"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/runner/replay"
	"github.com/spf13/cobra"
)

// replayFlags holds the flags of replay.
type replayFlags struct {
	run   runFlags
	dry   bool
	to    string
	junit string
	tools string
	miss  string
	keep  bool
}

// The values of --tools and --on-miss.
const (
	recordedTools = "recorded"
	realTools     = "real"
	failMiss      = "fail"
)

// replayCommand returns the command `ledger replay`.
func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay [SESSION]", Short: "Run a recorded session again from its tape, and compare; exit 3 if it differs",
		Example: "  ledger replay @last\n  ledger replay 4K2P9Q --dry-run\n  ledger replay @last --dry-run --junit replay.xml\n  ledger replay @last -o json | jq '.differences[]'\n  ledger replay @last --tools real --workspace ./project",
		Long: `replay runs a session again from its record: the replies of the model and the results
of the tools come from the log, and prompts, registrations, closings, decisions and
interruptions happen at their recorded places in the order of the log. No model is
asked, and no tool runs. The runner derives the rest anew: the conversation that the
model is shown, the offer of each turn, the outcome of each call, and the order. Each
difference is printed with both sides. IDs and times are not compared.

The replay is a session of its own, whose origin names the recorded one; the record of
that session is not changed. --to records it in another store, and --dry-run keeps
nothing. Of an imported session the conversation and the outcomes are compared: its
transcript has no offers.

With --tools real the recorded replies meet the built-in tools of today, in a copy of
--workspace (without it, of the recorded folder): each call is the same, its output
differs, or its outcome differs. Paths of the workspace in inputs are those of the copy.
The copy is no sandbox: a command can reach other files. A request for permission gets
the recorded decision, or that of --rules.

With --model a live model gets the recorded prompts and the recorded results of tools,
matched by tool and input. A call that the tape does not have is a miss, or an input
drift if the tape has the tool with another input; it fails, unless --on-miss real runs
the tool in a copy of the workspace. A tool whose definition has changed is a definition
drift. Recorded calls that the model did not ask for are listed.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.tools != recordedTools && f.tools != realTools {
				return fault.Usage("--tools is %q: give %s or %s", f.tools, recordedTools, realTools)
			}
			if f.miss != failMiss && f.miss != realTools {
				return fault.Usage("--on-miss is %q: give %s or %s", f.miss, failMiss, realTools)
			}
			if f.run.models.Model != "" && f.tools == realTools {
				return fault.Usage("--tools real takes the recorded replies, and --model asks for others: give one of them")
			}
			if f.dry && f.to != "" {
				return fault.Usage("--dry-run keeps nothing, and --to names where to keep it: give one of them")
			}
			return a.replaySession(cmd.Context(), f, query.OrLast(args))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.dry, "dry-run", false, "keep no new session")
	flags.StringVar(&f.to, "to", "", "the store of the new session (default: that of the recorded one)")
	flags.StringVar(&f.junit, "junit", "", "write the comparison as a JUnit file")
	flags.StringVar(&f.tools, "tools", recordedTools, "where the results of tools come from: recorded or real")
	flags.StringVar(&f.run.models.Model, "model", "", "a live model to ask, as PROVIDER/MODEL, with the recorded results of tools")
	flags.StringVar(&f.run.models.BaseURL, "base-url", "", "the base URL of the provider, for a compatible server")
	flags.StringVar(&f.run.models.API, "api", "", "the format of an OpenAI-compatible server: chat or responses")
	flags.StringVar(&f.miss, "on-miss", failMiss, "what a call of a live model does that the tape does not have: fail or real")
	flags.StringVar(&f.run.Workspace, "workspace", "", "the folder of which real tools get a copy (default: the recorded one)")
	flags.StringVar(&f.run.rulesFile, "rules", "", "a file of permission rules for real tools (default: the recorded decisions)")
	flags.BoolVar(&f.keep, "keep", false, "keep the copy of the workspace")
	must(cmd.MarkFlagFilename("junit", "xml"))
	must(cmd.MarkFlagFilename("rules"))
	must(cmd.MarkFlagDirname("workspace"))
	must(cmd.RegisterFlagCompletionFunc("on-miss", cobra.FixedCompletions([]string{failMiss, realTools}, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("tools", cobra.FixedCompletions([]string{recordedTools, realTools}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// replaySession replays the session that id identifies, and prints the comparison.
func (a *app) replaySession(ctx context.Context, f replayFlags, id string) error {
	if f.tools == realTools || f.run.models.Model != "" {
		return a.replayInto(ctx, f, func(s *stores.Store, p *sessions.ActiveProcess) error { return a.replayTools(ctx, f, s, id, p) })
	}
	if f.dry {
		return a.Read(ctx, func(s *stores.Store) error {
			return replaying.InMemory(ctx, s, func(to replaying.Target) error { return a.replayTape(ctx, f, s, id, to) })
		})
	}
	return a.replayInto(ctx, f, func(s *stores.Store, p *sessions.ActiveProcess) error {
		return a.replayTape(ctx, f, s, id, replaying.Target{Store: p.Log, Ledger: p.Ledger, Process: p.ID(), Outputs: p.Outputs, Elsewhere: p.Store != s})
	})
}

// replayInto calls use with the store of the recording and a process in the store of the
// replay: the same one, that of --to, or a temporary one.
func (a *app) replayInto(ctx context.Context, f replayFlags, use func(*stores.Store, *sessions.ActiveProcess) error) (err error) {
	if f.dry {
		scratch, err := os.MkdirTemp("", "ledger-replay-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
		f.to = filepath.Join(scratch, "store")
	}
	if f.to == "" {
		return a.launcher().With(ctx, a.Open, func(p *sessions.ActiveProcess) error { return use(p.Store, p) })
	}
	return a.Read(ctx, func(s *stores.Store) error {
		l, other := a.launcher(), *a.Opener
		other.Named, other.NamedByFlag = f.to, true
		l.Opener = &other
		return l.With(ctx, l.OpenOrCreate, func(p *sessions.ActiveProcess) error { return use(s, p) })
	})
}

// replayTape replays the tape of a session into a target.
func (a *app) replayTape(ctx context.Context, f replayFlags, s *stores.Store, id string, to replaying.Target) error {
	session, err := a.recordedSession(ctx, s, id)
	if err != nil {
		return err
	}
	report, err := replaying.Replay(ctx, s, session, to)
	return a.showReplay(f, report, err)
}

// replayTools replays a session with real tools or a live model, in the store of p.
func (a *app) replayTools(ctx context.Context, f replayFlags, s *stores.Store, id string, p *sessions.ActiveProcess) error {
	session, err := a.recordedSession(ctx, s, id)
	if err != nil {
		return err
	}
	o, err := a.realOptions(&f)
	if err != nil {
		return err
	}
	if f.run.models.Model == "" {
		report, err := replaying.ReplayTools(ctx, s, session, p, o)
		return a.showReplay(f, report, err)
	}
	if err := f.run.chooseModel(a); err != nil {
		return err
	}
	o.Provider, o.Steps = f.run.Provider, f.run.Steps
	report, err := replaying.ReplayModel(ctx, s, session, p, o, f.miss == realTools)
	return a.showReplay(f, report, err)
}

// realOptions returns the options of a replay with real tools.
func (a *app) realOptions(f *replayFlags) (o replaying.RealOptions, err error) {
	f.run.Getenv, f.run.ConfigFolder, f.run.StateFolder = a.Getenv, a.ConfigFolder(), a.StateFolder()
	if f.run.Environment, err = environment(nil); err != nil {
		return o, err
	}
	if f.run.Rules, err = loadRules(f.run.rulesFile); err != nil {
		return o, err
	}
	f.run.loadAgents(a)
	return replaying.RealOptions{Setup: f.run.Setup, RulesGiven: f.run.rulesFile != "", Keep: f.keep}, nil
}

// recordedSession returns the session that id identifies, which no process may be running.
func (a *app) recordedSession(ctx context.Context, s *stores.Store, id string) (session domain.SessionID, err error) {
	err = a.answerer().Answer(ctx, s, func(r *index.Snapshot) error {
		found, err := query.Session(r, id)
		session = found.ID
		return err
	})
	if err == nil {
		err = replaying.CheckIdle(ctx, s, session)
	}
	return session, err
}

// showReplay writes and prints a report.
func (a *app) showReplay(f replayFlags, report *replay.Report, err error) error {
	if err != nil {
		return err
	}
	if err := replaying.SaveJUnit(f.junit, report); err != nil {
		return err
	}
	return replaying.Show(a.Printer, report, !f.dry)
}
