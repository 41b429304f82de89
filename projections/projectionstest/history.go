package projectionstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// History returns a random history of at least n events that keeps every law of
// calls, so that a projection finds no exception in it. It has processes, layers,
// registrations, native and imported sessions, turns, calls with every outcome, added
// calls, permissions, questions, switches of agents, todos, texts, late results, managed
// outputs, and unknown kinds. After n events
// History ends the open sessions and layers, which adds further events. The same seed
// gives the same history.
func History(seed uint64, n int) []events.Envelope {
	g := newGenerator(seed)
	for len(g.log.Envelopes()) < n {
		g.step()
	}
	g.finish()
	return g.log.Envelopes()
}

// A generator appends random events to a log and tracks the state that decides which
// events may follow.
type generator struct {
	log      *Log
	process  domain.ProcessID
	layers   []*openLayer  // the open layers, in rising precedence
	sessions []*sessionGen // the open sessions
}

// An openLayer is the state of an open layer.
type openLayer struct {
	id            domain.LayerID
	placement     domain.Placement
	session       domain.SessionID // of a layer of one session; zero: of all sessions
	registrations []registration   // the active ones, the oldest first
}

// A registration is an active registration of a layer.
type registration struct {
	id    domain.RegistrationID
	tools []events.RegisteredTool
}

// A sessionGen is the state of an open session and of its last turn.
type sessionGen struct {
	id       domain.SessionID
	stream   events.Stream
	approved domain.EventID         // the last saved approval
	turn     domain.TurnID          // the last one
	message  domain.MessageID       // of the last turn
	offer    []domain.Offered       // of the last turn, without hidden tools
	calls    []*callGen             // of the last reply, added ones too
	agent    domain.AgentID         // of the next turn
	text     string                 // the digest of the last text
	past     []domain.MessageID     // the replies before the last one
	compact  domain.EventID         // the last compaction
	kept     []domain.Retained      // retained outputs that have not been pruned
	saved    []events.ApprovalSaved // all saved approvals, also revoked ones
}

// A callGen is the state of a call of the last reply.
type callGen struct {
	domain.Call
	offered domain.Offered      // zero: an unknown tool
	begun   bool                // its start is in the history
	settled domain.EventID      // zero: the call is open
	waits   domain.PermissionID // the pending request for permission or question; zero: neither is pending
	asks    bool                // waits is a question
}

// The location and the agent of all native sessions.
const (
	location = "/home/ada/project"
	agent    = domain.AgentID("build")
)

// names lists the names of the tools of a history.
var names = []domain.Name{"read", "write", "edit", "glob", "grep", "bash"}

// newGenerator returns a generator whose history has a process with an application
// layer and a location layer.
func newGenerator(seed uint64) *generator {
	g := &generator{log: NewLog(seed)}
	g.process = g.log.Mint.Process()
	g.log.Add(events.ProcessStream(g.process), events.ProcessStarted{Process: g.process, Host: "host", PID: 7, Program: "ledger", Version: "1"})
	g.openLayer(domain.Application, domain.SessionID{})
	g.openLayer(domain.Location, domain.SessionID{})
	return g
}

// chance returns true with probability 1/n.
func (g *generator) chance(n int) bool { return g.log.Rand.IntN(n) == 0 }

// pick returns a random element of some, and false if some is empty.
func pick[T any](g *generator, some []T) (one T, ok bool) {
	if len(some) == 0 {
		return one, false
	}
	return some[g.log.Rand.IntN(len(some))], true
}

// step chooses a random action and adds its events. An action may be impossible, such as
// closing a registration that does not exist, and then adds no event.
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

// openLayer opens a layer with a placement. session is the session of a session
// layer, and zero for other layers.
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

// register registers one to three random tools in a random layer. It sometimes adds a
// refused tool.
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

// closeRegistration closes a random registration of a random layer.
func (g *generator) closeRegistration() {
	l, ok := pick(g, g.layers)
	if !ok || len(l.registrations) == 0 {
		return
	}
	i := g.log.Rand.IntN(len(l.registrations))
	g.log.Add(events.LayerStream(l.id), events.RegistrationClosed{Registration: l.registrations[i].id, Reason: events.ScopeClosed})
	l.registrations = slices.Delete(l.registrations, i, i+1)
}

// replaceLayer closes a random layer and opens an empty one with the same placement and
// session.
func (g *generator) replaceLayer() {
	l, ok := pick(g, g.layers)
	if !ok {
		return
	}
	g.closeLayer(l)
	g.openLayer(l.placement, l.session)
}

// closeLayer closes a layer, which ends the registrations of the layer.
func (g *generator) closeLayer(l *openLayer) {
	g.log.Add(events.LayerStream(l.id), events.LayerClosed{Layer: l.id, Reason: events.ProcessEnded})
	g.layers = slices.DeleteFunc(g.layers, func(other *openLayer) bool { return other == l })
}

// addUnknown adds an event of an unknown kind to the stream of the process or of a
// session.
func (g *generator) addUnknown() {
	stream := events.ProcessStream(g.process)
	if t, ok := pick(g, g.sessions); ok && g.chance(2) {
		stream = t.stream
	}
	g.log.Add(stream, events.Unknown{Name: "WeatherChanged", Version: 2, Data: json.RawMessage(`{"rain":true}`)})
}

// openSession opens a session with a first prompt, sometimes with a parent session and a
// layer of its own.
func (g *generator) openSession() {
	id := g.log.Mint.Session()
	t := &sessionGen{id: id, stream: events.SessionStream(id), agent: agent}
	e := events.SessionOpened{Session: id, Agent: t.agent, Location: location, Model: "m-1", Origin: events.Origin{Kind: events.RunHere}}
	if parent, ok := pick(g, g.sessions); ok && g.chance(4) {
		e.Parent, e.Ancestors = parent.id, []domain.AgentID{parent.agent}
		if len(parent.calls) > 0 {
			e.ParentMessage, e.ParentCall = parent.message, parent.calls[0].ID
		}
	} else {
		e.VersionControl = events.VersionControl{System: "git", Commit: strings.Repeat("0a", 20), Branch: "main", State: events.DirtyCopy}
	}
	g.log.Add(t.stream, e)
	g.sessions = append(g.sessions, t)
	if g.chance(2) {
		g.openLayer(domain.PerSession, id)
	}
	g.prompt(t)
}

// prompt adds a prompt to a session.
func (g *generator) prompt(t *sessionGen) {
	g.log.Add(t.stream, events.PromptAdmitted{Message: g.log.Mint.Message(), Text: fmt.Sprintf("do %d things", g.log.Rand.IntN(9))})
}

// effective returns the tools in effect for a session, in the order of names. A tool
// of a higher layer hides a tool of a lower layer, and a later registration hides an
// earlier one of the same layer. effective uses no code of the registry or of a
// projection, so that it is an independent model of both.
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

// finish settles the open calls, closes every session and every layer and stops the
// process.
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
