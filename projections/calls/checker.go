package calls

import (
	"iter"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/spill"
)

// A Checker checks the laws of calls over a log. [Checker.Apply] folds the events in order.
// Each session is checked by the events of its stream and by the facts of other streams: the
// spans of layers and registrations, the ends of processes, undecided permission requests
// and managed outputs.
//
// With a [spill.Store], a Checker holds the sessions and facts that it used last, and all
// others are in the Store. Exceptions are always in memory. After an error of the Store the
// results of the Checker are not complete.
type Checker struct {
	folded   int
	sessions *spill.Map[domain.SessionID, checkedSession]
	// pending has the sessions with an open call or with a call that no reply asks for.
	pending       *spill.Map[domain.SessionID, domain.SessionID]
	layers        *spill.Map[domain.LayerID, layerSpan]
	registrations *spill.Map[domain.RegistrationID, registrationSpan]
	processes     *spill.Map[domain.ProcessID, checkedProcess]
	permissions   *spill.Map[domain.PermissionID, permission]
	outputs       *spill.Map[domain.Ref, Retention]
	// running counts the processes that the log does not record as stopped.
	running int
	// changes counts the events of layers and registrations.
	changes int
	// found has the exceptions that no later event removes.
	found  []foundException
	counts Counts
}

// NewChecker returns a Checker over an empty log, which holds at most about held calls in
// memory, with their sessions, and a sixteenth of that number of facts of each kind. The
// Store may be nil; then everything is in memory.
func NewChecker(s *spill.Store, held int) *Checker {
	facts := held / 16
	return &Checker{
		sessions:      spill.NewMap(s, spill.Options[domain.SessionID, checkedSession]{Text: domain.SessionID.String, Weigh: (*checkedSession).weight, Limit: held}),
		pending:       spill.NewMap(s, spill.Options[domain.SessionID, domain.SessionID]{Text: domain.SessionID.String, Limit: facts}),
		layers:        spill.NewMap(s, spill.Options[domain.LayerID, layerSpan]{Text: domain.LayerID.String, Limit: facts, Weigh: (*layerSpan).weight}),
		registrations: spill.NewMap(s, spill.Options[domain.RegistrationID, registrationSpan]{Text: domain.RegistrationID.String, Limit: facts, Weigh: func(r *registrationSpan) int { return 1 + len(r.Names)/8 }}),
		processes:     spill.NewMap(s, spill.Options[domain.ProcessID, checkedProcess]{Text: domain.ProcessID.String, Limit: facts}),
		permissions:   spill.NewMap(s, spill.Options[domain.PermissionID, permission]{Text: domain.PermissionID.String, Limit: facts}),
		outputs:       spill.NewMap(s, spill.Options[domain.Ref, Retention]{Text: domain.Ref.String, Limit: facts}),
	}
}

// Counts are the numbers of sessions and calls of a log.
type Counts struct {
	Sessions int `json:"sessions"`
	// Calls are the calls that replies asked for. Open counts the ones among them without
	// an end, OpenImported those of imported sessions.
	Calls        int `json:"calls"`
	Open         int `json:"open"`
	OpenImported int `json:"open_imported"`
	// OrphansImported counts the calls of imported sessions that no reply asks for.
	OrphansImported int `json:"orphans_imported"`
	// Waiting counts the undecided permission requests.
	Waiting int `json:"waiting"`
	// Outputs counts the managed outputs that settlements name, including pruned ones.
	Outputs int `json:"outputs"`
}

// Counts returns the numbers of the events so far.
func (s *Checker) Counts() Counts {
	all := s.counts
	for known, f := range s.unfinished() {
		switch {
		case f.Law == WaitsForDecision:
			all.Waiting++
		case known.Imported:
			all.OpenImported++
		}
	}
	for known := range s.unusual() {
		for _, c := range known.Calls {
			if !c.Asked && c.Imported {
				all.OrphansImported++
			}
		}
	}
	return all
}

// Outputs yields every managed output that a settlement names, in no order, including
// pruned ones.
func (s *Checker) Outputs() iter.Seq[*Retention] { return s.outputs.All() }

// Names reports whether a settlement names a managed output.
func (s *Checker) Names(r domain.Ref) bool {
	s.outputs.Trim()
	return s.outputs.Get(r) != nil
}

