package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

// runCommands returns the commands that run sessions or recover them.
func (a *app) runCommands() []*cobra.Command {
	return []*cobra.Command{a.runCommand(), a.resumeCommand(), a.recoverCommand(), a.demoCommand()}
}

// A runFlags holds the flags of run and resume.
type runFlags struct {
	setup
	script    string   // path of the trajectory
	rulesFile string   // empty: the default rules
	env       []string // names of further variables for bash commands
}

// ready checks the flags, reads the files that they name and fills in the setup. It
// returns the trajectory, which is also the provider of replies.
func (f *runFlags) ready() (speaks *script.Script, err error) {
	if f.approvalLife < 0 {
		return nil, fault.Usage("--approval-life is %v: give how long an approval counts, or 0 for one without an end", f.approvalLife)
	}
	if f.steps < 0 {
		return nil, fault.Usage("--steps is %d: give how many replies there may be, or 0 for any number", f.steps)
	}
	if info, err := os.Stat(f.workspace); err != nil || !info.IsDir() {
		return nil, fault.WithHint(fmt.Errorf("--workspace: %s is not a folder that can be opened: %w", f.workspace, cmp.Or(err, fs.ErrInvalid)), "name a folder that exists")
	}
	if f.environment, err = environment(f.env); err != nil {
		return nil, err
	}
	if f.rules, err = loadRules(f.rulesFile); err != nil {
		return nil, err
	}
	if speaks, err = speaker(f.script); err != nil {
		return nil, err
	}
	f.provider = speaks
	return speaks, nil
}

// add adds the flags to cmd.
func (f *runFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.script, "script", "", "the trajectory whose replies are spoken: an ATIF 1.x file")
	flags.StringVar(&f.workspace, "workspace", ".", "the folder that the tools work in")
	flags.StringVar(&f.rulesFile, "rules", "", "a file of permission rules, one on each line: EFFECT ACTION RESOURCE")
	flags.DurationVar(&f.approvalLife, "approval-life", 0, "how long an answer for always counts, such as 8h (0: until it is revoked)")
	flags.IntVar(&f.steps, "steps", 0, "replies to one prompt at most; the last without tools (0: any number)")
	flags.StringArrayVar(&f.env, "env", nil, "a variable that bash commands get besides the usual ones; may be repeated")
	must(cmd.MarkFlagFilename("script", "json"))
	must(cmd.MarkFlagDirname("workspace"))
	must(cmd.MarkFlagFilename("rules"))
}

// runCommand returns the command ledger run.
func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run --script FILE [PROMPT]", Short: "Run a session with real tools, each step on record",
		Example: "  ledger run --script session.json --workspace ./project\n  ledger run --script session.json --rules strict.rules -o json\n  ledger run --script session.json \"mend the failing test\"",
		Long: `run opens a session in a workspace, asks for replies and settles their calls with
the tools read, write, edit, glob, grep and bash. Replies come from a recorded
trajectory. The prompt is the trajectory's, unless one is given.

Without --rules what the workspace holds may be read and changed; what lies
outside it is asked about. Where nobody can be asked, asking is a denial.

A question shows what the answer approves. Only an answer that is typed after its
prompt counts. always saves an approval, which counts in this folder until it
expires (--approval-life) or ledger approval revoke takes it back.

A rule that denies bash a command sees it by its name, behind a path and behind
programs such as env, xargs and sudo. It is no fence: a program can run another
without naming it. Allow the commands that are wanted and ask about the rest.

A command of bash gets PATH, HOME, the locale, the terminal and the folders of
toolchains from the environment, not LEDGER_STORE or a credential; the list is in
docs/operation.md. --env NAME adds a variable. Commands can print it, and the log
keeps what they print.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSession(cmd.Context(), f, strings.Join(args, " "))
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.agent, "agent", "build", "the agent whose session it is")
	return cmd
}

// resumeCommand returns the command ledger resume.
func (a *app) resumeCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "resume [SESSION] --script FILE", Short: "Carry a session on from where its log ends",
		Example: "  ledger resume @last --script session.json\n  ledger resume ses_…4K2P9Q --script session.json --workspace ./project",
		Long: `resume ends what a dead process left open (a call that began is lost, never run
again) and then asks for the replies that the session does not hold yet.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resumeSession(cmd.Context(), f, orLast(args), cmd.Flags().Changed("workspace"))
		},
	}
	f.add(cmd)
	return cmd
}

