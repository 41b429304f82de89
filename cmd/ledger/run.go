package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/models"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/replaying"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/agents"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

// launcher returns a Launcher with the printer, the opener, the lease and the approver of
// this command.
func (a *app) launcher() *sessions.Launcher {
	return &sessions.Launcher{
		Printer: a.Printer, Opener: a.Opener, Version: version(), Lease: a.lease,
		Terminal: a.terminal, Person: osUser(), InputSummary: views.MainField,
	}
}

// runCommands returns the commands that run sessions or recover them.
func (a *app) runCommands() []*cobra.Command {
	return []*cobra.Command{a.runCommand(), a.resumeCommand(), a.replayCommand(), a.recoverCommand(), a.demoCommand()}
}

// A runFlags holds the flags of run and resume.
type runFlags struct {
	sessions.Setup
	models    models.Config
	script    string   // path of the trajectory
	rulesFile string   // empty: the default rules
	env       []string // names of further variables for bash commands
	attach    []string // paths of images and PDF files of the prompt
	media     []domain.Media

	stepsGiven bool // whether --steps is given
}

// ready checks the values of the flags and reads the files that they name. It sets the
// fields of f.Setup, on which the session runs, except Agents. It returns the trajectory,
// which is also f.Provider.
func (f *runFlags) ready(a *app) (replies *script.Script, err error) {
	if f.ApprovalLife < 0 {
		return nil, fault.Usage("--approval-life is %v: give how long an approval counts, or 0 for one without an end", f.ApprovalLife)
	}
	if f.Steps < 0 {
		return nil, fault.Usage("--steps is %d: give how many replies there may be, or 0 for any number", f.Steps)
	}
	if info, err := os.Stat(f.Workspace); err != nil || !info.IsDir() {
		return nil, fault.WithHint(fmt.Errorf("--workspace: %s is not a folder that can be opened: %w", f.Workspace, cmp.Or(err, fs.ErrInvalid)), "name a folder that exists")
	}
	if f.TaskDepth < 0 {
		return nil, fault.Usage("--task-depth is %d: give how deep subsessions may be, from 1 on", f.TaskDepth)
	}
	if info, err := os.Stat(f.ToolFolder); f.ToolFolder != "" && (err != nil || !info.IsDir()) {
		return nil, fault.WithHint(fmt.Errorf("--tools: %s is not a folder that can be opened: %w", f.ToolFolder, cmp.Or(err, fs.ErrInvalid)), "name a folder of manifests; docs/tools-from-files.md describes them")
	}
	f.Getenv, f.ConfigFolder, f.StateFolder = a.Getenv, a.ConfigFolder(), a.StateFolder()
	if f.Environment, err = environment(f.env); err != nil {
		return nil, err
	}
	if f.Rules, err = loadRules(f.rulesFile); err != nil {
		return nil, err
	}
	if f.media, err = loadAttachments(f.attach); err != nil {
		return nil, err
	}
	if f.models.Model != "" {
		return nil, f.chooseModel(a)
	}
	if len(f.attach) > 0 {
		return nil, fault.Usage("--attach is for a prompt to a model: give --model PROVIDER/MODEL too")
	}
	if f.models.BaseURL != "" || f.models.API != "" {
		return nil, fault.Usage("--base-url and --api are for a model: give --model PROVIDER/MODEL too")
	}
	if replies, err = loadScript(f.script); err != nil {
		return nil, err
	}
	f.Provider = replies
	return replies, nil
}

// chooseModel sets f.Provider to the provider of --model, and the number of steps to
// defaultSteps if --steps is not given.
func (f *runFlags) chooseModel(a *app) error {
	if f.script != "" {
		return fault.Usage("--script and --model both give the replies: give one of them")
	}
	f.models.Folder, f.models.Getenv = f.ConfigFolder, a.Getenv
	router, err := models.New(f.models)
	if err != nil {
		return err
	}
	f.Provider = router
	if !f.stepsGiven {
		f.Steps = defaultSteps
	}
	return nil
}

// defaultSteps is the maximum number of replies of a model to one prompt.
const defaultSteps = 100

// loadAgents sets f.Agents to the agents of f.Workspace, which is the folder in which the
// session runs, and prints a warning for each agent file that cannot be used.
func (f *runFlags) loadAgents(a *app) {
	f.Agents = agents.Load(agents.LoadConfig{ConfigFolder: f.ConfigFolder, ProjectFolder: f.Workspace})
	for _, refused := range f.Agents.Refused() {
		fmt.Fprintf(a.Err, "warning: agent file not used: %s\n", render.OneLine(refused.Reason, 400))
	}
}