// Apply folds one event. The events of a log are applied in the order of their positions.
// Events of sessions, processes and layers change separate parts of the Checker.
func (s *Checker) Apply(v events.Envelope) {
	s.trim()
	s.folded++
	if id, ok := v.Stream.Session(); ok {
		s.applyTo(s.sessionOf(id, v), v)
	} else if !s.applyProcess(v) {
		s.applyLayer(v)
	}
	if e, ok := v.Event.(events.OutputPruned); ok {
		s.pruned(e, v)
	}
}

// applyTo folds an event of a session's stream.
func (s *Checker) applyTo(known *checkedSession, v events.Envelope) {
	asked, open := known.Asked, known.Open
	s.applySession(known, v)
	known.advance(v, s.folded)
	s.counts.Calls += known.Asked - asked
	s.counts.Open += known.Open - open
	if unusual := known.Open+known.Orphans > 0; unusual != known.Listed {
		known.Listed = unusual
		if unusual {
			s.pending.Put(known.ID, &known.ID)
		} else {
			s.pending.Delete(known.ID)
		}
	}
	s.sessions.Put(known.ID, known)
}

// trim moves values that were not used lately to the Store.
func (s *Checker) trim() {
	s.sessions.Trim()
	s.pending.Trim()
	s.layers.Trim()
	s.registrations.Trim()
	s.processes.Trim()
	s.permissions.Trim()
	s.outputs.Trim()
}

// at returns the Place of v, the event that is being folded.
func (s *Checker) at(v events.Envelope) Place {
	return Place{Event: v.ID, Revision: v.Revision, Position: v.Position, Ordinal: s.folded}
}

// session returns a session, or nil if there is none.
func (s *Checker) session(id domain.SessionID) *checkedSession {
	known := s.sessions.Get(id)
	if known != nil {
		known.index()
	}
	return known
}

// sessionOf returns the session of the stream of v. At the first event it makes the session,
// and reports a breach if that event is not the opening of the session.
func (s *Checker) sessionOf(id domain.SessionID, v events.Envelope) *checkedSession {
	if known := s.session(id); known != nil {
		return known
	}
	known := &checkedSession{ID: id}
	known.index()
	s.counts.Sessions++
	if _, opens := v.Event.(events.SessionOpened); !opens {
		s.report(exception(NeverOpened, Key{Session: id}, "", s.at(v), "it begins with %s", v.Event.Kind()))
	}
	return known
}

// report stores an exception that no later event can remove.
func (s *Checker) report(f foundException) { s.found = append(s.found, f) }

// retain folds one managed output, r, of the settlement v of a call. An output belongs to
// the first settlement that names it. It is a breach if a second settlement names it,
// or if the reference contains the ID of an event other than v.
func (s *Checker) retain(r domain.Retained, of Key, tool string, v events.Envelope) {
	if held := s.outputs.Get(r.Ref); held != nil {
		s.report(exception(ForeignReference, of, tool, s.at(v), "%s is that of %s", r.Ref, held.Settlement))
		return
	}
	if r.Ref.Settlement() != v.ID {
		s.report(exception(ForeignReference, of, tool, s.at(v), "%s names another event", r.Ref))
	}
	s.counts.Outputs++
	s.outputs.Put(r.Ref, &Retention{Retained: r, Call: of, Settlement: v.ID, Place: s.at(v)})
}

// pruned folds the removal of a managed output, from any stream. The removal of an
// unknown output is a breach.
func (s *Checker) pruned(e events.OutputPruned, v events.Envelope) {
	held := s.outputs.Get(e.Retained.Ref)
	if held == nil {
		id, _ := v.Stream.Session()
		f := exception(PrunedUnkept, Key{Session: id}, "", s.at(v), "no settlement names %s", e.Retained.Ref)
		f.Stream = v.Stream
		s.report(f)
		return
	}
	held.Pruned, held.Policy, held.PrunedAt = true, e.Policy, e.Pruned
	s.outputs.Put(e.Retained.Ref, held)
}

// A permission is an undecided permission request.
type permission struct {
	ID     domain.PermissionID `json:"permission"`
	Call   Key                 `json:"of"`
	Action string              `json:"action"`
	Place  Place               `json:"place"`
}

// A checkedProcess is a process of the log.
type checkedProcess struct {
	Stopped bool `json:"stopped,omitempty"` // the log records that it stopped
}

// An ordinalRange is the time during which a layer or registration was open. From is
// the ordinal of the event that opened it. To is the ordinal of the closing, or zero
// while it is open.
type ordinalRange struct {
	From int `json:"from"`
	To   int `json:"to,omitempty"`
}

// reaches reports whether the layer or registration was still open after the event
// with this ordinal.
func (s ordinalRange) reaches(ordinal int) bool { return s.To == 0 || s.To > ordinal }

