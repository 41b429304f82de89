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
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// ProcessList are the processes that began to use the ledger and are not on record
// as ended, in the order in which they began. Their leases are as renewed last.
type ProcessList struct {
	Processes []events.ProcessStarted `json:"processes"`
}

// Processes is the projection of [ProcessList].
func Processes() projections.Projection[*ProcessList] {
	return projections.Projection[*ProcessList]{
		Name: "processes", Version: 2,
		Init: func() *ProcessList { return &ProcessList{} },
		Apply: func(s *ProcessList, v events.Envelope) *ProcessList {
			switch e := v.Event.(type) {
			case events.ProcessStarted:
				s.Processes = append(s.Processes, e)
			case events.LeaseRenewed:
				s.renew(e)
			case events.ProcessStopped:
				s.end(e.Process)
			}
			return s
		},
	}
}

func (s *ProcessList) renew(e events.LeaseRenewed) {
	for i, p := range s.Processes {
		if p.Process == e.Process && p.Until.Before(e.Until) {
			s.Processes[i].Until = e.Until
		}
	}
}

func (s *ProcessList) end(process domain.ProcessID) {
	for i, p := range s.Processes {
		if p.Process == process {
			s.Processes = append(s.Processes[:i], s.Processes[i+1:]...)
			return
		}
	}
}

// A Liveness says which processes are dead. Nothing in it is guessed.
type Liveness struct {
	Dead    []events.ProcessStarted // their lease ran out, or they had none and cannot have the store
	Living  []events.ProcessStarted // their lease has not run out
	Unknown []events.ProcessStarted // they have no lease, and may have the store
}

// Judge judges all processes but one, the judge's own, at a moment by the
// judge's clock. Whoever holds the store alone knows that processes without a
// lease are dead. One with a lease is dead [LeaseMargin] after that ran out.
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

// An Orphans is what dead processes left in a ledger.
type Orphans struct {
	Processes []domain.ProcessID // that are dead
	Others    []domain.ProcessID // that may be alive: their sessions are left as they are
	Catalog   *catalog.State
	Calls     *calls.State
}

// A RecoveryReport says what a recovery ended, and which sessions it could not end.
type RecoveryReport struct {
	Processes []domain.ProcessID `json:"processes"`
	Layers    []domain.LayerID   `json:"layers"`
	Sessions  []domain.SessionID `json:"sessions"`
	Left      []Unrecovered      `json:"left,omitempty"`
}

// An Unrecovered is a session with open calls that a recovery could not end and left as
// it was. The next recovery tries again.
type Unrecovered struct {
	Session domain.SessionID
	Err     error // why
}

// MarshalJSON writes the session and the text of the error.
func (l Unrecovered) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Session domain.SessionID `json:"session"`
		Error   string           `json:"error"`
	}{l.Session, l.Err.Error()})
}

// RecoverAll ends what dead processes left open: their layers are closed, with
// the reason events.ProcessLost; the open calls and requests for permission of
// their sessions are ended as [Runner.Recover] does; and then they are on record
// as ended. Imported sessions are left as they are, and so are those that
// another process may be carrying on: those whose last turn offered its tools,
// or whose calls run under them. What an earlier recovery ended before it died
// is not ended again.
//
// A session that cannot be recovered for a reason of its own stops no other: one
// that holds a kind of event that this program does not know, or that somebody
// else appends to, is reported as Left. An error of the store ends the recovery,
// and Salvage returns it with what was ended before.
func (r *Runner) RecoverAll(ctx context.Context, w Orphans) (RecoveryReport, error) {
	done := RecoveryReport{Processes: []domain.ProcessID{}, Layers: []domain.LayerID{}, Sessions: []domain.SessionID{}}
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
	waiting := sessionsWaiting(w.Calls)
	for _, s := range w.Calls.Sessions() {
		if s.Origin.Kind != events.RunHere || s.Open == 0 && !waiting[s.ID] {
			continue
		}
		elsewhere, err := r.runsElsewhere(ctx, w, s.ID)
		if err == nil && !elsewhere {
			err = r.Recover(ctx, s.ID)
		}
		switch {
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

// isSessionError reports whether an error says something about one session, so that
// others can be recovered all the same.
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

// Elsewhere returns a process among Others that opened one of these layers, and
// the zero ID if there is none.
func (w Orphans) Elsewhere(layers []domain.LayerID) domain.ProcessID {
	for _, id := range layers {
		if l, ok := w.Catalog.Brief(id); ok && slices.Contains(w.Others, l.Process) {
			return l.Process
		}
	}
	return domain.ProcessID{}
}

// runsElsewhere reports whether a process that may be alive carries a session on.
func (r *Runner) runsElsewhere(ctx context.Context, w Orphans, session domain.SessionID) (bool, error) {
	if len(w.Others) == 0 {
		return false, nil
	}
	s, _, err := r.load(ctx, session)
	if err != nil {
		return false, err
	}
	begun, waiting := open(s)
	return !w.Elsewhere(layersOf(s, append(begun, waiting...))).IsZero(), nil
}

// sessionsWaiting returns the sessions in which a request for permission waits.
func sessionsWaiting(s *calls.State) map[domain.SessionID]bool {
	waiting := map[domain.SessionID]bool{}
	for _, e := range s.Unfinished() {
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
