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
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A ProcessConfig describes a process and the ledger it works in. Ledger and
// Program are required.
type ProcessConfig struct {
	// Ledger is the log. The caller opened its store, and closes it after
	// Process.Close has returned.
	Ledger *events.Ledger
	// Checkpoints keep folded answers between starts. Nil: each start folds the
	// whole log.
	Checkpoints projections.Checkpoints
	// Outputs keep tool outputs over the limits. Nil: a call with such an output
	// fails with the outcome retention_failed.
	Outputs registry.Outputs
	// SweepOutputs removes the kept outputs that no settlement names: recorded reports
	// whether the log has a settlement. Recovery calls it when no other process
	// may be alive. Nil: recovery removes no output.
	SweepOutputs func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error
	// InStore says that Outputs are those in the folder of the store, so that a
	// backup or a check of the folder misses them where they are lost.
	InStore bool
	// ID is the ID under which the process goes on record. Zero: a new one.
	ID domain.ProcessID
	// Program and Version name the program in the record of the process.
	Program, Version string
	// Address is where other processes fetch the outputs that this one keeps,
	// as http://HOST:PORT or https://HOST:PORT. Empty: nowhere.
	Address string
	// Lease is for how long the process counts as alive after each renewal, in a
	// store that other processes have open too. Zero: this process holds the
	// store alone, as one that opened an embedded store does.
	Lease time.Duration
	// Recover makes Start recover in a store that is shared. In a store that
	// this process holds alone, Start always recovers.
	Recover bool
	// AdjustLiveness may change which processes count as dead, living or unknown before
	// recovery. It is called once, and an error of it ends Start. Nil: no change.
	AdjustLiveness func(*runner.Liveness) error
}

// A Process is this process at work in a ledger: it is on record as started,
// and the layers that it opens carry its ID. Start makes one. It is safe for
// concurrent use.
type Process struct {
	config    ProcessConfig
	id        domain.ProcessID
	writer    *events.Writer // of the stream of this process
	lease     *runner.Lease  // nil: the store is held alone
	layers    *registry.Layers
	recovered RecoveryResult
	mu        struct {
		sync.Mutex
		approvals map[string]*permission.Approvals // by location
	}
}

// RecoveryResult says what the recovery of Start ended, and which other processes it
// left as they are.
type RecoveryResult struct {
	runner.RecoveryReport
	Living  []events.ProcessStarted `json:"living,omitempty"`  // their leases run
	Unknown []events.ProcessStarted `json:"unknown,omitempty"` // without a lease: alive or dead, the log does not say
}

// Start records this process in the ledger and begins to renew its lease, if
// it has one. It then recovers: it closes the layers that dead processes left,
// ends the calls and the permission requests that they left open, and records
// these processes as stopped. The caller closes the Process. The process works
// until ctx ends or its lease is lost; see [Process.Alive].
//
// Start returns the error of the store, of Judge or of recovery. The process is
// then on record as stopped, if the store still takes an append.
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
		if p.recovered, err = p.recover(ctx); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
	}
	return p, nil
}

func (p *Process) sharesStore() bool { return p.config.Lease > 0 }

// ID returns the ID under which the process is on record.
func (p *Process) ID() domain.ProcessID { return p.id }

// Recovered returns what the recovery of Start ended.
func (p *Process) Recovered() RecoveryResult { return p.recovered }

// LeaseContext returns a context that ends with ctx, and with runner.ErrLeaseLost when
// this process may no longer work, since others may count it as dead. Sessions
// are run under it. The caller calls the returned function to free it.
func (p *Process) LeaseContext(ctx context.Context) (context.Context, context.CancelFunc) {
	alive, cancel := context.WithCancelCause(ctx)
	if p.lease == nil {
		return alive, func() { cancel(nil) }
	}
	lost := p.lease.Alive()
	stop := context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })
	return alive, func() { stop(); cancel(nil) }
}

