package main

import (
	"fmt"

	"github.com/settlement-ledger/ledger/runner/engine/shared"

	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/promptline"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/runner"
)

// An app is one execution of the command. It carries all input from outside the
// program: standard streams, environment, clock and randomness.
type app struct {
	*render.Printer           // formats results and owns the standard output and error
	*stores.Opener            // opens the store that --store or the environment names
	in              io.Reader // the standard input

	interrupts *interruptDiversion // passes SIGINT to a prompt line; nil: there can be no prompt line
	console    *promptline.Console // the prompt line; nil: there is none

	noWait bool // a reading command answers from the index as it is

	lease time.Duration // length of this process's lease in a shared store: LEDGER_LEASE
}

// newApp returns an app that prints to p and reads standard input from in. It draws the
// random part of IDs from entropy.
func newApp(p *render.Printer, in, entropy io.Reader) *app {
	return &app{Printer: p, in: in, Opener: &stores.Opener{
		Getenv: p.Variable, Clock: p.Now, Entropy: entropy, NewLogger: p.Logger,
		Waiting: func(w shared.LockWait) { fmt.Fprintf(p.Err, "waiting for %s\n", render.Printable(w.String())) },
	}}
}

// run executes the command line and returns the exit status. It flushes the standard
// output and reports the error, if any, on the standard error. It reports no error, and
// returns [fault.ExitUnread], if the reader of an output closed the pipe.
func (a *app) run(ctx context.Context, args []string) int {
	err := a.settings()
	if err == nil {
		root := a.root()
		root.SetArgs(args)
		var cmd *cobra.Command
		if cmd, err = root.ExecuteContextC(ctx); err != nil && a.Command == "" {
			err = fault.FromCommandLine(cmd.CommandPath(), err)
		}
	}
	if err != nil && a.Command == "" {
		a.Format = formatIn(args, a.Format)
	}
	if flushed := a.Out.Flush(); err == nil && flushed != nil {
		err = flushed
	}
	exit := 0
	if !fault.IsUnread(ctx) {
		exit = a.Report(err)
	}
	if fault.IsUnread(ctx) { // Report itself may find the standard error closed
		return fault.ExitUnread
	}
	return exit
}

// settings sets the defaults of the format, the color mode and the lease. It then sets
// the format, the lease and the timeout from the environment variables that have a
// value. Cobra applies the flags later, so a flag takes precedence.
func (a *app) settings() error {
	a.Format, a.Color = render.AsTable, render.ColorAuto
	a.lease = runner.DefaultLease
	if err := a.duration("LEDGER_LEASE", sessions.MinLease, &a.lease); err != nil {
		return err
	}
	if err := a.duration("LEDGER_PATIENCE", time.Millisecond, &a.Timeout); err != nil {
		return err
	}
	text, ok := a.Env("LEDGER_OUTPUT")
	if !ok || text == "" {
		return nil
	}
	if err := a.Format.Set(text); err != nil {
		return fault.Usage("LEDGER_OUTPUT: %w", err)
	}
	return nil
}

// duration parses the environment variable name and stores the result through the
// pointer to. If the variable is empty, the stored value does not change. A value below
// least is a usage error.
func (a *app) duration(name string, least time.Duration, to *time.Duration) error {
	text := a.Variable(name)
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least {
		return fault.Usage("%s: %q is not a time from %s on, such as 30s", name, text, least)
	}
	*to = d
	return nil
}

// formatIn returns the format that the last valid --output flag in args names. Without
// such a flag it returns the format otherwise. It reads command lines that cobra
// rejected, so that the error is printed in the format that the user asked for.
func formatIn(args []string, otherwise render.Format) render.Format {
	found := otherwise
	for i, arg := range args {
		word, ok := strings.CutPrefix(arg, "--output=")
		if !ok {
			word, ok = strings.CutPrefix(arg, "-o")
		}
		if (arg == "-o" || arg == "--output") && i+1 < len(args) {
			word, ok = args[i+1], true
		}
		if ok && slices.Contains(render.Formats, word) {
			found = render.Format(word)
		}
	}
	return found
}

// The texts of the root command's help. rootHelp follows the generated usage.
const rootLong = `ledger records the tool calls of AI agents as events in an append-only log: the
registered tools, the tools that each turn offered the model, each call and its
end. Every command computes its answer from the log, or from an index that is
filled from it.`

const rootExample = `  ledger demo
  ledger run --script session.json --workspace .
  ledger call ls --open
  ledger import claude-code ~/.claude/projects/*/*.jsonl && ledger verify`

