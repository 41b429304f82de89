package transcripts

import (
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A chain is one session of a file while it is read: that of the file, or that
// of a subagent. It begins with the first record that says something.
type chain struct {
	key     string
	source  string // what the format calls it
	session domain.SessionID
	opened  time.Time
	agent   domain.AgentID
	cwd     string
	model   string
	cause   domain.EventID // the last prompt
	replies map[string]*reply
	tools   map[string]domain.Offered // zero where the name was refused
	layer   []events.Draft
	steps   []step
}

// A step is what a chain has to say at one place. What it says is settled only
// when the file ends, as later lines add to replies and results find calls.
type step interface{ drafts(f *file) []events.Draft }

// said is a step that no later line changes.
type said events.Draft

func (s said) drafts(*file) []events.Draft { return []events.Draft{events.Draft(s)} }

// chain returns the chain with a key, and begins it if there is none.
func (f *file) chain(s saying) *chain {
	if c, ok := f.chains[s.chain]; ok {
		if c.cwd == "" {
			c.cwd = string(s.record.CWD)
		}
		return c
	}
	source, agent := f.sourceName(), domain.AgentID(claudeCode)
	if s.chain != "" {
		source, agent = source+"/"+s.chain, "subagent"
		if s.record.Agent != "" {
			agent = domain.AgentID(s.record.Agent)
		}
	}
	c := &chain{
		key: s.chain, source: source, session: f.sessionID(s.chain), opened: s.at, agent: agent, cwd: string(s.record.CWD),
		replies: map[string]*reply{}, tools: map[string]domain.Offered{},
	}
	f.chains[s.chain] = c
	f.order = append(f.order, c)
	return c
}

// event returns the ID of an event of the chain.
func (c *chain) event(at time.Time, parts ...string) domain.EventID {
	return derive[domain.EventID](domain.IDFromBytes, at, c.parted("event", parts)...)
}

func (c *chain) message(at time.Time, parts ...string) domain.MessageID {
	return derive[domain.MessageID](domain.IDFromBytes, at, c.parted("message", parts)...)
}

func (c *chain) parted(kind string, parts []string) []string {
	return append([]string{claudeCode, c.session.String(), kind}, parts...)
}

// say adds what no later line changes.
func (c *chain) say(d events.Draft) { c.steps = append(c.steps, said(d)) }

// offered returns the registration that is observed for a name, and registers
// it when the name is met first. It is zero for what is not a name.
func (c *chain) offered(name string, at time.Time) domain.Offered {
	if o, ok := c.tools[name]; ok {
		return o
	}
	layer := derive[domain.LayerID](domain.IDFromBytes, c.opened, c.parted("layer", nil)...)
	if len(c.layer) == 0 {
		c.register(c.opened, events.LayerOpened{
			Layer: layer, Placement: domain.PerSession, Session: c.session, Observed: true,
		}, "layer")
	}
	registered := events.ToolsRegistered{
		Scope: derive[domain.ScopeID](domain.IDFromBytes, c.opened, c.parted("scope", nil)...),
		Tools: []events.RegisteredTool{},
	}
	parsed, err := domain.ParseName(name)
	if err != nil {
		registered.Refused = []events.RefusedTool{{Name: name, Reason: err.Error()}}
		c.tools[name] = domain.Offered{}
		c.register(at, registered, "tool", name)
		return domain.Offered{}
	}
	registered.Tools = append(registered.Tools, events.RegisteredTool{Name: parsed})
	id := c.register(at, registered, "tool", name)
	c.tools[name] = domain.Offered{Name: parsed, Registration: domain.RegistrationOf(id), Layer: layer}
	return c.tools[name]
}

func (c *chain) register(at time.Time, e events.Event, parts ...string) domain.EventID {
	id := c.event(at, parts...)
	c.layer = append(c.layer, events.Draft{ID: id, Time: at, Correlation: c.session, Event: e})
	return id
}

// parts returns what the chain says in its layer's stream and then in its own.
func (c *chain) parts(f *file) []part {
	opened := events.SessionOpened{
		Session: c.session, Agent: c.agent, Location: c.cwd, Model: c.model,
		Origin: events.Origin{Kind: events.Imported, Format: claudeCode, Source: c.source},
	}
	if main := f.chains[""]; main != nil && main != c {
		opened.Parent = main.session
	}
	own := part{events.SessionStream(c.session), []events.Draft{{ID: c.event(c.opened, "opened"), Time: c.opened, Event: opened}}}
	for _, s := range c.steps {
		own.drafts = append(own.drafts, s.drafts(f)...)
	}
	if len(c.layer) == 0 {
		return []part{own}
	}
	layer := derive[domain.LayerID](domain.IDFromBytes, c.opened, c.parted("layer", nil)...)
	return []part{{events.LayerStream(layer), c.layer}, own}
}
