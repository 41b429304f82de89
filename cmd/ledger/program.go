package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// A program is this process at work in a store that it opened.
type program struct {
	*ledgerStore
	*engine.Process
	recovered recovered
}

// recovered is what a recovery ended and removed.
type recovered struct {
	engine.Recovered
	Outputs int   `json:"outputs"` // that no settlement names
	Bytes   int64 `json:"bytes"`   // of those
}

// begin puts this process on record in an open store and recovers that; if it
// shares the store, it keeps a lease, and recovers only for the command that is
// there for it. The caller ends the program, and the store closes with it.
func (a *app) begin(ctx context.Context, s *ledgerStore) (*program, error) {
	p := &program{ledgerStore: s}
	config := engine.ProcessConfig{
		Ledger: s.ledger, Checkpoints: s.checkpoints, Outputs: s.outputs, Program: "ledger", Version: version(), Address: s.address,
		Recover: a.recovering,
		Judge: func(j *runner.Judgement) error {
			s.endServing(j)
			return nameDead(j, a.dead)
		},
	}
	if s.shared {
		config.Lease = a.lease
	}
	if s.folder != nil {
		config.Sweep = func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error {
			swept, err := s.folder.outputs.Sweep(ctx, recorded)
			p.recovered.Outputs, p.recovered.Bytes = swept.Outputs, swept.Bytes
			return err
		}
	}
	var err error
	if p.Process, err = engine.Start(ctx, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	p.recovered.Recovered = p.Process.Recovered()
	return p, nil
}

// end ends the program and closes the store. What ctx asks for no longer matters.
func (p *program) end(ctx context.Context) error {
	return errors.Join(p.Process.Close(ctx), p.ledgerStore.Close())
}

// judged judges all processes. It is for commands that are on record themselves
// only if there is something to end.
func (s *ledgerStore) judged(started *runner.Lives, now time.Time) runner.Judgement {
	j := started.Judge(domain.ProcessID{}, now, !s.shared)
	s.endServing(&j)
	return j
}

// endServing counts the process that served the folder before as dead, however
// long its lease runs: this process has the lock of the folder.
func (s *ledgerStore) endServing(j *runner.Judgement) {
	if s.folder == nil {
		return
	}
	before := lastServing(s.folder.dir).Process
	if i := slices.IndexFunc(j.Living, func(p events.ProcessStarted) bool { return p.Process == before }); i >= 0 {
		j.Dead = append(j.Dead, j.Living[i])
		j.Living = slices.Delete(j.Living, i, i+1)
	}
}

// nameDead counts those processes of unknown fate as dead that are named. Naming
// one that lives is refused: it has a lease.
func nameDead(j *runner.Judgement, named []string) error {
	for _, name := range named {
		p, err := pick("process", name, processCandidates(slices.Concat(j.Dead, j.Living, j.Unknown)))
		if err != nil {
			return err
		}
		same := func(other events.ProcessStarted) bool { return other.Process == p.Process }
		if slices.ContainsFunc(j.Living, same) {
			f := misuse("process %s may be alive: its lease runs until %s", p.Process, p.Until.UTC().Format(time.RFC3339))
			f.exit, f.code = exitConflict, "alive"
			f.hint = fmt.Sprintf("end process %d on %s, and run this again when its lease has run out", p.PID, p.Host)
			return f
		}
		if i := slices.IndexFunc(j.Unknown, same); i >= 0 {
			j.Dead = append(j.Dead, j.Unknown[i])
			j.Unknown = slices.Delete(j.Unknown, i, i+1)
		}
	}
	return nil
}

// A bench is where sessions of one workspace are carried on.
type bench struct {
	*program
	*engine.Workspace
	root *workspace.Root
}

// A setup says how sessions are carried on.
type setup struct {
	workspace   string
	rules       domain.Rules
	agent       string
	steps       int
	provider    runner.Provider
	environment []string // of bash commands

	approvalLife time.Duration // of the approvals that are saved; 0: until they are revoked
}

// open returns the bench of a workspace, with the builtin tools registered for
// it. The caller closes its root.
func (p *program) open(ctx context.Context, a *app, s setup) (*bench, error) {
	root, err := workspace.Open(s.workspace)
	if err != nil {
		return nil, hinted(fmt.Errorf("--workspace: %w", err), "name a folder that exists")
	}
	b := &bench{program: p, root: root}
	b.Workspace, err = p.Open(ctx, engine.WorkspaceConfig{
		Location: root.Path(),
		Agents:   permission.Agents{Default: domain.AgentID(s.agent), Rules: map[domain.AgentID]domain.Rules{domain.AgentID(s.agent): s.rules}},
		Approver: a.approver(ctx), Person: osUser(), ApprovalLife: s.approvalLife,
		Tools: func(gate *permission.Gate) (registry.Tools, error) {
			return builtins.Tools(builtins.Config{Workspace: root, Permission: gate, Outputs: kept{p.outputs}, Environment: s.environment})
		},
		Runner: runner.Config{Provider: s.provider, Steps: s.steps},
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return b, nil
}
