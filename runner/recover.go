package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/openwork"
)

// A ProcessList holds the processes that started and are not on record as ended, in
// the order of their start, each with its latest lease, and their layers. It is the state of
// the projection [Processes], so it has a JSON form.
type ProcessList struct {
	Processes []events.ProcessStarted `json:"processes"`
	// Layers are the layers of these processes, in order of opening: the open ones, and of
	// each process the last 1,024 closed ones, because a call may be open that was offered
	// in a layer closed since.
	Layers []ProcessLayer `json:"layers,omitempty"`
}

// A ProcessLayer is a layer of a process.
type ProcessLayer struct {
	Layer   domain.LayerID   `json:"layer"`
	Process domain.ProcessID `json:"process"`
	Closed  bool             `json:"closed,omitempty"`
}

// maxClosedLayers is the number of closed layers of a process in a ProcessList.
const maxClosedLayers = 1024

// Processes returns the projection of a [ProcessList].
func Processes() projections.Projection[*ProcessList] {
	return projections.Projection[*ProcessList]{
		Name: "processes", Version: 3,
		Reads: events.Filter{Kinds: []string{
			events.ProcessStarted{}.Kind(), events.LeaseRenewed{}.Kind(), events.ProcessStopped{}.Kind(),
			events.LayerOpened{}.Kind(), events.LayerClosed{}.Kind(),
		}},
		Init: func() *ProcessList { return &ProcessList{} },
		Apply: func(s *ProcessList, v events.Envelope) *ProcessList {
			switch e := v.Event.(type) {
			case events.ProcessStarted:
				s.Processes = append(s.Processes, e)
			case events.LeaseRenewed:
				s.renew(e)
			case events.ProcessStopped:
				s.end(e.Process)
			case events.LayerOpened:
				s.openLayer(e)
			case events.LayerClosed:
				s.closeLayer(e.Layer)
			}
			return s
		},
	}
}

// openLayer adds a layer of a process in the list. It ignores a repeated opening.
func (s *ProcessList) openLayer(e events.LayerOpened) {
	started := slices.ContainsFunc(s.Processes, func(p events.ProcessStarted) bool { return p.Process == e.Process })
	if started && !slices.ContainsFunc(s.Layers, func(l ProcessLayer) bool { return l.Layer == e.Layer }) {
		s.Layers = append(s.Layers, ProcessLayer{Layer: e.Layer, Process: e.Process})
	}
}

// closeLayer marks a layer as closed, and removes the first closed layer of its process if
// there are too many.
func (s *ProcessList) closeLayer(id domain.LayerID) {
	i := slices.IndexFunc(s.Layers, func(l ProcessLayer) bool { return l.Layer == id })
	if i < 0 {
		return
	}
	s.Layers[i].Closed = true
	closed, first := 0, -1
	for j, l := range s.Layers {
		if !l.Closed || l.Process != s.Layers[i].Process {
			continue
		}
		if closed++; first < 0 {
			first = j
		}
	}
	if closed > maxClosedLayers {
		s.Layers = slices.Delete(s.Layers, first, first+1)
	}
}

// renew extends the lease of a process. A renewal never shortens a lease, so the order of
// renewals does not matter.
func (s *ProcessList) renew(e events.LeaseRenewed) {
	for i, p := range s.Processes {
		if p.Process == e.Process && p.Until.Before(e.Until) {
			s.Processes[i].Until = e.Until
		}
	}
}

// end removes a process that stopped, and its layers. It has no effect for an unknown
// process.
func (s *ProcessList) end(process domain.ProcessID) {
	s.Layers = slices.DeleteFunc(s.Layers, func(l ProcessLayer) bool { return l.Process == process })
	for i, p := range s.Processes {
		if p.Process == process {
			s.Processes = append(s.Processes[:i], s.Processes[i+1:]...)
			return
		}
	}
}