// A layerSpan is a layer with the range of ordinals during which it was open. From is 0 if
// the log has registrations of the layer and no opening so far.
type layerSpan struct {
	ordinalRange
	Placement domain.Placement `json:"placement,omitempty"`
	Process   domain.ProcessID `json:"process,omitzero"`
	// Active holds the registrations of each name that are not closed, oldest first. It is
	// nil for a closed layer.
	Active map[domain.Name][]activeRegistration `json:"active,omitempty"`
}

// weight estimates the memory of a layer, in facts of a common size.
func (l *layerSpan) weight() int {
	n := 1
	for _, all := range l.Active {
		n += 1 + len(all)/4
	}
	return n
}

// An activeRegistration is a registration with the ordinal of its event.
type activeRegistration struct {
	ID   domain.RegistrationID `json:"id"`
	From int                   `json:"from"`
}

// A registrationSpan is a registration with the range of ordinals during which it was
// open.
type registrationSpan struct {
	ordinalRange
	Layer domain.LayerID `json:"layer,omitzero"`
	Names []domain.Name  `json:"names"`
}

// layer returns a layer, or nil if the log has no opening of it.
func (s *Checker) layer(id domain.LayerID) *layerSpan {
	if l := s.layers.Get(id); l != nil && l.From != 0 {
		return l
	}
	return nil
}

// applyProcess folds v if it is an event of a process, and reports whether it is one.
// The order of start and stop does not matter: a stopped process stays stopped.
func (s *Checker) applyProcess(v events.Envelope) bool {
	switch e := v.Event.(type) {
	case events.ProcessStarted:
		if s.processes.Get(e.Process) == nil {
			s.processes.Put(e.Process, &checkedProcess{})
			s.running++
		}
	case events.ProcessStopped:
		if p := s.processes.Get(e.Process); p != nil && !p.Stopped {
			s.running--
		}
		s.processes.Put(e.Process, &checkedProcess{Stopped: true})
	case events.LeaseRenewed:
	default:
		return false
	}
	return true
}

// applyLayer folds an event that belongs to neither a session nor a process. It
// increments changes for every such event, because an event of an unknown kind may
// concern layers.
func (s *Checker) applyLayer(v events.Envelope) {
	s.changes++
	switch e := v.Event.(type) {
	case events.LayerOpened:
		l := s.layers.Get(e.Layer)
		if l == nil {
			l = &layerSpan{}
		}
		if l.From == 0 {
			l.From, l.Placement, l.Process = s.folded, e.Placement, e.Process
			s.layers.Put(e.Layer, l)
		}
	case events.ToolsRegistered:
		s.registered(e, v)
	case events.RegistrationClosed:
		if r := s.registrations.Get(e.Registration); r != nil && r.To == 0 {
			r.To = s.folded
			s.registrations.Put(e.Registration, r)
			s.deactivate(e.Registration, r)
		}
	case events.LayerClosed:
		if l := s.layer(e.Layer); l != nil && l.To == 0 {
			l.To, l.Active = s.folded, nil
			s.layers.Put(e.Layer, l)
		}
	}
}

// registered folds a registration, which is the latest of its layer.
func (s *Checker) registered(e events.ToolsRegistered, v events.Envelope) {
	layer, _ := v.Stream.Layer()
	id := domain.RegistrationOf(v.ID)
	r := &registrationSpan{ordinalRange: ordinalRange{From: s.folded}, Layer: layer}
	for _, t := range e.Tools {
		r.Names = append(r.Names, t.Name)
	}
	s.registrations.Put(id, r)
	l := s.layers.Get(layer)
	if l == nil {
		l = &layerSpan{}
	}
	if l.To != 0 {
		return
	}
	if l.Active == nil {
		l.Active = map[domain.Name][]activeRegistration{}
	}
	for _, name := range r.Names {
		l.Active[name] = append(l.Active[name], activeRegistration{id, s.folded})
	}
	s.layers.Put(layer, l)
}

// deactivate removes the closed registration r from the active registrations of each
// of its names.
func (s *Checker) deactivate(id domain.RegistrationID, r *registrationSpan) {
	l := s.layers.Get(r.Layer)
	if l == nil || l.Active == nil {
		return
	}
	for _, name := range r.Names {
		l.Active[name] = slices.DeleteFunc(l.Active[name], func(other activeRegistration) bool { return other.ID == id })
		if len(l.Active[name]) == 0 {
			delete(l.Active, name)
		}
	}
	s.layers.Put(r.Layer, l)
}
