package demo

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/verify"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/agents"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

// demoFiles contains the workspace, the permission rules and the recorded trajectories
// of the demo. The program in the workspace needs only a POSIX shell.
//
//go:embed demo.rules killed.json trajectory.json workspace
var demoFiles embed.FS

// A Config is what [Run] needs.
type Config struct {
	*sessions.Launcher      // runs the sessions and recovers them
	Keep               bool // keep the temporary folder
	// Live runs the first part once for each wire format of model providers, against
	// servers of this process, in place of the three parts.
	Live bool
	// ListCalls prints the calls of the last session of a store, as ledger call ls
	// does.
	ListCalls func(context.Context, *stores.Store) error
}

// A demonstration is one run of the demo, with its temporary folder.
type demonstration struct {
	Config
	scratch   string // the temporary folder, which Run removes unless Keep is set
	workspace string // in scratch: the folder in which the agent works
	live      []liveSession
}

// Run runs the three parts of the demo: an agent that fixes a test, a run that is killed,
// and the recovery. If Live is set, it runs the agent once for each wire format, compares
// the sessions and verifies the store. It works in the store of --store. Without --store it sets Named of
// the Opener to a store in its temporary folder. It removes that folder unless Keep is
// set. The child process that it kills is the running executable, called as ledger run.
func Run(ctx context.Context, c Config) (err error) {
	d := &demonstration{Config: c}
	if d.scratch, err = os.MkdirTemp("", "ledger-demo-"); err != nil {
		return err
	}
	if !c.Keep {
		defer func() { err = errors.Join(err, os.RemoveAll(d.scratch)) }()
	}
	d.workspace = filepath.Join(d.scratch, "workspace")
	if c.Named == "" {
		c.Named = filepath.Join(d.scratch, "store")
	}
	if err := d.unpack(); err != nil {
		return fmt.Errorf("unpack demo: %w", err)
	}
	parts := []func(context.Context) error{d.fixTest, d.kill, d.recover}
	if c.Live {
		parts = []func(context.Context) error{d.fixTestLive, d.compareLive, d.verify}
	}
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if c.Keep {
		at, err := c.Where()
		if err != nil {
			return err
		}
		c.Line("\nThe store is kept: ledger --store '%s' session ls", at)
	}
	return nil
}

// unpack writes the files of the workspace. It generates a build log of 4000 lines, so
// that the output of one call exceeds the limits and goes to managed storage.
func (d *demonstration) unpack() error {
	const from = "workspace"
	if err := os.MkdirAll(d.workspace, 0o755); err != nil {
		return err
	}
	files, err := fs.ReadDir(demoFiles, from)
	if err != nil {
		return err
	}
	for _, f := range files {
		data, err := demoFiles.ReadFile(from + "/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(d.workspace, f.Name()), data, 0o644); err != nil {
			return err
		}
	}
	var log bytes.Buffer
	for n := range 4000 {
		fmt.Fprintf(&log, "%05d compile package %d of 4000: nothing to do\n", n, n+1)
	}
	return os.WriteFile(filepath.Join(d.workspace, "build.log"), log.Bytes(), 0o644)
}

// trajectory parses a recorded trajectory of demoFiles.
func (d *demonstration) trajectory(name string) (*script.Script, error) {
	data, err := demoFiles.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return script.Parse(name, bytes.NewReader(data))
}

// An interruptedProvider is a provider that calls a function in the middle of one turn:
// after the reply that asks for calls, and before the runner settles them.
type interruptedProvider struct {
	runner.Provider
	reply  int                         // the number of the reply, from 0
	during func(context.Context) error // an error ends the reply
}

