package runner

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// Lives are the processes that began to use the ledger and are not on record
// as ended, in the order in which they began.
type Lives struct {
	Processes []events.ProcessStarted `json:"processes"`
}

// Processes is the projection of [Lives].
func Processes() projections.Projection[*Lives] {
	return projections.Projection[*Lives]{
		Name: "processes", Version: 1,
		Init: func() *Lives { return &Lives{} },
		Apply: func(s *Lives, v events.Envelope) *Lives {
			switch e := v.Event.(type) {
			case events.ProcessStarted:
				s.Processes = append(s.Processes, e)
			case events.ProcessStopped:
				s.end(e.Process)
			}
			return s
		},
	}
}

func (s *Lives) end(process domain.ProcessID) {
	for i, p := range s.Processes {
		if p.Process == process {
			s.Processes = append(s.Processes[:i], s.Processes[i+1:]...)
			return
		}
	}
}

// A Wreck is what dead processes left in a ledger.
type Wreck struct {
	Processes []domain.ProcessID // that are dead
	Catalog   *catalog.State
	Calls     *calls.State
}

// A Recovered says what a recovery ended.
type Recovered struct {
	Processes []domain.ProcessID `json:"processes"`
	Layers    []domain.LayerID   `json:"layers"`
	Sessions  []domain.SessionID `json:"sessions"`
}

// Salvage ends what dead processes left open: their layers are closed, with
// the reason events.ProcessLost; the open calls and requests for permission of
// their sessions are ended as [Runner.Recover] does; and then they are on record
// as ended. Imported sessions are left as they are. What an earlier recovery
// ended before it died is not ended again. It returns what it ended before an
// error, too.
func (r *Runner) Salvage(ctx context.Context, w Wreck) (Recovered, error) {
	done := Recovered{Processes: []domain.ProcessID{}, Layers: []domain.LayerID{}, Sessions: []domain.SessionID{}}
	dead := map[domain.ProcessID]bool{}
	for _, p := range w.Processes {
		dead[p] = true
	}
	for _, l := range w.Catalog.Layers() {
		if !l.Closed.IsZero() || !dead[l.Process] {
			continue
		}
		if err := r.closeLayer(ctx, l.ID); err != nil {
			return done, fmt.Errorf("recover: close layer %s: %w", l.ID, err)
		}
		done.Layers = append(done.Layers, l.ID)
	}
	waiting := undecided(w.Calls)
	for _, s := range w.Calls.Sessions() {
		if s.Origin.Kind != events.RunHere || s.Open == 0 && !waiting[s.ID] {
			continue
		}
		if err := r.Recover(ctx, s.ID); err != nil {
			return done, fmt.Errorf("recover: %w", err)
		}
		done.Sessions = append(done.Sessions, s.ID)
	}
	for _, p := range w.Processes {
		if err := r.append(ctx, events.ProcessStream(p), events.ProcessStopped{Process: p, Reason: events.ProcessLost}); err != nil {
			return done, fmt.Errorf("recover: end process %s: %w", p, err)
		}
		done.Processes = append(done.Processes, p)
	}
	return done, nil
}

// undecided returns the sessions in which a request for permission waits.
func undecided(s *calls.State) map[domain.SessionID]bool {
	waiting := map[domain.SessionID]bool{}
	for _, e := range s.Exceptions() {
		if e.Law == calls.WaitsForDecision {
			waiting[e.Session] = true
		}
	}
	return waiting
}

func (r *Runner) closeLayer(ctx context.Context, layer domain.LayerID) error {
	return r.append(ctx, events.LayerStream(layer), events.LayerClosed{Layer: layer, Reason: events.ProcessLost})
}

// append adds an event to the end of a stream, wherever that is.
func (r *Runner) append(ctx context.Context, s events.Stream, e events.Event) error {
	var length events.Revision
	for v, err := range r.config.Ledger.Read(ctx, s, 0) {
		if err != nil {
			return err
		}
		length = v.Revision
	}
	_, err := r.config.Ledger.Append(ctx, s, length, r.config.Ledger.Draft(e, domain.EventID{}))
	return err
}
