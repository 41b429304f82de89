package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/openwork"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// A ProcessConfig describes a process and the ledger it works in. Ledger and
// Program are required.
type ProcessConfig struct {
	// Ledger is the log. The caller opened its store, and closes it after
	// Process.Close has returned.
	Ledger *events.Ledger
	// Checkpoints store the states of projections between starts. Nil: each start folds
	// the whole log.
	Checkpoints projections.Checkpoints
	// Outputs keep tool outputs over the limits. Nil: a call with such an output
	// fails with the outcome retention_failed.
	Outputs registry.Outputs
	// SweepOutputs removes the stored outputs that no settlement references. Its argument
	// recorded reports whether the log contains a settlement. The recovery of Start calls
	// SweepOutputs when no other process may be alive. Nil: recovery removes no output.
	SweepOutputs func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error
	// InStore reports that Outputs is the store of outputs in the folder of the
	// ledger's store. The start event of the process records it, so that a backup or a
	// check of the folder reports lost outputs of this process as missing.
	InStore bool
	// ID is the ID under which the process goes on record. Zero: a new one.
	ID domain.ProcessID
	// Program and Version name the program in the record of the process.
	Program, Version string
	// Address is http://HOST:PORT or https://HOST:PORT at which other processes fetch
	// the outputs of this process. Empty: they cannot fetch them.
	Address string
	// Lease is the time for which each renewal keeps the process alive, in a store that
	// other processes may have open. Zero: no other process has the store open, as with
	// an embedded store that this process opened.
	Lease time.Duration
	// Recover makes Start recover the work of dead processes in a store with a Lease.
	// Without a Lease, Start always recovers.
	Recover bool
	// AdjustLiveness may change which processes count as dead, living or unknown. Each
	// recovery calls it once, and fails if it returns an error. Nil: no change.
	AdjustLiveness func(*runner.Liveness) error
}

// A Process is this process in a ledger: the log has its start, and the layers that it
// opens carry its ID. [Start] makes it. It is safe for concurrent use. The caller closes
// it.
type Process struct {
	config    ProcessConfig
	id        domain.ProcessID
	writer    *events.Writer // of the stream of this process
	lease     *runner.Lease  // nil: the store is held alone
	layers    *registry.Layers
	recovered RecoveryResult
	// stopKeeping ends keepCheckpoints. Nil: it does not run.
	stopKeeping func()
	// opening is held while the application layer is opened. It is acquired before mu.
	opening sync.Mutex
	// application is the application layer. Nil: there are no plugins for it. The lock
	// opening guards it.
	application *registry.Layer
	mu          struct {
		sync.Mutex
		approvals  map[string]*permission.Approvals // by location
		hosts      []*plugins.Host                  // in order of creation
		workspaces []*Workspace                     // in order of opening
	}
}

// A RecoveryResult lists what recovery settled and closed, and which other processes it
// did not touch.
type RecoveryResult struct {
	runner.RecoveryReport
	Living  []events.ProcessStarted `json:"living,omitempty"`  // their leases run
	Unknown []events.ProcessStarted `json:"unknown,omitempty"` // without a lease: alive or dead, the log does not say
}

// Start records this process in the ledger and, if it has a lease, starts to renew it.
// It then recovers: it settles the open calls of dead processes as lost, dismisses their
// permission requests, closes their layers and records these processes as stopped. The
// process may work until its lease is lost; see [Process.LeaseContext]. The caller
// closes the Process.
//
// Start returns ErrBadConfig, or the error of the store, of AdjustLiveness or of
// recovery. It then records the process as stopped, if the store still accepts an
// append.
func Start(ctx context.Context, config ProcessConfig) (*Process, error) {
	switch {
	case config.Ledger == nil:
		return nil, fmt.Errorf("start process: %w: Ledger is not set", ErrBadConfig)
	case config.Program == "":
		return nil, fmt.Errorf("start process: %w: Program is empty", ErrBadConfig)
	}
	l := config.Ledger
	p := &Process{config: config, id: config.ID}
	if p.id.IsZero() {
		p.id = l.Mint().Process()
	}
	p.layers = registry.NewLayers(l, p.id)
	p.writer = l.Writer(events.ProcessStream(p.id), 0)
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	started := events.ProcessStarted{
		Process: p.id, Host: host, PID: os.Getpid(), Program: config.Program, Version: config.Version, Address: config.Address,
		InStore: config.InStore,
	}
	if p.sharesStore() {
		started.Until = l.Now().Add(config.Lease)
	}
	if err := p.record(ctx, started); err != nil {
		err = fmt.Errorf("start process: %w", err)
		if !events.Refused(err) { // the start may be on record
			err = errors.Join(err, p.Close(ctx))
		}
		return nil, err
	}
	if p.sharesStore() {
		p.lease = runner.KeepLease(ctx, l, p.writer, p.id, config.Lease)
	}
	if !p.sharesStore() || config.Recover {
		if p.recovered, err = p.recover(ctx, p.sweep); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
		if config.Checkpoints != nil {
			p.keepCheckpoints(ctx)
		}
	}
	return p, nil
}

