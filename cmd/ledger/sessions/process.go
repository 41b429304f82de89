package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// MinLease is the shortest lease that a process can renew in time.
const MinLease = time.Second

// A Launcher registers this process in stores, and runs and recovers sessions, for the
// commands of one command line. Its methods do not change its fields.
type Launcher struct {
	*render.Printer
	*stores.Opener
	Version string        // of this program
	Lease   time.Duration // of this process in a store that other processes have open too

	// Recover makes Start recover the sessions of dead processes also in a store
	// that other processes have open.
	Recover bool
	// Dead names the processes that the user declares dead, besides those that the
	// store shows to be dead. It moves them to the list Dead of its argument. Nil:
	// none.
	Dead func(*runner.Liveness) error

	// Terminal returns the terminal at which a person decides requests that the rules
	// leave undecided and answers questions, or nil if no person can be asked.
	// OpenWorkspace calls it once.
	Terminal     func(context.Context) *permission.Terminal
	Person       string                       // the user whose answers are recorded
	InputSummary func(json.RawMessage) string // shortens the input of a call to one phrase
}

// An ActiveProcess is this process, registered in an open store, with a lease. It is safe
// for concurrent use.
type ActiveProcess struct {
	*stores.Store
	*engine.Process
	Recovery StoreRecovery // set by Start
	launcher *Launcher
}

// A StoreRecovery is the result of a recovery: the ended processes, layers and sessions,
// and the removed outputs. Its JSON is the result of ledger recover.
type StoreRecovery struct {
	engine.RecoveryResult
	Outputs int   `json:"outputs"` // number of removed outputs, which no settlement names
	Bytes   int64 `json:"bytes"`   // size of the removed outputs
}

// Start registers this process in s and starts its lease. If l.Recover is set or this
// process has the lock of the folder, Start recovers the sessions of dead processes. On
// success the caller calls End, which closes s. After an error s is closed already.
func (l *Launcher) Start(ctx context.Context, s *stores.Store) (*ActiveProcess, error) {
	p := &ActiveProcess{Store: s, launcher: l}
	config := engine.ProcessConfig{
		ID: s.Process, Ledger: s.Ledger, Checkpoints: s.Checkpoints, Outputs: s.Outputs, Program: "ledger", Version: l.Version, Address: s.NodeAddress,
		Lease: l.Lease, InStore: s.Node == nil, Recover: l.Recover || s.Holds(),
		AdjustLiveness: func(j *runner.Liveness) error {
			s.EndHolders(j)
			if l.Dead == nil {
				return nil
			}
			return l.Dead(j)
		},
	}
	if s.Node == nil {
		config.SweepOutputs = func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error {
			swept, err := s.Sweep(ctx, recorded)
			p.Recovery.Outputs, p.Recovery.Bytes = swept.Outputs, swept.Bytes
			return err
		}
	}
	var err error
	if p.Process, err = engine.Start(ctx, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	p.Recovery.RecoveryResult = p.Process.Recovered()
	if s.Sharing != nil {
		if config.Recover {
			err = s.Sharing.Recovered()
		}
		again := func(ctx context.Context) { p.recoverAgain(ctx, l.Logger(slog.LevelWarn)) }
		s.TookOver.Store(&again)
		if !config.Recover && s.Holds() { // this process took the folder over after config was made
			again(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.End(ctx))
	}
	return p, nil
}

// recoverAgain recovers the sessions of the process that had the lock of the folder
// before this process took it over. It only logs a failure: the next recovery tries
// again.
func (p *ActiveProcess) recoverAgain(ctx context.Context, log *slog.Logger) {
	_, err := p.Recover(ctx)
	if err == nil {
		err = p.Sharing.Recovered()
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("sessions of the process that had the folder before not recovered: ledger recover recovers them", "error", err)
	}
}

// End records the end of this process and closes the store, also after ctx is done.
func (p *ActiveProcess) End(ctx context.Context) error {
	return errors.Join(p.Process.Close(ctx), p.Store.Close())
}

// With opens a store with the function open, registers this process in the store and
// calls the function use. It then records the end of the process and closes the store.
func (l *Launcher) With(ctx context.Context, open func(context.Context) (*stores.Store, error), use func(*ActiveProcess) error) error {
	s, err := open(ctx)
	if err != nil {
		return err
	}
	p, err := l.Start(ctx, s)
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.End(ctx))
}

// ShowRecovery prints the result of a recovery.
func (l *Launcher) ShowRecovery(r StoreRecovery) error {
	return l.Object(r, func() {
		if len(r.Processes)+len(r.Layers)+len(r.Sessions)+len(r.Left)+r.Outputs == 0 {
			l.Line("Nothing was left open.")
		} else {
			l.Line("Ended %s, %s and what was open in %s.", render.Count(len(r.Processes), "dead process"),
				render.Count(len(r.Layers), "layer"), render.Count(len(r.Sessions), "session"))
		}
		for _, id := range r.Sessions {
			l.Line("  %s", render.ShortID(id))
		}
		for _, left := range r.Left {
			l.Line("Left %s as it is, with open calls: %s", render.ShortID(left.Session), render.OneLine(left.Err.Error(), 200))
		}
		if r.Outputs > 0 {
			l.Line("Removed %s that no settlement names, %s.", render.Count(r.Outputs, "output"), render.Bytes(r.Bytes))
		}
		for _, p := range r.Living {
			l.Line("%s, process %d on %s, lives until %s at least.", render.ShortID(p.Process), p.PID, p.Host, l.ShortTime(p.Until))
		}
		for _, p := range r.Unknown {
			l.Line("%s, process %d on %s, has no lease: if you know that it is dead, name it with --process.", render.ShortID(p.Process), p.PID, p.Host)
		}
	})
}