// Reply yields the next reply of the provider. After the chosen reply it calls the
// function in the field during.
func (m interruptedProvider) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		for part, err := range m.Provider.Reply(ctx, turn) {
			if !yield(part, err) {
				return
			}
		}
		if script.CountReplies(turn.Conversation) != m.reply {
			return
		}
		if err := m.during(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// NextModel implements runner.ModelNamer with the provider and the model of the provider
// that is interrupted.
func (m interruptedProvider) NextModel(s *conversation.State, agentModel string) (provider, model string) {
	if namer, ok := m.Provider.(runner.ModelNamer); ok {
		return namer.NextModel(s, agentModel)
	}
	return "", agentModel
}

// PrepareRequest implements runner.RequestPreparer. A trajectory sends no request, so its
// record is empty.
func (m interruptedProvider) PrepareRequest(turn runner.Turn) (runner.RequestRecord, error) {
	if preparer, ok := m.Provider.(runner.RequestPreparer); ok {
		return preparer.PrepareRequest(turn)
	}
	return runner.RequestRecord{}, nil
}

// fixTest runs the first trajectory, in which an agent fixes a failing test, and prints
// the recorded calls.
func (d *demonstration) fixTest(ctx context.Context) error {
	d.Line("%s", d.Styled(render.Bold, "An agent fixes a failing test"))
	d.Line("The tools are real; the replies are a recorded trajectory. Each line is a call that is settled.")
	return d.With(ctx, d.OpenOrCreate, func(p *sessions.ActiveProcess) error {
		replies, err := d.trajectory("trajectory.json")
		if err != nil {
			return err
		}
		session, err := d.runAgent(ctx, p, replies, replies, replies.Model())
		if err != nil {
			return err
		}
		return d.audit(ctx, p, session)
	})
}

// runAgent runs the prompt of the trajectory in a new session, with the replies of the
// provider, and returns the ID of the session. The plugin reloads its tool during reply 3,
// which makes a call stale.
func (d *demonstration) runAgent(ctx context.Context, p *sessions.ActiveProcess, replies *script.Script, source runner.Provider, model string) (domain.SessionID, error) {
	text, err := demoFiles.ReadFile("demo.rules")
	if err != nil {
		return domain.SessionID{}, err
	}
	rules, err := permission.ParseRules("demo.rules", bytes.NewReader(text))
	if err != nil {
		return domain.SessionID{}, err
	}
	plugin := &plugin{}
	provider := interruptedProvider{source, 3, plugin.reload}
	r, err := p.OpenWorkspace(ctx, sessions.Setup{Workspace: d.workspace, Rules: rules, Agent: "build", Agents: agents.Load(agents.LoadConfig{}), Provider: provider})
	if err != nil {
		return domain.SessionID{}, err
	}
	defer r.Close()
	plugin.layer = r.Layer
	if err := plugin.load(ctx); err != nil {
		return domain.SessionID{}, err
	}
	session, err := r.Runner.Open(ctx, events.SessionOpened{Agent: "build", Location: r.Root.Path(), Model: model})
	if err != nil {
		return session, err
	}
	d.Line("> %s", replies.Prompts(0)[0])
	return session, d.runShown(ctx, r, replies, session)
}

// runShown admits the first prompt and runs the session. It prints each call as it
// settles.
func (d *demonstration) runShown(ctx context.Context, r *sessions.SessionRunner, replies *script.Script, session domain.SessionID) error {
	if _, err := r.Admit(ctx, replies, session, ""); err != nil {
		return err
	}
	return d.PrintProgress(ctx, d.Out, r.Store, session, func() error { return r.Run(ctx, session) })
}

// A plugin registers the tool changelog in its own scope.
type plugin struct {
	layer *registry.Layer // of the program
	scope *registry.Scope // of the current registration; nil before load
}

// A changelogLine is the input of the tool changelog.
type changelogLine struct {
	Line string `json:"line" jsonschema:"what changed, in one sentence"`
}

// load registers the tool in a new scope.
func (p *plugin) load(ctx context.Context) error {
	tool, err := domain.Make(domain.Spec[changelogLine, string]{
		Description: "Adds a line to the changelog of the project.",
		Execute: func(_ context.Context, in changelogLine, _ domain.Invocation) (string, error) {
			return "noted: " + in.Line, nil
		},
	})
	if err != nil {
		return err
	}
	p.scope = p.layer.Scope()
	return p.scope.Register(ctx, registry.Tools{"changelog": tool})
}

// reload closes the scope and registers the tool again, under a new registration.
func (p *plugin) reload(ctx context.Context) error {
	if err := p.scope.Close(ctx); err != nil {
		return err
	}
	return p.load(ctx)
}

// foldCalls returns the calls of a whole store. The store of a demonstration is small.
func foldCalls(ctx context.Context, s *stores.Store) (*calls.State, error) {
	p := calls.Projection()
	return projections.Fold(p, p.Init(), s.Ledger.ReadAll(ctx, events.Position{}))
}

// audit prints the outcome of each call of the session, and explains the unusual ones.
func (d *demonstration) audit(ctx context.Context, p *sessions.ActiveProcess, session domain.SessionID) error {
	s, err := foldCalls(ctx, p.Store)
	if err != nil {
		return err
	}
	d.Line("\n%s", d.Styled(render.Bold, "What the ledger knows of it"))
	t := render.Table{Head: []string{">", "TOOL", "OUTCOME", "~WHAT THE MODEL READ"}}
	n := 0
	var notes []string
	for _, c := range s.Calls() {
		if c.Session != session {
			continue
		}
		n++
		t.Add(strconv.Itoa(n), c.Tool, d.Outcome(render.OutcomeOf(c)), render.OneLine(c.Preview, 76))
		notes = append(notes, d.notes(n, c)...)
	}
	d.Table(t)
	d.Line("")
	for _, note := range notes {
		d.Line("%s", note)
	}
	return d.offered(ctx, p, session)
}

// notes returns an explanation of a call that was denied by a rule, was stale or has a
// stored text. For any other call it returns nil. n is the number of the call in the
// table.
func (d *demonstration) notes(n int, c calls.Call) []string {
	e := c.Settlement
	switch {
	case e.Outcome == domain.DeniedByRule:
		return []string{fmt.Sprintf("Call %d was denied by %s: %s %s %s.", n, e.Rule.Source, e.Rule.Effect, e.Rule.Action, e.Rule.Resource)}
	case e.Outcome == domain.Stale:
		return []string{fmt.Sprintf("Call %d is stale: %s was offered as %s, which %s took out of effect before the call; now it is %s.",
			n, c.Tool, render.ShortID(e.Offered.Registration), render.ShortID(e.ChangedBy), render.ShortID(e.Effective.Registration))}
	}
	for _, r := range e.Retained {
		if r.Ref.Channel() == domain.TextChannel {
			return []string{fmt.Sprintf("What call %d returned, %s in %d lines, is kept whole: ledger output %s", n, render.Bytes(r.Bytes), r.Lines, r.Ref)}
		}
	}
	return nil
}

// offered prints the tools that the last turn of the session offered the model.
func (d *demonstration) offered(ctx context.Context, p *sessions.ActiveProcess, session domain.SessionID) error {
	var last events.TurnMaterialized
	for v, err := range p.Ledger.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return err
		}
		if e, ok := v.Event.(events.TurnMaterialized); ok {
			last = e
		}
	}
	var names []string
	for _, o := range last.Tools {
		names = append(names, string(o.Name))
	}
	d.Line("The last turn offered the model exactly these tools: %s.", strings.Join(names, ", "))
	return nil
}

