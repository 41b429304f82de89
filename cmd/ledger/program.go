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

// A program is this process on record in an open store, with a lease and the result
// of its recovery.
type program struct {
	*stores.Store
	*engine.Process
	recovered recovered
}

// A recovered is the result of a recovery: the ended processes, layers and sessions,
// and the removed outputs. recover prints it as JSON.
type recovered struct {
	engine.RecoveryResult
	Outputs int   `json:"outputs"` // number of removed outputs, which no settlement names
	Bytes   int64 `json:"bytes"`   // size of the removed outputs
}

// begin records this process in s and starts its lease. It recovers the sessions of
// dead processes if the command is recover or this process holds the lock of the
// folder. On success the caller ends the program, which closes s; on an error begin
// has closed s.
func (a *app) begin(ctx context.Context, s *stores.Store) (*program, error) {
	p := &program{Store: s}
	config := engine.ProcessConfig{
		ID: s.Process, Ledger: s.Ledger, Checkpoints: s.Checkpoints, Outputs: s.Outputs, Program: "ledger", Version: version(), Address: s.NodeAddress,
		Lease: a.lease, InStore: s.Node == nil, Recover: a.recovering || s.Holds(),
		AdjustLiveness: func(j *runner.Liveness) error {
			s.EndHolders(j)
			return nameDead(j, a.dead)
		},
	}
	if s.Node == nil {
		config.SweepOutputs = func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error {
			swept, err := s.Sweep(ctx, recorded)
			p.recovered.Outputs, p.recovered.Bytes = swept.Outputs, swept.Bytes
			return err
		}
	}
	var err error
	if p.Process, err = engine.Start(ctx, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	p.recovered.RecoveryResult = p.Process.Recovered()
	if s.Sharing != nil {
		if config.Recover {
			err = s.Sharing.Recovered()
		}
		again := func(ctx context.Context) { p.recoverAgain(ctx, a.Logger(slog.LevelWarn)) }
		s.TookOver.Store(&again)
		if !config.Recover && s.Holds() { // this process took the folder over after config was made
			again(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.end(ctx))
	}
	return p, nil
}

// recoverAgain recovers the sessions of the process from which this process took the
// folder over. It only logs a failure: the next recovery tries again.
func (p *program) recoverAgain(ctx context.Context, log *slog.Logger) {
	_, err := p.Recover(ctx)
	if err == nil {
		err = p.Sharing.Recovered()
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("what the last holder of the folder left is not recovered: ledger recover does", "error", err)
	}
}

// end records the end of this process and closes the store. It does so also after
// ctx is done.
func (p *program) end(ctx context.Context) error {
	return errors.Join(p.Process.Close(ctx), p.Store.Close())
}

// nameDead moves the processes of --process from j.Unknown to j.Dead. A named
// process with a valid lease is a conflict fault.
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

// A bench is a program with a workspace: the tools are registered and sessions can
// run.
type bench struct {
	*program
	*engine.Workspace
	root *workspace.Root // the folder; the caller of open closes it
}

// A setup configures how sessions of a workspace run.
type setup struct {
	workspace   string          // the folder that the tools work in
	rules       domain.Rules    // the permission rules of the agent
	agent       string          // the agent of the session; resume takes it from the log
	steps       int             // most replies to one prompt; 0: unlimited
	provider    runner.Provider // the source of replies
	environment []string        // the environment of bash commands, NAME=VALUE

	approvalLife time.Duration // how long a saved approval is valid; 0: until it is revoked
}

// open opens the workspace of s and registers the builtin tools for it. The caller
// closes the root of the bench.
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

// A kept adapts the output store to the interface of the builtin tools, and
// translates its errors to theirs.
type kept struct{ remote.BlobStore }

// Open opens the output of ref, and returns it with its description. A pruned output
// is a *builtins.Pruned, an unknown one builtins.ErrAbsent. The caller closes the
// reader.
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
