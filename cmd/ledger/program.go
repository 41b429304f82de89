package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A program is this process at work in a store: on record as started, and
// with what dead processes left there ended.
type program struct {
	*ledgerStore
	process   domain.ProcessID
	writer    *events.Writer // of the stream of this process
	lease     *runner.Lease  // nil where the store is held alone
	layers    *registry.Layers
	recovered recovered
	opened    []*registry.Layer
}

// recovered is what a recovery ended and removed.
type recovered struct {
	runner.Recovered
	Outputs int   `json:"outputs"` // that no settlement names
	Bytes   int64 `json:"bytes"`   // of those

	Living  []events.ProcessStarted `json:"living,omitempty"`  // other processes, whose sessions are left as they are
	Unknown []events.ProcessStarted `json:"unknown,omitempty"` // others without a lease, of which nobody can tell
}

// begin puts this process on record in an open store and recovers that; if it
// shares the store, it keeps a lease, and recovers only for the command that is
// there for it. The caller ends the program, and the store closes with it.
func (a *app) begin(ctx context.Context, s *ledgerStore) (*program, error) {
	p := &program{ledgerStore: s, process: s.ledger.Mint().Process()}
	p.layers = registry.NewLayers(s.ledger, p.process)
	p.writer = s.ledger.Writer(events.ProcessStream(p.process), 0)
	started := events.ProcessStarted{
		Process: p.process, Host: hostName(), PID: os.Getpid(), Program: "ledger", Version: version(), Address: s.address,
	}
	if s.shared {
		started.Until = s.ledger.Now().Add(a.lease)
	}
	if err := p.note(ctx, started); err != nil {
		return nil, errors.Join(fmt.Errorf("begin: %w", err), s.Close())
	}
	if s.shared {
		p.lease = runner.KeepLease(ctx, s.ledger, p.writer, p.process, a.lease)
	}
	// Where others work as well, recovery is somebody's decision.
	if !s.shared || a.recovering {
		if err := p.recover(ctx, a.dead); err != nil {
			return nil, errors.Join(err, p.end(ctx))
		}
	}
	return p, nil
}

// alive returns a context that ends with ctx and when this process may no
// longer work.
func (p *program) alive(ctx context.Context) context.Context {
	if p.lease == nil {
		return ctx
	}
	return p.lease.Alive()
}

// note appends to the stream of this process.
func (p *program) note(ctx context.Context, e events.Event) error {
	_, err := p.writer.Append(ctx, p.ledger.Draft(e, domain.EventID{}))
	return err
}

// end ends the program and closes the store. What ctx asks for no longer matters.
func (p *program) end(ctx context.Context) error { return errors.Join(p.stop(ctx), p.Close()) }

// stop takes what this process registered out of effect and puts its end on
// record. What ctx asks for no longer matters.
func (p *program) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registry.DefaultGrace)
	defer cancel()
	errs := []error{p.layers.Wait(ctx)}
	for _, l := range p.opened {
		errs = append(errs, l.Close(ctx))
	}
	if p.lease != nil {
		p.lease.Close()
	}
	errs = append(errs, p.note(ctx, events.ProcessStopped{Process: p.process, Reason: events.ProcessEnded}))
	return errors.Join(errs...)
}

// recover ends what dead processes left, and what those left that are named as
// dead. Who holds the store alone knows that all others without a lease are.
func (p *program) recover(ctx context.Context, named []string) error {
	lives, err := folded(ctx, p.ledgerStore, runner.Processes())
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	judged := p.judged(lives, p.process, p.ledger.Now())
	w, err := wreckage(&judged, named)
	if err != nil {
		return err
	}
	if w.Catalog, err = folded(ctx, p.ledgerStore, catalog.Projection()); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if w.Calls, err = folded(ctx, p.ledgerStore, calls.Projection()); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	// Over no layers everything that was offered is stale, and nothing runs.
	nothing, err := p.layers.Registry(registry.Config{Outputs: p.outputs})
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	p.recovered.Recovered, err = runner.New(runner.Config{Ledger: p.ledger, Registry: nothing}).Salvage(ctx, w)
	if err != nil {
		return err
	}
	p.recovered.Living, p.recovered.Unknown = judged.Living, judged.Unknown
	if p.folder == nil || len(judged.Living) > 0 || len(p.recovered.Left) > 0 {
		return nil // an output may be that of a call that runs elsewhere, or be named by an event of an unknown kind
	}
	return p.sweep(ctx, w.Calls)
}

// judged judges all processes but one. Whoever has a folder alone knows that those
// without a lease are dead, and so is the one that served the folder before,
// however long its lease still runs.
func (s *ledgerStore) judged(lives *runner.Lives, self domain.ProcessID, now time.Time) runner.Judgement {
	j := lives.Judge(self, now, !s.shared)
	if s.folder == nil {
		return j
	}
	before := lastServing(s.folder.dir).Process
	if i := slices.IndexFunc(j.Living, func(p events.ProcessStarted) bool { return p.Process == before }); i >= 0 {
		j.Dead = append(j.Dead, j.Living[i])
		j.Living = slices.Delete(j.Living, i, i+1)
	}
	return j
}