// add adds the flags to cmd.
func (f *runFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.models.Model, "model", "", "the model to ask, as PROVIDER/MODEL, such as anthropic/claude-sonnet-4-5")
	flags.StringVar(&f.models.BaseURL, "base-url", "", "the base URL of the provider, for a compatible server")
	flags.StringVar(&f.models.API, "api", "", "the format of an OpenAI-compatible server: chat or responses")
	flags.StringArrayVar(&f.attach, "attach", nil, "an image or a PDF file that the model reads with PROMPT; may be repeated")
	flags.StringVar(&f.script, "script", "", "the trajectory whose replies are replayed: an ATIF 1.x file")
	flags.StringVar(&f.Workspace, "workspace", ".", "the folder that the tools work in")
	flags.StringVar(&f.rulesFile, "rules", "", "a file of permission rules, one on each line: EFFECT ACTION RESOURCE")
	flags.DurationVar(&f.ApprovalLife, "approval-life", 0, "lifetime of an approval by the answer always, such as 8h (0: until it is revoked)")
	flags.IntVar(&f.Steps, "steps", 0, "maximum number of replies to one prompt; the last has no tools (0: no limit; with --model 100 if not given)")
	flags.StringVar(&f.ToolFolder, "tools", "", "a folder of tools for this session, each a manifest and a program")
	flags.StringSliceVar(&f.Flags, "flag", nil, "set a flag on which tools depend, such as apply_patch; may be repeated")
	flags.IntVar(&f.TaskDepth, "task-depth", engine.DefaultTaskDepth, "how deep the tool task may start subsessions below each other")
	flags.StringArrayVar(&f.env, "env", nil, "pass this environment variable to bash commands, too; may be repeated")
	must(cmd.MarkFlagFilename("attach", "png", "jpg", "jpeg", "gif", "webp", "pdf"))
	must(cmd.MarkFlagFilename("script", "json"))
	must(cmd.MarkFlagDirname("workspace"))
	must(cmd.MarkFlagDirname("tools"))
	must(cmd.MarkFlagFilename("rules"))
}

// runCommand returns the command `ledger run`.
func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run --model PROVIDER/MODEL [PROMPT]", Short: "Run a session with real tools and record every step",
		Example: "  ledger run --model anthropic/claude-sonnet-4-5 \"fix the failing test\"\n  ledger run --model anthropic/claude-sonnet-4-5\n  ledger run --script session.json --workspace ./project\n  ledger run --script session.json --rules strict.rules -o json\n  ledger run --script session.json \"fix the failing test\"",
		Long: `run opens a session in a workspace, requests replies and settles their calls with
the built-in tools (docs/tools.md) and with tools from files: the folder tools of
the configuration folder, .ledger/tools of the workspace, and --tools.

Replies come from the model of --model (docs/models.md); its key is in an environment
variable, such as ANTHROPIC_API_KEY or OPENAI_API_KEY. Without PROMPT the prompt is
read from the standard input; on a terminal a prompt line opens, which answers one
prompt after the other. A line that is typed during a run steers it. Ctrl-c
interrupts the run and gives the prompt line back, ctrl-c twice ends the program,
and ctrl-d or /exit leaves. Or replies come from the recorded trajectory of --script
(an ATIF file), whose prompt PROMPT replaces.

The agent of --agent has a system prompt and rules of its own. Its rules restrict:
they open nothing that --rules denies or asks about. The same holds for the agents
of subsessions, which the tool task starts.

Without --rules, tools may read and change files in the workspace, and ask for
permission outside it, for programs and MCP servers that a project brings
(project_tool, project_mcp), for calls of MCP servers (mcp; docs/mcp.md) and for
private addresses. Rules that begin with allow * * allow these too: add ask
project_tool * and ask project_mcp * for a project of another person. Without a terminal to ask on, the
answer is a denial.

A permission question shows what the answer allows. Only input typed after the
question counts as an answer. The answer always saves an approval, which applies in
this folder until it expires (--approval-life) or ledger approval revoke revokes it.

A rule that denies a bash command matches its name, also with a path and behind
programs such as env, xargs and sudo. It is no sandbox: a program can run another
program without naming it. Allow the commands that you want and ask about the rest.

A bash command gets PATH, HOME, the locale, the terminal and the folders of
toolchains from the environment, but not LEDGER_STORE or credentials; the list is in
docs/operation.md. --env NAME adds a variable. A command can print it, and the log
records what commands print.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.stepsGiven = cmd.Flags().Changed("steps")
			return a.runSession(cmd.Context(), f, strings.Join(args, " "))
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.Agent, "agent", "build", "the agent whose session it is; ledger agent ls lists them")
	must(cmd.RegisterFlagCompletionFunc("agent", a.completeAgents(&f.Workspace, (*agents.Set).Primary)))
	return cmd
}

// resumeCommand returns the command `ledger resume`.
func (a *app) resumeCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "resume [SESSION [PROMPT]]", Short: "Continue a session from the end of its log",
		Example: "  ledger resume @last --model anthropic/claude-sonnet-4-5\n  ledger resume @last --model openai/gpt-5 \"now add a test\"\n  ledger resume @last --script session.json\n  ledger resume ses_…4K2P9Q --script session.json --workspace ./project",
		Long: `resume settles the open calls of a dead process (a call that began is lost and never
run again) and then requests the replies that the session lacks, from the model of
--model or the trajectory of --script. With --model, PROMPT is a further message of
the user; without it a prompt line opens on a terminal, as run has it.`,
		Args: cobra.MaximumNArgs(2), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.stepsGiven = cmd.Flags().Changed("steps")
			prompt := ""
			if len(args) == 2 {
				prompt = args[1]
			}
			return a.resumeSession(cmd.Context(), f, query.OrLast(args[:min(len(args), 1)]), prompt, cmd.Flags().Changed("workspace"))
		},
	}
	f.add(cmd)
	return cmd
}

// recoverCommand returns the command `ledger recover`.
func (a *app) recoverCommand() *cobra.Command {
	var dead []string // the IDs of the processes that the user declares dead
	cmd := &cobra.Command{
		Use: "recover", Short: "Settle the open calls of dead processes; run no tool",
		Example: "  ledger recover\n  ledger recover && ledger verify\n  ledger recover --store esdb://db-1:2113 --process prc_…4K2P9Q",
		Long: `recover settles each call that a dead process began as lost (outcome unknown), and
