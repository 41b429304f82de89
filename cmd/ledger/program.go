package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// A program is this process at work in a store that it opened.
type program struct {
	*stores.Store
	*engine.Process
	recovered recovered
}

// recovered is what a recovery ended and removed.
type recovered struct {
	engine.Recovered
	Outputs int   `json:"outputs"` // that no settlement names
	Bytes   int64 `json:"bytes"`   // of those
}

// begin puts this process on record in an open store, with a lease. It recovers for
// the command that is there for it, and where this process holds the folder. The
// caller ends the program, and the store closes with it.
func (a *app) begin(ctx context.Context, s *stores.Store) (*program, error) {
	p := &program{Store: s}
	config := engine.ProcessConfig{
		ID: s.Process, Ledger: s.Ledger, Checkpoints: s.Checkpoints, Outputs: s.Outputs, Program: "ledger", Version: version(), Address: s.NodeAddress,
		Lease: a.lease, InStore: s.Node == nil, Recover: a.recovering || s.Holds(),
		Judge: func(j *runner.Liveness) error {
			s.EndHolders(j)
			return nameDead(j, a.dead)
		},
	}
	if s.Node == nil {
		config.Sweep = func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error {
			swept, err := s.Sweep(ctx, recorded)
			p.recovered.Outputs, p.recovered.Bytes = swept.Outputs, swept.Bytes
			return err
		}
	}
	var err error
	if p.Process, err = engine.Start(ctx, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	p.recovered.Recovered = p.Process.Recovered()
	if s.Sharing != nil {
		if config.Recover {
			err = s.Sharing.Recovered()
		}
		again := func(ctx context.Context) { p.recoverAgain(ctx, a.Logger(slog.LevelWarn)) }
		s.TookOver.Store(&again)
		if !config.Recover && s.Holds() { // it took the folder over meanwhile
			again(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.end(ctx))
	}
	return p, nil
}

// recoverAgain ends what the process left from which this one has taken the folder
// over. A failure loses nothing: the next recovery tries again.
func (p *program) recoverAgain(ctx context.Context, log *slog.Logger) {
	_, err := p.Recover(ctx)
	if err == nil {
		err = p.Sharing.Recovered()
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("what the last holder of the folder left is not recovered: ledger recover does", "error", err)
	}
}

// end ends the program and closes the store. What ctx asks for no longer matters.
func (p *program) end(ctx context.Context) error {
	return errors.Join(p.Process.Close(ctx), p.Store.Close())
}

// nameDead counts those processes of unknown fate as dead that are named. Naming
// one that lives is refused: it has a lease.
func nameDead(j *runner.Liveness, named []string) error {
	for _, name := range named {
		p, err := pick("process", name, processCandidates(slices.Concat(j.Dead, j.Living, j.Unknown)))
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
		return nil, fault.WithHint(fmt.Errorf("--workspace: %w", err), "name a folder that exists")
	}
	b := &bench{program: p, root: root}
	b.Workspace, err = p.Open(ctx, engine.WorkspaceConfig{
		Location: root.Path(),
		Agents:   permission.Agents{Default: domain.AgentID(s.agent), Rules: map[domain.AgentID]domain.Rules{domain.AgentID(s.agent): s.rules}},
		Approver: a.approver(ctx), Person: osUser(), ApprovalLife: s.approvalLife,
		Tools: func(gate *permission.Gate) (registry.Tools, error) {
			return builtins.Tools(builtins.Config{Workspace: root, Permission: gate, Outputs: kept{p.Outputs}, Environment: s.environment})
		},
		Runner: runner.Config{Provider: s.provider, Steps: s.steps},
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return b, nil
}

// kept opens managed outputs for the builtin tools.
type kept struct{ remote.BlobStore }

// Open opens one output.
func (k kept) Open(ctx context.Context, ref domain.Ref) (io.ReadCloser, domain.Retained, error) {
	out, err := k.BlobStore.Open(ctx, ref)
	if pruned, ok := errors.AsType[*outputs.PrunedError](err); ok {
		return nil, domain.Retained{}, &builtins.Pruned{At: pruned.At, Policy: pruned.Policy, SHA256: pruned.Retained.SHA256}
	}
	if errors.Is(err, outputs.ErrNotFound) {
		return nil, domain.Retained{}, fmt.Errorf("%w: %w", builtins.ErrAbsent, err)
	}
	if err != nil {
		return nil, domain.Retained{}, err
	}
	return out, out.Retained(), nil
}