// startedPipe is the name of the named pipe in the workspace into which the call of
// killed.json writes when it begins.
const startedPipe = "begun"

// kill starts this program as a child process, waits until the child's call has begun,
// and sends SIGKILL to the child.
func (d *demonstration) kill(ctx context.Context) error {
	d.Line("\n%s", d.Styled(render.Bold, "A process is killed in the middle of a call"))
	d.Line("Elsewhere that call would show as running for ever, or be run again.")
	pipe := filepath.Join(d.workspace, startedPipe)
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	trajectory := filepath.Join(d.scratch, "killed.json")
	text, err := demoFiles.ReadFile("killed.json")
	if err != nil {
		return err
	}
	if err := os.WriteFile(trajectory, text, 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run := exec.CommandContext(ctx, self, "run", "--script", trajectory, "--workspace", d.workspace)
	run.Env = append(os.Environ(), "LEDGER_LEASE="+sessions.MinLease.String(),
		"LEDGER_STORE="+d.Named,                               // --store would show a password in the list of processes
		"XDG_CONFIG_HOME="+filepath.Join(d.scratch, "config")) // the demo does not depend on the agents and tools of the user
	var output bytes.Buffer
	run.Stdout, run.Stderr = &output, &output
	d.Line("$ ledger run --script killed.json &")
	if err := run.Start(); err != nil {
		return err
	}
	waited := awaitStarted(pipe)
	killed := run.Process.Kill()
	_ = run.Wait() // the error says that it was killed
	if err := errors.Join(waited, killed); err != nil {
		return fmt.Errorf("kill a run in the middle of its call: %w; it wrote: %s", err, output.String())
	}
	d.Line("$ kill -9 %%1")
	return d.awaitLeaseEnd(ctx, run.Process.Pid)
}

// awaitLeaseEnd waits until the lease of a dead process of this machine has expired, so
// that recovery treats the process as dead. In a store that is not shared it returns at
// once: the lock of the folder is free, so recovery needs no lease to know that the
// process is dead.
func (d *demonstration) awaitLeaseEnd(ctx context.Context, pid int) error {
	var until time.Time
	err := d.Read(ctx, func(s *stores.Store) error {
		if !s.Shared {
			return nil
		}
		lives, err := stores.Current(ctx, s, runner.Processes())
		if err != nil {
			return err
		}
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		for _, p := range lives.Processes {
			if p.PID == pid && p.Host == host && !p.Until.IsZero() {
				// Recovery allows for clocks that differ by LeaseMargin.
				until = p.Until.Add(runner.LeaseMargin)
			}
		}
		return nil
	})
	if left := until.Sub(d.Now()); err == nil && left > 0 {
		d.Line("Others may have the store open too, so it is dead when its lease has run out, in %s.", render.Duration(left))
		err = errors.Join(d.Out.Flush(), stores.Sleep(ctx, left+time.Millisecond))
	}
	return err
}

// awaitStarted waits, for at most a minute, until the call of the child process has
// written into the pipe. It opens the pipe for reading and writing: opening it only for
// reading would block until a writer opens it, and the child may have died before that.
func awaitStarted(pipe string) error {
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 1))
	return err
}

// recover recovers the store, lists the calls of the killed session and verifies the log.
func (d *demonstration) recover(ctx context.Context) error {
	d.Line("$ ledger recover")
	recovering := *d.Launcher
	recovering.Recover = true
	err := recovering.With(ctx, d.Open, func(p *sessions.ActiveProcess) error { return d.ShowRecovery(p.Recovery) })
	if err != nil {
		return err
	}
	d.Line("$ ledger call ls --session @last")
	if err := d.Read(ctx, func(s *stores.Store) error { return d.ListCalls(ctx, s) }); err != nil {
		return err
	}
	return d.verify(ctx)
}

// verify verifies the log and the kept outputs.
func (d *demonstration) verify(ctx context.Context) error {
	d.Line("$ ledger verify")
	return d.Read(ctx, func(s *stores.Store) error { return verify.Run(ctx, d.Printer, s, verify.Options{Digests: true}) })
}