// A Liveness classifies the processes of a ProcessList by their leases.
type Liveness struct {
	// Dead are processes whose lease ran out more than LeaseMargin ago, and processes
	// without a lease if the caller holds the store exclusively.
	Dead []events.ProcessStarted
	// Living are processes whose lease has not run out, or ran out at most LeaseMargin
	// ago.
	Living []events.ProcessStarted
	// Unknown are processes without a lease that may hold the store.
	Unknown []events.ProcessStarted
}

// Judge classifies all processes except self at the time now of the caller's clock. A
// process with a lease is dead once LeaseMargin has passed after the end of its lease.
// A process without a lease is dead if alone is true, which means that the caller holds
// the store exclusively, and is otherwise unknown.
func (s *ProcessList) Judge(self domain.ProcessID, now time.Time, alone bool) (j Liveness) {
	for _, p := range s.Processes {
		switch {
		case p.Process == self:
		case p.Until.IsZero() && alone, !p.Until.IsZero() && now.After(p.Until.Add(LeaseMargin)):
			j.Dead = append(j.Dead, p)
		case p.Until.IsZero():
			j.Unknown = append(j.Unknown, p)
		default:
			j.Living = append(j.Living, p)
		}
	}
	return j
}

// An Orphans describes the work that dead processes left open, for [Runner.RecoverAll].
// The caller folds Open and then Started from the whole log, so that the process of an open
// call is on record in Started.
type Orphans struct {
	// Processes are the dead processes.
	Processes []domain.ProcessID
	// Others are processes that may be alive. RecoverAll leaves their sessions unchanged.
	Others []domain.ProcessID
	// Started has the layers of all processes. Open has the sessions with open work.
	Started *ProcessList
	Open    *openwork.State
}

// A RecoveryReport lists the processes, layers and sessions whose open work a recovery
// ended, and the sessions that it could not recover.
type RecoveryReport struct {
	Processes []domain.ProcessID `json:"processes"`
	Layers    []domain.LayerID   `json:"layers"`
	Sessions  []domain.SessionID `json:"sessions"`
	Left      []Unrecovered      `json:"left,omitempty"`
}

// An Unrecovered is a session with open calls that a recovery could not end. The recovery
// left the session unchanged, and the next recovery tries again.
type Unrecovered struct {
	Session domain.SessionID
	// Err is the reason.
	Err error
}

// MarshalJSON writes the session and the text of the error.
func (l Unrecovered) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Session domain.SessionID `json:"session"`
		Error   string           `json:"error"`
	}{l.Session, l.Err.Error()})
}

// RecoverAll ends the open work of dead processes. It closes their layers with the
// reason events.ProcessLost, ends the open calls and permission requests of sessions as
// [Runner.Recover] does, and then records the end of the processes. It ends no work
// that an earlier recovery has ended.
//
// RecoverAll skips imported sessions, and sessions that a process of w.Others may be
// running. Such a process owns the layer of a tool that the last turn or an open call
// was offered.
//
// A session that cannot be recovered for a reason of its own does not stop the others.
// RecoverAll reports a session with an unknown kind of event, or with another appender,
// in RecoveryReport.Left. An error of the store ends the recovery; RecoverAll then
// returns this error and the report so far.
func (r *Runner) RecoverAll(ctx context.Context, w Orphans) (RecoveryReport, error) {
	done := RecoveryReport{Processes: []domain.ProcessID{}, Layers: []domain.LayerID{}, Sessions: []domain.SessionID{}}
	dead := map[domain.ProcessID]bool{}
	for _, p := range w.Processes {
		dead[p] = true
	}
	for _, l := range w.Started.Layers {
		if l.Closed || !dead[l.Process] {
			continue
		}
		if err := r.closeLayer(ctx, l.Layer); err != nil {
			return done, fmt.Errorf("recover: close layer %s: %w", l.Layer, err)
		}
		done.Layers = append(done.Layers, l.Layer)
	}
	for _, s := range w.Open.Sessions() {
		elsewhere, err := r.runsElsewhere(ctx, w, s.ID)
		if err == nil && !elsewhere {
			err = r.Recover(ctx, s.ID)
		}
		switch {
		case errors.Is(err, ErrImported):
		case isSessionError(err):
			done.Left = append(done.Left, Unrecovered{s.ID, err})
		case err != nil:
			return done, fmt.Errorf("recover: %w", err)
		case !elsewhere:
			done.Sessions = append(done.Sessions, s.ID)
		}
	}
	for _, p := range w.Processes {
		if err := r.append(ctx, events.ProcessStream(p), events.ProcessStopped{Process: p, Reason: events.ProcessLost}); err != nil {
			return done, fmt.Errorf("recover: end process %s: %w", p, err)
		}
		done.Processes = append(done.Processes, p)
	}
	return done, nil
}