each call that did not begin as stale; it closes the layers of that process and
removes outputs that no settlement refers to. It calls no model and runs no tool.
run and resume do the same first, in a store that no other process has open.

In a store that other processes have open too, a process is dead when its lease has
expired, with ten seconds of allowance for clocks that differ. A process without a
lease is dead only if --process names it. The calls of living processes are left
open. A session with an event of an unknown kind is left as it is and listed with
the reason; the other sessions are recovered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := a.launcher()
			l.Recover, l.Dead = true, func(j *runner.Liveness) error { return nameDead(j, dead) }
			return l.With(cmd.Context(), a.Open, func(p *sessions.ActiveProcess) error { return l.ShowRecovery(p.Recovery) })
		},
	}
	cmd.Flags().StringSliceVar(&dead, "process", nil, "a process without a lease that is known to be dead")
	return cmd
}

// environment returns the environment of bash commands: the variables of
// builtins.InheritedVariables and the variables with the given names. A name whose
// variable is not set is a usage error.
func environment(names []string) ([]string, error) {
	for _, name := range names {
		if name == "" || strings.Contains(name, "=") {
			return nil, fault.Usage("--env %q is not a name: set the variable in the environment and give its name alone", name)
		}
		if _, set := os.LookupEnv(name); !set {
			return nil, fault.Usage("--env %s: the variable is not set: set it, or leave the flag out", name)
		}
	}
	return builtins.FilterEnvironment(os.Environ(), names...), nil
}

// loadScript parses the trajectory at path, the value of --script.
func loadScript(path string) (*script.Script, error) {
	if path == "" {
		f := fault.Usage("no replies: neither --model nor --script is given")
		f.Hint = "name a model with --model PROVIDER/MODEL, or a trajectory with --script FILE; ledger demo shows one at work"
		return nil, f
	}
	s, err := script.Load(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, fault.WithHint(fmt.Errorf("--script: %w", err), "name a trajectory, an ATIF 1.x file")
	}
	if err != nil {
		return nil, fault.WithHint(err, "a trajectory is one JSON object with schema_version ATIF-v1.x, agent and steps")
	}
	return s, nil
}

// checkAgent returns a usage error if a person cannot choose the agent of --agent.
func (f *runFlags) checkAgent() error {
	if f.Agent == "" {
		return fault.Usage("--agent is empty: name the agent whose session it is")
	}
	agent, err := f.Agents.Agent(domain.AgentID(f.Agent))
	if err == nil && agent.Mode == agents.SubagentMode {
		err = fmt.Errorf("agent %s is a subagent, which only a task can choose", f.Agent)
	}
	if err == nil {
		return nil
	}
	u := fault.Usage("--agent: %w", err)
	u.Hint = "see ledger agent ls"
	return u
}

