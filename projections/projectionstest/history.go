package projectionstest

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// History returns a random history of about n events that keeps every law of
// calls, so that a projection finds no exception in it: processes, layers,
// registrations, sessions run here and imported, turns, calls with every
// outcome, permission, late results, managed outputs, and kinds that are not
// known. The same seed gives the same history.
func History(seed uint64, n int) []events.Envelope {
	w := newWorld(seed)
	for len(w.log.Envelopes()) < n {
		w.step()
	}
	w.finish()
	return w.log.Envelopes()
}

// A world is what the makers of a history know.
type world struct {
	log      *Log
	process  domain.ProcessID
	layers   []*openLayer // open ones, in rising precedence
	sessions []*talk      // open ones
}

// An openLayer is a layer with its stack of registrations.
type openLayer struct {
	id            domain.LayerID
	placement     domain.Placement
	session       domain.SessionID
	registrations []registration
}

// A registration is an active registration.
type registration struct {
	id    domain.RegistrationID
	tools []events.RegisteredTool
}

// A talk is an open session.
type talk struct {
	id      domain.SessionID
	stream  events.Stream
	turn    domain.TurnID
	message domain.MessageID
	offer   []domain.Offered
	calls   []*asked // of the last reply
	settled []domain.EventID
	kept    []domain.Retained
	saved   []events.ApprovalSaved
}

// An asked is a call of the last reply.
type asked struct {
	domain.Call
	offered domain.Offered
	begun   bool
	settled domain.EventID
	waits   domain.PermissionID
}

const (
	location = "/home/ada/project"
	agent    = domain.AgentID("build")
)

// names are those of the tools of a history.
var names = []domain.Name{"read", "write", "edit", "glob", "grep", "bash"}

func newWorld(seed uint64) *world {
	w := &world{log: NewLog(seed)}
	w.process = w.log.Mint.Process()
	w.log.Add(events.ProcessStream(w.process), events.ProcessStarted{Process: w.process, Host: "host", PID: 7, Program: "ledger", Version: "1"})
	w.openLayer(domain.Application, domain.SessionID{})
	w.openLayer(domain.Location, domain.SessionID{})
	return w
}

// chance reports true in one of n cases.
func (w *world) chance(n int) bool { return w.log.Rand.IntN(n) == 0 }

// pick returns one of some, and whether there is one.
func pick[T any](w *world, some []T) (one T, ok bool) {
	if len(some) == 0 {
		return one, false
	}
	return some[w.log.Rand.IntN(len(some))], true
}

// step does one of the things that happen.
func (w *world) step() {
	switch k := w.log.Rand.IntN(20); {
	case k < 3:
		w.register()
	case k == 3:
		w.closeRegistration()
	case k == 4 && w.chance(4):
		w.replaceLayer()
	case k == 5:
		w.openSession()
	case k == 6 && w.chance(3):
		w.importSession()
	case k == 7:
		w.strange()
	default:
		w.talk()
	}
}

func (w *world) openLayer(p domain.Placement, session domain.SessionID) *openLayer {
	l := &openLayer{id: w.log.Mint.Layer(), placement: p, session: session}
	e := events.LayerOpened{Layer: l.id, Placement: p, Session: session, Process: w.process}
	if p == domain.Location {
		e.Location = location
	}
	w.log.Add(events.LayerStream(l.id), e)
	w.layers = append(w.layers, l)
	slices.SortStableFunc(w.layers, func(a, b *openLayer) int { return int(a.placement) - int(b.placement) })
	return l
}

func (w *world) register() {
	l, ok := pick(w, w.layers)
	if !ok {
		return
	}
	e := events.ToolsRegistered{Scope: w.log.Mint.Scope()}
	for _, i := range w.log.Rand.Perm(len(names))[:1+w.log.Rand.IntN(3)] {
		e.Tools = append(e.Tools, Tool(names[i], fmt.Sprintf("form %d", w.log.Rand.IntN(3))))
	}
	if w.chance(5) {
		e.Refused = []events.RefusedTool{{Name: "9", Reason: "not a name"}}
	}
	v := w.log.Add(events.LayerStream(l.id), e)
	l.registrations = append(l.registrations, registration{domain.RegistrationOf(v.ID), e.Tools})
}

func (w *world) closeRegistration() {
	l, ok := pick(w, w.layers)
	if !ok || len(l.registrations) == 0 {
		return
	}
	i := w.log.Rand.IntN(len(l.registrations))
	w.log.Add(events.LayerStream(l.id), events.RegistrationClosed{Registration: l.registrations[i].id, Reason: events.ScopeClosed})
	l.registrations = slices.Delete(l.registrations, i, i+1)
}

// replaceLayer closes a layer and opens one like it.
func (w *world) replaceLayer() {
	l, ok := pick(w, w.layers)
	if !ok {
		return
	}
	w.closeLayer(l)
	w.openLayer(l.placement, l.session)
}

func (w *world) closeLayer(l *openLayer) {
	w.log.Add(events.LayerStream(l.id), events.LayerClosed{Layer: l.id, Reason: events.ProcessEnded})
	w.layers = slices.DeleteFunc(w.layers, func(other *openLayer) bool { return other == l })
}

// strange adds an event of a kind that is not known.
func (w *world) strange() {
	stream := events.ProcessStream(w.process)
	if t, ok := pick(w, w.sessions); ok && w.chance(2) {
		stream = t.stream
	}
	w.log.Add(stream, events.Unknown{Name: "WeatherChanged", Version: 2, Data: json.RawMessage(`{"rain":true}`)})
}

func (w *world) openSession() {
	id := w.log.Mint.Session()
	t := &talk{id: id, stream: events.SessionStream(id)}
	e := events.SessionOpened{Session: id, Agent: agent, Location: location, Model: "m-1", Origin: events.Origin{Kind: events.RunHere}}
	if parent, ok := pick(w, w.sessions); ok && w.chance(4) {
		e.Parent = parent.id
	}
	w.log.Add(t.stream, e)
	w.sessions = append(w.sessions, t)
	if w.chance(2) {
		w.openLayer(domain.PerSession, id)
	}
	w.prompt(t)
}

func (w *world) prompt(t *talk) {
	w.log.Add(t.stream, events.PromptAdmitted{Message: w.log.Mint.Message(), Text: fmt.Sprintf("do %d things", w.log.Rand.IntN(9))})
}

// effective returns what a session is offered now, by the plainest means: the
// higher layer wins, in one layer the later registration.
func (w *world) effective(t *talk) []domain.Offered {
	found := map[domain.Name]domain.Offered{}
	for _, l := range w.layers {
		if l.placement == domain.PerSession && l.session != t.id {
			continue
		}
		for _, r := range l.registrations {
			for _, tool := range r.tools {
				found[tool.Name] = domain.Offered{Name: tool.Name, Registration: r.id, Layer: l.id, Fingerprint: tool.Fingerprint}
			}
		}
	}
	var offer []domain.Offered
	for _, name := range names {
		if o, ok := found[name]; ok {
			offer = append(offer, o)
		}
	}
	return offer
}

// finish brings every session to its end.
func (w *world) finish() {
	for len(w.sessions) > 0 {
		t := w.sessions[0]
		w.rest(t)
		w.log.Add(t.stream, events.SessionClosed{Reason: "done"})
		w.sessions = w.sessions[1:]
	}
	for len(w.layers) > 0 {
		w.closeLayer(w.layers[0])
	}
	w.log.Add(events.ProcessStream(w.process), events.ProcessStopped{Process: w.process, Reason: events.ProcessEnded})
}