// isSessionError reports whether an error concerns one session only, so that the other
// sessions can still be recovered.
func isSessionError(err error) bool {
	for _, of := range []error{
		events.ErrUnknownKind, events.ErrDamaged, events.ErrConflict, events.ErrBadRecord, events.ErrTooLarge, ErrElsewhere, ErrNoProgress,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// Elsewhere returns a process of Others that opened one of layers, or the zero ID if
// there is none.
func (w Orphans) Elsewhere(layers []domain.LayerID) domain.ProcessID {
	for _, id := range layers {
		i := slices.IndexFunc(w.Started.Layers, func(l ProcessLayer) bool { return l.Layer == id })
		if i >= 0 && slices.Contains(w.Others, w.Started.Layers[i].Process) {
			return w.Started.Layers[i].Process
		}
	}
	return domain.ProcessID{}
}

// runsElsewhere reports whether a process of Others may be running a session. It reads
// the session only if there are Others.
func (r *Runner) runsElsewhere(ctx context.Context, w Orphans, session domain.SessionID) (bool, error) {
	if len(w.Others) == 0 {
		return false, nil
	}
	live := r.use(session)
	defer r.release(live)
	f, err := r.load(ctx, live)
	if err != nil {
		return false, err
	}
	begun, waiting := open(f.state)
	layers := layersOf(f.state, append(begun, waiting...))
	r.keep(live, f)
	return !w.Elsewhere(layers).IsZero(), nil
}

// closeLayer records the closing of a layer of a dead process, which ends its
// registrations.
func (r *Runner) closeLayer(ctx context.Context, layer domain.LayerID) error {
	return r.append(ctx, events.LayerStream(layer), events.LayerClosed{Layer: layer, Reason: events.ProcessLost})
}

// append finds the length of stream s and appends the event e at that length. It
// returns an *events.Conflict if another process, such as a second recovery, appends in
// between.
func (r *Runner) append(ctx context.Context, s events.Stream, e events.Event) error {
	length, err := r.length(ctx, s)
	if err != nil {
		return err
	}
	_, err = r.config.Ledger.Append(ctx, s, length, r.config.Ledger.Draft(e, domain.EventID{}))
	return err
}

// length returns the length of a stream. It looks up single events: their number grows with
// the logarithm of the length.
func (r *Runner) length(ctx context.Context, s events.Stream) (events.Revision, error) {
	longer := func(than events.Revision) (bool, error) {
		for _, err := range r.config.Ledger.Read(ctx, s, than) {
			return err == nil, err
		}
		return false, nil
	}
	low, high := events.Revision(0), events.Revision(1)
	for {
		if is, err := longer(high - 1); err != nil {
			return 0, err
		} else if !is {
			break
		}
		low, high = high, 2*high
	}
	// The stream has low events at least, and fewer than high.
	for low+1 < high {
		middle := low + (high-low)/2
		is, err := longer(middle - 1)
		if err != nil {
			return 0, err
		}
		if is {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}