// checkpointInterval is the time after which a process saves the states that the recovery of
// its successor needs.
const checkpointInterval = 10 * time.Second

// keepCheckpoints saves a checkpoint of the open work, the processes and the approvals in
// every checkpointInterval, until Close. The successor of a killed process then reads the
// events of the last interval, however long this process ran.
func (p *Process) keepCheckpoints(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	p.stopKeeping = func() { cancel(); keeping.Wait() }
	keeping.Go(func() {
		tick := time.NewTicker(checkpointInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			l, c := p.config.Ledger, p.config.Checkpoints
			// An error costs the successor the events of another interval.
			_, _ = projections.Saved(ctx, openwork.Projection(), l, c)
			_, _ = projections.Saved(ctx, runner.Processes(), l, c)
			_, _ = projections.Saved(ctx, Approvals(), l, c)
		}
	})
}

// sharesStore reports whether other processes may have the store open.
func (p *Process) sharesStore() bool { return p.config.Lease > 0 }

// ID returns the ID of the process in the log.
func (p *Process) ID() domain.ProcessID { return p.id }

// Recovered returns the result of the recovery in Start.
func (p *Process) Recovered() RecoveryResult { return p.recovered }

// LeaseContext returns a context that ends with ctx, and with runner.ErrLeaseLost as its
// cause when the lease expires: other processes may then consider this process dead.
// Sessions run under this context. The caller calls the returned function to release it.
// Without a lease the context ends with ctx only.
func (p *Process) LeaseContext(ctx context.Context) (context.Context, context.CancelFunc) {
	alive, cancel := context.WithCancelCause(ctx)
	if p.lease == nil {
		return alive, func() { cancel(nil) }
	}
	lost := p.lease.Alive()
	stop := context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })
	return alive, func() { stop(); cancel(nil) }
}

// record appends an event to the stream of this process.
func (p *Process) record(ctx context.Context, e events.Event) error {
	_, err := p.writer.Append(ctx, p.config.Ledger.Draft(e, domain.EventID{}))
	return err
}

// Close waits up to registry.DefaultGrace for running tools, closes plugins and layers,
// stops renewing the lease, and records that the process stopped. Close takes all of
// these steps even if ctx has ended or a step fails, and joins the errors. It does not
// close the store.
func (p *Process) Close(ctx context.Context) error {
	errs := []error{p.waitForTools(ctx)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registry.DefaultGrace)
	defer cancel()
	for _, h := range slices.Backward(p.hosts()) {
		errs = append(errs, h.Close(ctx))
	}
	errs = append(errs, p.layers.Close(ctx))
	if p.lease != nil {
		p.lease.Close()
	}
	if p.stopKeeping != nil {
		p.stopKeeping()
	}
	errs = append(errs, p.record(ctx, events.ProcessStopped{Process: p.id, Reason: events.ProcessEnded}))
	return errors.Join(errs...)
}

// waitForTools waits up to registry.DefaultGrace for running tools. Its timeout is
// separate from that of the other steps of Close.
func (p *Process) waitForTools(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registry.DefaultGrace)
	defer cancel()
	return p.layers.Wait(ctx)
}

// Recover recovers the work of processes that died since Start: it settles their open
// calls, dismisses their open permission requests and closes their layers. It does not
// touch the sessions of this process. It does not sweep outputs, because a running call
// of this process may have stored an output whose settlement is not recorded yet; the
// recovery of a later Start sweeps. A process that takes over a shared folder calls
// Recover.
func (p *Process) Recover(ctx context.Context) (RecoveryResult, error) { return p.recover(ctx, nil) }