const rootHelp = `
An ID may be shortened to a prefix, or to its end as tables print it
(ses_…4K2P9Q, or 4K2P9Q), if it has one match. @last is the most recent session,
turn or call of the log.

Exit codes:
  0    done
  1    failed
  2    usage: arguments that are not valid, or an id with several matches
  3    verify, replay or session diff found differences, or store check damage
  4    not found: no such store, session, turn, call or output
  5    conflict: the store is in use, or the log contradicts the command
  124  timeout
  130  interrupted
  141  the reader of the output closed the pipe, as head does: no error is written

Environment:
  LEDGER_STORE    the store, if --store is missing; the best place for a password
  LEDGER_NODE     the folder for the outputs and checkpoints of a database's node
  LEDGER_NODE_ADDRESS   the address at which other nodes read those outputs, if it is not the served one
  LEDGER_PATIENCE the timeout of a server that does not answer (10s)
  LEDGER_LEASE    the lease of this process: others declare it dead when it expires (30s)
  LEDGER_OUTPUT   the format, if --output is missing
  TZ, COLUMNS     the zone of times, and the width of tables on a terminal
  NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE, TERM=dumb   as usual

With -o json an error is an object on the standard error:
{"code", "message", "guidance", "recovery_command", "candidates"}.
`

// root returns the root command with all its subcommands and the global flags. Before a
// subcommand runs, root records its path in a.Command and rejects empty filters.
func (a *app) root() *cobra.Command {
	root := a.group("ledger", "An event-sourced ledger for the tool calls of agents")
	root.Long, root.Example = rootLong, rootExample
	root.Version = version()
	root.SetVersionTemplate("ledger {{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.in)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate(helpTemplate)
	root.SetHelpFunc(a.help(root.HelpFunc()))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		f := fault.Usage("%s", fault.NumberError.ReplaceAllString(err.Error(), "not a number: "))
		f.Hint = "see " + cmd.CommandPath() + " --help"
		return f
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.Command, a.NamedByFlag = cmd.CommandPath(), cmd.Flags().Changed("store")
		return emptyFilter(cmd)
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.Named, "store", "", "the store: a folder, or esdb://HOST:PORT or kurrentdb://… (default: LEDGER_STORE, or ledger in the XDG data folder)")
	flags.VarP(&a.Format, "output", "o", "table, json or jsonl")
	flags.Var(&a.Color, "color", "auto, always or never")
	flags.BoolVar(&a.UTC, "utc", false, "print and parse times in UTC instead of the local zone")
	for name, words := range map[string][]string{"output": render.Formats, "color": render.ColorModes} {
		must(root.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	}
	root.AddCommand(a.runCommands()...)
	root.AddCommand(a.sessionCommand(), a.turnCommand(), a.callCommand(), a.searchCommand(), a.fileCommand(), a.statsCommand(), a.permissionCommand(), a.approvalCommand(), a.agentCommand(), a.outputCommand(), a.registryCommand(),
		a.eventCommand(), a.sqlCommand(), a.indexCommand(), a.verifyCommand(), a.importCommand(), a.exportCommand(), a.storeCommand(), a.publishCommand(), a.consumerCommand(),
		a.serveCommand(), a.doctorCommand(), a.versionCommand())
	return root
}

// help wraps show, the help function of cobra, and appends rootHelp for the root command.
func (a *app) help(show func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		show(cmd, args)
		if !cmd.HasParent() {
			_, _ = a.Out.WriteString(rootHelp) // run returns the write error when it flushes
		}
	}
}

// The cobra templates of the help and usage texts. A help text shows the examples before
// the long description.
const (
	helpTemplate = `{{.Short}}.

{{if .HasExample}}Examples:
{{.Example}}

{{end}}{{with .Long}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`
	usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]

Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Global flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
`
)

// group returns a command that contains subcommands and does no work itself. Without an
// argument it shows its help; an unknown subcommand is a usage error.
func (a *app) group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// unknownCommand returns the usage error of an unknown subcommand, and suggests the most
// similar one.
func unknownCommand(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = 2
	f := fault.Usage("unknown command %q for %q", word, cmd.CommandPath())
	f.Hint = "see " + cmd.CommandPath() + " --help"
	if like := cmd.SuggestionsFor(word); len(like) > 0 {
		f.Command = cmd.CommandPath() + " " + like[0]
		f.Hint = "did you mean " + f.Command + "?"
	}
	return f
}

// must panics on an error that only a bug in this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