// runSession opens a new session in the workspace and runs the session. It creates the
// store if there is none.
func (a *app) runSession(ctx context.Context, f runFlags, prompt string) error {
	replies, err := f.ready(a)
	if err != nil {
		return err
	}
	f.loadAgents(a)
	if err := f.checkAgent(); err != nil {
		return err
	}
	model := f.models.Model
	if replies != nil {
		model = replies.Model()
	} else if a.hasPromptLine() && strings.TrimSpace(prompt) == "" && len(f.media) == 0 {
		end, err := a.openPromptLine()
		if err != nil {
			return err
		}
		defer end()
	} else if prompt, err = a.readPrompt(prompt); err != nil {
		return err
	}
	if replies != nil && prompt == "" && len(replies.Prompts(0)) == 0 {
		return fault.Usage("no prompt: the trajectory %s begins without one, and none is given", f.script)
	}
	return a.launcher().With(ctx, a.OpenOrCreate, func(p *sessions.ActiveProcess) error {
		r, err := p.OpenWorkspace(ctx, f.Setup)
		if err != nil {
			return err
		}
		defer r.Close()
		session, err := r.Runner.Open(ctx, events.SessionOpened{
			Agent: domain.AgentID(f.Agent), Location: r.Root.Path(), Model: model,
		})
		if err != nil {
			return err
		}
		switch {
		case a.console != nil:
			return a.converse(ctx, r, session)
		case replies == nil:
			return r.Ask(ctx, session, prompt, f.media)
		}
		return r.Continue(ctx, replies, session, prompt)
	})
}

// resumeSession runs an existing session from the end of its stream, with the agent of
// the session. It runs in the location that the log records for the session, or in the
// workspace of f if elsewhere is set or no location is recorded. A prompt is a further
// message to a model.
func (a *app) resumeSession(ctx context.Context, f runFlags, id, prompt string, elsewhere bool) error {
	replies, err := f.ready(a)
	if err != nil {
		return err
	}
	if prompt != "" && replies != nil {
		return fault.Usage("a prompt needs --model: the prompts of a trajectory are in its file")
	}
	if prompt == "" && len(f.media) > 0 {
		return fault.Usage("--attach needs PROMPT, the message to which the files belong")
	}
	if replies == nil && prompt == "" && a.hasPromptLine() {
		end, err := a.openPromptLine()
		if err != nil {
			return err
		}
		defer end()
	}
	return a.launcher().With(ctx, a.Open, func(p *sessions.ActiveProcess) error {
		session, err := a.resumable(ctx, p.Store, id)
		if err != nil {
			return err
		}
		f.Agent = string(session.Agent)
		if !elsewhere {
			f.Workspace = cmp.Or(session.Location, f.Workspace)
		}
		f.loadAgents(a)
		r, err := p.OpenWorkspace(ctx, f.Setup)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := replaying.WarnDrift(ctx, a.Err, p.Ledger, session.ID, r.Registry); err != nil {
			return err
		}
		switch {
		case a.console != nil:
			return a.converse(ctx, r, session.ID)
		case replies == nil:
			return r.Ask(ctx, session.ID, prompt, f.media)
		}
		return r.Continue(ctx, replies, session.ID, "")
	})
}

// resumable returns the session that id identifies. For an imported session, which
// cannot run again, it returns a fault.
func (a *app) resumable(ctx context.Context, store *stores.Store, id string) (session calls.Session, err error) {
	err = a.answerer().Answer(ctx, store, func(r *index.Snapshot) (err error) {
		session, err = query.Session(r, id)
		return err
	})
	if err != nil {
		return calls.Session{}, err
	}
	if session.Imported() {
		f := fault.Usage("session %s was imported and cannot be carried on", session.ID)
		f.Hint = "ledger session show shows it"
		return calls.Session{}, f
	}
	return session, nil
}

// nameDead moves the processes that the flag --process names from j.Unknown to j.Dead. A
// named process with a valid lease is a conflict fault.
func nameDead(j *runner.Liveness, named []string) error {
	for _, name := range named {
		p, err := query.Process(slices.Concat(j.Dead, j.Living, j.Unknown), name)
		if err != nil {
			return err
		}
		same := func(other events.ProcessStarted) bool { return other.Process == p.Process }
		if slices.ContainsFunc(j.Living, same) {
			f := fault.Usage("process %s may be alive: its lease runs until %s", p.Process, p.Until.UTC().Format(time.RFC3339))
			f.Exit, f.Code = fault.ExitConflict, "alive"
			f.Hint = fmt.Sprintf("end process %d on %s, and run this again when its lease has run out", p.PID, p.Host)
			return f
		}
		if i := slices.IndexFunc(j.Unknown, same); i >= 0 {
			j.Dead = append(j.Dead, j.Unknown[i])
			j.Unknown = slices.Delete(j.Unknown, i, i+1)
		}
	}
	return nil
}