// recover folds the open work and the processes from the log. It finds the
// dead processes by their leases and settles their work. If sweep is not nil, recover
// then calls sweep, unless another process is alive or a session could not be
// recovered. The caller passes sweep only if this process has stored no outputs yet.
func (p *Process) recover(ctx context.Context, sweep func(context.Context) error) (done RecoveryResult, err error) {
	l, checkpoints := p.config.Ledger, p.config.Checkpoints
	var w runner.Orphans
	if w.Open, err = projections.Saved(ctx, openwork.Projection(), l, checkpoints); err != nil {
		return done, fmt.Errorf("recover: %w", err)
	}
	// Folded last: a process whose call is among those above is on record here.
	started, err := projections.Saved(ctx, runner.Processes(), l, checkpoints)
	if err != nil {
		return done, fmt.Errorf("recover: %w", err)
	}
	w.Started = started
	judged := started.Judge(p.id, l.Now(), !p.sharesStore())
	if p.config.AdjustLiveness != nil {
		if err := p.config.AdjustLiveness(&judged); err != nil {
			return done, err
		}
	}
	w.Processes, w.Others = processIDs(judged.Dead), append(processIDs(slices.Concat(judged.Living, judged.Unknown)), p.id)
	// A registry without layers finds every offered tool stale, and runs none.
	empty, err := p.layers.Registry(registry.Config{Outputs: p.config.Outputs})
	if err != nil {
		return done, fmt.Errorf("recover: %w", err)
	}
	done.RecoveryReport, err = runner.New(runner.Config{Ledger: l, Registry: empty}).RecoverAll(ctx, w)
	if err != nil {
		return done, err
	}
	done.Living, done.Unknown = judged.Living, judged.Unknown
	if sweep == nil || len(judged.Living) > 0 || len(done.Left) > 0 {
		return done, nil // an output may be that of a call that another process runs, or be named by an event of an unknown kind
	}
	return done, sweep(ctx)
}

// sweep removes the outputs that no settlement references. It reads the log and not a
// checkpoint, because a wrong checkpoint would delete an output. An event of an unknown
// kind counts as a settlement.
func (p *Process) sweep(ctx context.Context) error {
	if p.config.SweepOutputs == nil {
		return nil
	}
	recorded := sync.OnceValues(func() (map[domain.EventID]bool, error) { return p.settlements(ctx) })
	err := p.config.SweepOutputs(ctx, func(_ context.Context, id domain.EventID) (bool, error) {
		ids, err := recorded()
		return ids[id], err
	})
	if err != nil {
		return fmt.Errorf("recover outputs: %w", err)
	}
	return nil
}

// settlements returns the IDs of all settlement events in the log, and of all events of
// an unknown kind.
func (p *Process) settlements(ctx context.Context) (map[domain.EventID]bool, error) {
	settled := events.CallSettled{}.Kind()
	ids := map[domain.EventID]bool{}
	for h, err := range p.config.Ledger.Headers(ctx, events.Query{}) {
		if err != nil {
			return nil, err
		}
		if h.Kind == settled || !events.Knows(h.Kind) {
			ids[h.ID] = true
		}
	}
	return ids, nil
}

// otherOwner returns another process that may be alive and that opened one of the
// layers, or the zero ID. It reads the log on every call, because processes start and
// stop.
func (p *Process) otherOwner(ctx context.Context, layers []domain.LayerID) (domain.ProcessID, error) {
	if !p.sharesStore() {
		return domain.ProcessID{}, nil
	}
	started, err := projections.Current(ctx, runner.Processes(), p.config.Ledger, p.config.Checkpoints)
	if err != nil {
		return domain.ProcessID{}, err
	}
	judged := started.Judge(p.id, p.config.Ledger.Now(), false)
	return runner.Orphans{Started: started, Others: processIDs(slices.Concat(judged.Living, judged.Unknown))}.Elsewhere(layers), nil
}

// processIDs returns the IDs of processes.
func processIDs(started []events.ProcessStarted) (processIDs []domain.ProcessID) {
	for _, p := range started {
		processIDs = append(processIDs, p.Process)
	}
	return processIDs
}