// wreckage returns who is dead: those judged so, and those of unknown fate that
// are named. Naming one that lives is refused: it has a lease.
func wreckage(j *runner.Judgement, named []string) (runner.Wreck, error) {
	for _, name := range named {
		p, err := pick("process", name, processCandidates(slices.Concat(j.Dead, j.Living, j.Unknown)))
		if err != nil {
			return runner.Wreck{}, err
		}
		same := func(other events.ProcessStarted) bool { return other.Process == p.Process }
		if slices.ContainsFunc(j.Living, same) {
			f := misuse("process %s may be alive: its lease runs until %s", p.Process, p.Until.UTC().Format(time.RFC3339))
			f.exit, f.code = exitConflict, "alive"
			f.hint = fmt.Sprintf("end process %d on %s, and run this again when its lease has run out", p.PID, p.Host)
			return runner.Wreck{}, f
		}
		if i := slices.IndexFunc(j.Unknown, same); i >= 0 {
			j.Dead = append(j.Dead, j.Unknown[i])
			j.Unknown = slices.Delete(j.Unknown, i, i+1)
		}
	}
	return runner.Wreck{Processes: processes(j.Dead), Others: processes(slices.Concat(j.Living, j.Unknown))}, nil
}

func processes(all []events.ProcessStarted) (ids []domain.ProcessID) {
	for _, p := range all {
		ids = append(ids, p.Process)
	}
	return ids
}

// elsewhere returns a process that may be alive, is not this one, and opened
// one of these layers. It asks the log, as others come and go.
func (p *program) elsewhere(ctx context.Context, layers []domain.LayerID) (domain.ProcessID, error) {
	if !p.shared {
		return domain.ProcessID{}, nil
	}
	lives, err := folded(ctx, p.ledgerStore, runner.Processes())
	if err != nil {
		return domain.ProcessID{}, err
	}
	places, err := folded(ctx, p.ledgerStore, catalog.Projection())
	if err != nil {
		return domain.ProcessID{}, err
	}
	judged := lives.Judge(p.process, p.ledger.Now(), false)
	return runner.Wreck{Catalog: places, Others: processes(slices.Concat(judged.Living, judged.Unknown))}.Elsewhere(layers), nil
}

// sweep removes the outputs that no settlement names: their process died in
// between.
func (p *program) sweep(ctx context.Context, s *calls.State) error {
	named := map[domain.EventID]bool{}
	for _, r := range s.Retained() {
		named[r.Settlement] = true
	}
	swept, err := p.folder.outputs.Sweep(ctx, func(_ context.Context, id domain.EventID) (bool, error) { return named[id], nil })
	if err != nil {
		return fmt.Errorf("recover outputs: %w", err)
	}
	p.recovered.Outputs, p.recovered.Bytes = swept.Outputs, swept.Bytes
	return nil
}

// A bench is where sessions of one workspace are carried on.
type bench struct {
	*program
	root     *workspace.Root
	place    *registry.Layer
	registry *registry.Registry
	runner   *runner.Runner
}

// A setup says how sessions are carried on.
type setup struct {
	workspace string
	rules     domain.Rules
	agent     string
	steps     int
	provider  runner.Provider
}

// open returns the bench of a workspace, with the builtin tools registered for
// it. The caller closes its root.
func (p *program) open(ctx context.Context, a *app, s setup) (*bench, error) {
	root, err := workspace.Open(s.workspace)
	if err != nil {
		return nil, hinted(fmt.Errorf("--workspace: %w", err), "name a folder that exists")
	}
	b := &bench{program: p, root: root}
	if err := b.furnish(ctx, a, s); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return b, nil
}

func (b *bench) furnish(ctx context.Context, a *app, s setup) (err error) {
	agents := permission.Agents{Default: domain.AgentID(s.agent), Rules: map[domain.AgentID]domain.Rules{domain.AgentID(s.agent): s.rules}}
	recorder := &recorder{location: b.root.Path()}
	gate, err := b.gate(ctx, a, agents, recorder)
	if err != nil {
		return err
	}
	tools, err := builtins.Tools(builtins.Config{Workspace: b.root, Permission: gate, Outputs: kept{b.outputs}})
	if err != nil {
		return err
	}
	if b.place, err = b.layers.Location(ctx, b.root.Path()); err != nil {
		return err
	}
	b.opened = append(b.opened, b.place)
	if err := b.place.Scope().Register(ctx, tools); err != nil {
		return err
	}
	if b.registry, err = b.layers.Registry(registry.Config{Outputs: b.outputs}, b.place); err != nil {
		return err
	}
	b.runner = runner.New(runner.Config{
		Ledger: b.ledger, Registry: b.registry, Provider: s.provider, Rules: agents.Of, Steps: s.steps, Elsewhere: b.elsewhere,
		Looping: func(ctx context.Context, inv domain.Invocation, found events.LoopDetected) error {
			return gate.Assert(ctx, inv, permission.Ask{
				Action: "doom_loop", Resources: []string{found.Tool}, Save: []string{found.Tool},
				Show: func(ctx context.Context) (domain.Shown, error) { return b.showLoop(ctx, inv, found) },
			})
		},
	})
	recorder.runner = b.runner
	return nil
}

func (b *bench) gate(ctx context.Context, a *app, agents permission.Agents, r permission.Recorder) (*permission.Gate, error) {
	saved, err := folded(ctx, b.ledgerStore, approvalsSaved())
	if err != nil {
		return nil, err
	}
	return permission.NewGate(permission.Config{
		Rules: agents.Of, Approver: a.approver(ctx), Recorder: r, Mint: b.ledger.Mint(), Now: a.now,
		Approvals: saved.at(b.root.Path()),
	})
}