// record appends to the stream of this process.
func (p *Process) record(ctx context.Context, e events.Event) error {
	_, err := p.writer.Append(ctx, p.config.Ledger.Draft(e, domain.EventID{}))
	return err
}

// Close waits up to registry.DefaultGrace for tools that still run, closes the
// layers that are still open, stops renewing the lease, and records that the
// process stopped. The end of ctx does not keep it from that. It does not close
// the store. It returns the joined errors of these steps; the steps behind one
// that failed are taken all the same.
func (p *Process) Close(ctx context.Context) error {
	errs := []error{p.waitForTools(ctx)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registry.DefaultGrace)
	defer cancel()
	errs = append(errs, p.layers.Close(ctx))
	if p.lease != nil {
		p.lease.Close()
	}
	errs = append(errs, p.record(ctx, events.ProcessStopped{Process: p.id, Reason: events.ProcessEnded}))
	return errors.Join(errs...)
}

// waitForTools waits for tools that still run, for at most registry.DefaultGrace. It
// uses no time of the context with which the caller records the end of the process.
func (p *Process) waitForTools(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registry.DefaultGrace)
	defer cancel()
	return p.layers.Wait(ctx)
}

// Recover settles the open calls, dismisses the open permission requests and closes the
// layers of processes that died since Start. It does not touch the sessions that this process
// runs. A process that becomes the holder of a folder calls it.
func (p *Process) Recover(ctx context.Context) (RecoveryResult, error) { return p.recover(ctx) }

// recover settles and closes the open work of dead processes.
func (p *Process) recover(ctx context.Context) (done RecoveryResult, err error) {
	l, checkpoints := p.config.Ledger, p.config.Checkpoints
	var w runner.Orphans
	if w.Catalog, err = projections.Current(ctx, catalog.Projection(), l, checkpoints); err != nil {
		return done, fmt.Errorf("recover: %w", err)
	}
	if w.Calls, err = projections.Current(ctx, calls.Projection(), l, checkpoints); err != nil {
		return done, fmt.Errorf("recover: %w", err)
	}
	// Folded last: a process whose call is among those above is on record here.
	started, err := projections.Current(ctx, runner.Processes(), l, checkpoints)
	if err != nil {
		return done, fmt.Errorf("recover: %w", err)
	}
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
	if p.config.SweepOutputs == nil || len(judged.Living) > 0 || len(done.Left) > 0 {
		return done, nil // an output may be that of a call that another process runs, or be named by an event of an unknown kind
	}
	return done, p.sweep(ctx)
}

// sweep removes the outputs that no settlement on record names. It asks the log
// and no checkpoint, since a wrong answer loses an output. An event of a kind that
// this program does not know may be a settlement too.
func (p *Process) sweep(ctx context.Context) error {
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

// settlements returns the IDs of the events that may be settlements.
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

// otherOwner returns another process that may be alive and opened one of these
// layers, or the zero ID. It folds the log anew, since processes come and go.
func (p *Process) otherOwner(ctx context.Context, layers []domain.LayerID) (domain.ProcessID, error) {
	if !p.sharesStore() {
		return domain.ProcessID{}, nil
	}
	started, err := projections.Current(ctx, runner.Processes(), p.config.Ledger, p.config.Checkpoints)
	if err != nil {
		return domain.ProcessID{}, err
	}
	places, err := projections.Current(ctx, catalog.Projection(), p.config.Ledger, p.config.Checkpoints)
	if err != nil {
		return domain.ProcessID{}, err
	}
	judged := started.Judge(p.id, p.config.Ledger.Now(), false)
	return runner.Orphans{Catalog: places, Others: processIDs(slices.Concat(judged.Living, judged.Unknown))}.Elsewhere(layers), nil
}

func processIDs(started []events.ProcessStarted) (processIDs []domain.ProcessID) {
	for _, p := range started {
		processIDs = append(processIDs, p.Process)
	}
	return processIDs
}
