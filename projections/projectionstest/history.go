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
	g := newGenerator(seed)
	for len(g.log.Envelopes()) < n {
		g.step()
	}
	g.finish()
	return g.log.Envelopes()
}

// A generator is what the makers of a history know.
type generator struct {
	log      *Log
	process  domain.ProcessID
	layers   []*openLayer  // open ones, in rising precedence
	sessions []*sessionGen // open ones
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
type sessionGen struct {
	id      domain.SessionID
	stream  events.Stream
	turn    domain.TurnID
	message domain.MessageID
	offer   []domain.Offered
	calls   []*callGen // of the last reply
	settled []domain.EventID
	kept    []domain.Retained
	saved   []events.ApprovalSaved
}

// A callGen is a call of the last reply.
type callGen struct {
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

func newGenerator(seed uint64) *generator {
	g := &generator{log: NewLog(seed)}
	g.process = g.log.Mint.Process()
	g.log.Add(events.ProcessStream(g.process), events.ProcessStarted{Process: g.process, Host: "host", PID: 7, Program: "ledger", Version: "1"})
	g.openLayer(domain.Application, domain.SessionID{})
	g.openLayer(domain.Location, domain.SessionID{})
	return g
}

// chance reports true in one of n cases.
func (g *generator) chance(n int) bool { return g.log.Rand.IntN(n) == 0 }

// pick returns one of some, and whether there is one.
func pick[T any](g *generator, some []T) (one T, ok bool) {
	if len(some) == 0 {
		return one, false
	}
	return some[g.log.Rand.IntN(len(some))], true
}

// step does one of the things that happen.
func (g *generator) step() {
	switch k := g.log.Rand.IntN(20); {
	case k < 3:
		g.register()
	case k == 3:
		g.closeRegistration()
	case k == 4 && g.chance(4):
		g.replaceLayer()
	case k == 5:
		g.openSession()
	case k == 6 && g.chance(3):
		g.importSession()
	case k == 7:
		g.addUnknown()
	default:
		g.stepSession()
	}
}

func (g *generator) openLayer(p domain.Placement, session domain.SessionID) *openLayer {
	l := &openLayer{id: g.log.Mint.Layer(), placement: p, session: session}
	e := events.LayerOpened{Layer: l.id, Placement: p, Session: session, Process: g.process}
	if p == domain.Location {
		e.Location = location
	}
	g.log.Add(events.LayerStream(l.id), e)
	g.layers = append(g.layers, l)
	slices.SortStableFunc(g.layers, func(a, b *openLayer) int { return int(a.placement) - int(b.placement) })
	return l
}

func (g *generator) register() {
	l, ok := pick(g, g.layers)
	if !ok {
		return
	}
	e := events.ToolsRegistered{Scope: g.log.Mint.Scope()}
	for _, i := range g.log.Rand.Perm(len(names))[:1+g.log.Rand.IntN(3)] {
		e.Tools = append(e.Tools, Tool(names[i], fmt.Sprintf("form %d", g.log.Rand.IntN(3))))
	}
	if g.chance(5) {
		e.Refused = []events.RefusedTool{{Name: "9", Reason: "not a name"}}
	}
	v := g.log.Add(events.LayerStream(l.id), e)
	l.registrations = append(l.registrations, registration{domain.RegistrationOf(v.ID), e.Tools})
}

func (g *generator) closeRegistration() {
	l, ok := pick(g, g.layers)
	if !ok || len(l.registrations) == 0 {
		return
	}
	i := g.log.Rand.IntN(len(l.registrations))
	g.log.Add(events.LayerStream(l.id), events.RegistrationClosed{Registration: l.registrations[i].id, Reason: events.ScopeClosed})
	l.registrations = slices.Delete(l.registrations, i, i+1)
}

// replaceLayer closes a layer and opens one like it.
func (g *generator) replaceLayer() {
	l, ok := pick(g, g.layers)
	if !ok {
		return
	}
	g.closeLayer(l)
	g.openLayer(l.placement, l.session)
}

func (g *generator) closeLayer(l *openLayer) {
	g.log.Add(events.LayerStream(l.id), events.LayerClosed{Layer: l.id, Reason: events.ProcessEnded})
	g.layers = slices.DeleteFunc(g.layers, func(other *openLayer) bool { return other == l })
}

// addUnknown adds an event of a kind that is not known.
func (g *generator) addUnknown() {
	stream := events.ProcessStream(g.process)
	if t, ok := pick(g, g.sessions); ok && g.chance(2) {
		stream = t.stream
	}
	g.log.Add(stream, events.Unknown{Name: "WeatherChanged", Version: 2, Data: json.RawMessage(`{"rain":true}`)})
}

func (g *generator) openSession() {
	id := g.log.Mint.Session()
	t := &sessionGen{id: id, stream: events.SessionStream(id)}
	e := events.SessionOpened{Session: id, Agent: agent, Location: location, Model: "m-1", Origin: events.Origin{Kind: events.RunHere}}
	if parent, ok := pick(g, g.sessions); ok && g.chance(4) {
		e.Parent = parent.id
	}
	g.log.Add(t.stream, e)
	g.sessions = append(g.sessions, t)
	if g.chance(2) {
		g.openLayer(domain.PerSession, id)
	}
	g.prompt(t)
}

func (g *generator) prompt(t *sessionGen) {
	g.log.Add(t.stream, events.PromptAdmitted{Message: g.log.Mint.Message(), Text: fmt.Sprintf("do %d things", g.log.Rand.IntN(9))})
}

// effective returns what a session is offered now, by the plainest means: the
// higher layer wins, in one layer the later registration.
func (g *generator) effective(t *sessionGen) []domain.Offered {
	found := map[domain.Name]domain.Offered{}
	for _, l := range g.layers {
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
func (g *generator) finish() {
	for len(g.sessions) > 0 {
		t := g.sessions[0]
		g.settleAll(t)
		g.log.Add(t.stream, events.SessionClosed{Reason: "done"})
		g.sessions = g.sessions[1:]
	}
	for len(g.layers) > 0 {
		g.closeLayer(g.layers[0])
	}
	g.log.Add(events.ProcessStream(g.process), events.ProcessStopped{Process: g.process, Reason: events.ProcessEnded})
}