// recoverCommand returns the command ledger recover.
func (a *app) recoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "recover", Short: "End what dead processes left open; run nothing",
		Example: "  ledger recover\n  ledger recover && ledger verify\n  ledger recover --store esdb://db-1:2113 --process prc_…4K2P9Q",
		Long: `recover settles as lost each call that began in a process that died, and as stale
each that did not begin; closes the layers of that process; and removes outputs
that no settlement names. It asks no model and runs no tool. run and resume do
the same before they begin, in a store that no other process has open.

In a store that others have open too, a process is dead when its lease has run
out, ten seconds allowed for clocks that differ. One without a lease, of which
nobody can tell, is dead if --process names it. What the living carry on is left
as it is. So is a session that holds a kind of event that this program does not
know: it is listed with the reason, and the other sessions are recovered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.recovering = true
			return a.working(cmd.Context(), a.Open, func(p *program) error { return a.showRecovered(p.recovered) })
		},
	}
	cmd.Flags().StringSliceVar(&a.dead, "process", nil, "a process without a lease that you know is dead")
	return cmd
}

// working opens a store with open, records this process in it, calls use, records
// the end of the process and closes the store.
func (a *app) working(ctx context.Context, open func(context.Context) (*stores.Store, error), use func(*program) error) error {
	s, err := open(ctx)
	if err != nil {
		return err
	}
	p, err := a.begin(ctx, s)
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.end(ctx))
}

// showRecovered prints the result of a recovery.
func (a *app) showRecovered(r recovered) error {
	return a.Object(r, func() {
		if len(r.Processes)+len(r.Layers)+len(r.Sessions)+len(r.Left)+r.Outputs == 0 {
			a.Line("Nothing was left open.")
		} else {
			a.Line("Ended %s, %s and what was open in %s.", render.Count(len(r.Processes), "dead process"),
				render.Count(len(r.Layers), "layer"), render.Count(len(r.Sessions), "session"))
		}
		for _, id := range r.Sessions {
			a.Line("  %s", render.ShortID(id))
		}
		for _, l := range r.Left {
			a.Line("Left %s as it is, with open calls: %s", render.ShortID(l.Session), render.OneLine(l.Err.Error(), 200))
		}
		if r.Outputs > 0 {
			a.Line("Removed %s that no settlement names, %s.", render.Count(r.Outputs, "output"), render.Bytes(r.Bytes))
		}
		for _, p := range r.Living {
			a.Line("%s, process %d on %s, lives until %s at least.", render.ShortID(p.Process), p.PID, p.Host, a.ShortTime(p.Until))
		}
		for _, p := range r.Unknown {
			a.Line("%s, process %d on %s, has no lease: if you know that it is dead, name it with --process.", render.ShortID(p.Process), p.PID, p.Host)
		}
	})
}

// environment returns the environment of bash commands: the builtin list of
// variables and those of names, which must be set.
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

// speaker parses the trajectory at path, the value of --script.
func speaker(path string) (*script.Script, error) {
	if path == "" {
		f := fault.Usage("no replies: --script is not given")
		f.Hint = "name a trajectory with --script FILE; ledger demo shows one at work"
		return nil, f
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("--script: %w", err), "name a trajectory, an ATIF 1.x file")
	}
	defer file.Close()
	s, err := script.Parse(path, file)
	if err != nil {
		return nil, fault.WithHint(err, "a trajectory is one JSON object with schema_version ATIF-v1.x, agent and steps")
	}
	return s, nil
}

// runSession opens a new session in the workspace and runs it. It makes the store if
// there is none.
func (a *app) runSession(ctx context.Context, f runFlags, prompt string) error {
	speaks, err := f.ready()
	if err != nil {
		return err
	}
	if f.agent == "" {
		return fault.Usage("--agent is empty: name the agent whose session it is")
	}
	if prompt == "" && len(speaks.Prompts(0)) == 0 {
		return fault.Usage("no prompt: the trajectory %s begins without one, and none is given", f.script)
	}
	return a.working(ctx, a.OpenOrCreate, func(p *program) error {
		b, err := p.open(ctx, a, f.setup)
		if err != nil {
			return err
		}
		defer b.root.Close()
		session, err := b.Runner.Open(ctx, events.SessionOpened{
			Agent: domain.AgentID(f.agent), Location: b.root.Path(), Model: speaks.Model(),
		})
		if err != nil {
			return err
		}
		return a.carry(ctx, b, speaks, session, prompt)
	})
}

// resumeSession runs an existing session from the end of its stream, with the agent
// of the session. Unless elsewhere is set it runs in the recorded location in place
// of the workspace of f.
func (a *app) resumeSession(ctx context.Context, f runFlags, id string, elsewhere bool) error {
	speaks, err := f.ready()
	if err != nil {
		return err
	}
	return a.working(ctx, a.Open, func(p *program) error {
		session, err := p.resumable(ctx, id)
		if err != nil {
			return err
		}
		f.agent = string(session.Agent)
		if !elsewhere {
			f.workspace = cmp.Or(session.Location, f.workspace)
		}
		b, err := p.open(ctx, a, f.setup)
		if err != nil {
			return err
		}
		defer b.root.Close()
		return a.carry(ctx, b, speaks, session.ID, "")
	})
}

// resumable returns the session that id refers to. An imported session is a fault.
func (p *program) resumable(ctx context.Context, id string) (calls.Session, error) {
	s, err := stores.Current(ctx, p.Store, calls.Projection())
	if err != nil {
		return calls.Session{}, err
	}
	session, err := pickSession(s, id)
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

// carry alternates between admitting the prompts of the trajectory and running the
// session, until the trajectory ends or the session stops, and prints the result. A
// non-empty prompt replaces the prompts before the first reply.
func (a *app) carry(ctx context.Context, b *bench, speaks *script.Script, session domain.SessionID, prompt string) error {
	w := a.watch(a.Err, session)
	ran := w.during(ctx, b.Store, func() error {
		for {
			n, err := b.admit(ctx, speaks, session, prompt)
			if err != nil {
				return err
			}
			// The session holds every reply of the trajectory.
			if n >= speaks.Len() {
				a.tellUnanswered(speaks)
				return nil
			}
			if err := b.Run(ctx, session); err != nil && !errors.Is(err, script.ErrExhausted) {
				return err
			}
			s, err := b.Conversation(ctx, session)
			// Without this check, a run that adds no reply would repeat for ever.
			if err != nil || s.Interrupted != nil || script.CountReplies(s) == n {
				return err
			}
		}
	})
	return errors.Join(ran, a.showRun(context.WithoutCancel(ctx), b.Store, session))
}

// tellUnanswered prints a hint if the trajectory ends with a prompt.
func (a *app) tellUnanswered(speaks *script.Script) {
	if n := len(speaks.Prompts(speaks.Len())); n > 0 {
		fmt.Fprintf(a.Err, "hint: the trajectory ends with %s and no reply\n", render.Count(n, "prompt"))
	}
}

// admit admits the prompts before the next reply that the session does not hold yet,
// and returns the index of that reply.
func (b *bench) admit(ctx context.Context, speaks *script.Script, session domain.SessionID, prompt string) (int, error) {
	s, err := b.Conversation(ctx, session)
	if err != nil {
		return 0, err
	}
	n := script.CountReplies(s)
	prompts := speaks.Prompts(n)
	if n == 0 && prompt != "" {
		prompts = []string{prompt}
	}
	// Skip the prompts that an earlier run admitted and that no reply has answered.
	for _, text := range prompts[min(waiting(s), len(prompts)):] {
		if err := b.Runner.Admit(ctx, session, b.Ledger.Mint().Message(), text); err != nil {
			return n, err
		}
	}
	return n, nil
}

// waiting returns the number of prompts at the end of the conversation, behind the
// last reply.
func waiting(s *conversation.State) int {
	n := 0
	for i := len(s.Messages) - 1; i >= 0 && s.Messages[i].Prompt != nil; i-- {
		n++
	}
	return n
}

// A runResult is the JSON result of run and resume.
type runResult struct {
	Session  domain.SessionID `json:"session"`
	Calls    int              `json:"calls"`
	Open     int              `json:"open"`     // calls without a settlement
	Outcomes map[string]int   `json:"outcomes"` // number of settled calls by outcome
	Stopped  *string          `json:"stopped"`  // why the session was interrupted; null: it was not
	Text     string           `json:"text"`     // of the last reply
}

// showRun folds the session from the log and prints its result.
func (a *app) showRun(ctx context.Context, s *stores.Store, session domain.SessionID) error {
	p := conversation.Projection()
	c, err := projections.Fold(p, p.Init(), s.Ledger.Read(ctx, events.SessionStream(session), 0))
	if err != nil {
		return err
	}
	r := runResultOf(c)
	return a.Object(r, func() {
		if r.Text != "" {
			a.Line("%s", render.Printable(r.Text))
		}
		a.Line("%s", a.Styled(render.Dim, fmt.Sprintf("%s: %s; ledger session show %s", render.ShortID(session), tally(r), shortTail(session))))
	})
}

// runResultOf returns the result of a conversation.
func runResultOf(c *conversation.State) runResult {
	r := runResult{Session: c.Session, Outcomes: map[string]int{}}
	for _, m := range c.Messages {
		if m.Reply == nil {
			continue
		}
		r.Text = m.Reply.Text
		for _, call := range m.Reply.Calls {
			r.Calls++
			if call.Settlement == nil {
				r.Open++
				continue
			}
			r.Outcomes[call.Settlement.Outcome.String()]++
		}
	}
	if c.Interrupted != nil {
		r.Stopped = render.OrNull(strings.TrimSpace("interrupted by " + c.Interrupted.Reason.String() + " " + c.Interrupted.Detail))
	}
	return r
}

// tally returns the number of calls and of each outcome, for a person.
func tally(r runResult) string {
	parts := []string{render.Count(r.Calls, "call")}
	for _, o := range domain.Outcomes() {
		if n := r.Outcomes[o.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// shortTail returns the last six characters of an ID, which commands accept for the
// ID.
func shortTail(id fmt.Stringer) string {
	text := id.String()
	return text[max(0, len(text)-6):]
}

var _ runner.Provider = (*script.Script)(nil)
