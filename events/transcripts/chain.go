package transcripts

import (
	"fmt"
	"iter"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A chainKey names a session within a file: the ID that the format gives the
// session, and of a sub-agent its name.
type chainKey struct{ session, agent string }

// A chain is one session of a file: that of a person, or that of a sub-agent. It
// begins with the first record that says something. Its IDs are known once
// [Importer.Import] has found out what is on record of it.
type chain struct {
	key     chainKey
	source  string // what the format calls it
	session domain.SessionID
	opened  time.Time
	agent   domain.AgentID
	cwd     string // the first
	cwdAt   time.Time
	model   string // the first
	modelAt time.Time
	prompt  *prompt // the last
	replies map[string]*reply
	tools   []*tool
	used    map[string]*tool // the same, by name
	steps   []step
	values  map[string]string // of settings
	entered map[[2]string]int // how often a setting got a value
	spawner *call             // that began it; nil where the file does not say
	held    ids               // on record
}

// A tool is a name that the calls of a chain used.
type tool struct {
	name string
	at   time.Time
}

// A step is what a chain has to say at one place. What it says is settled only
// when the file ends, as later lines add to replies and results find calls.
type step interface{ drafts() []events.Draft }

// A fact is a step that no later line changes.
type fact struct {
	chain *chain
	at    time.Time
	name  []string // of the event
	cause *prompt
	event events.Event
}

func (s fact) drafts() []events.Draft {
	d := events.Draft{ID: s.chain.event(s.at, s.name...), Time: s.at, Event: s.event}
	if s.cause != nil {
		d.Causation = s.cause.id()
	}
	return []events.Draft{d}
}

// chain returns the chain that a saying belongs to, and begins it if there is
// none.
func (f *file) chain(s saying) *chain {
	if c, ok := f.chains[s.chain]; ok {
		return c
	}
	c := &chain{
		key: s.chain, source: f.sourceOf(s.chain), session: f.sessionID(s.chain, s.at), opened: s.at, agent: domain.AgentID(claudeCode),
		replies: map[string]*reply{}, used: map[string]*tool{}, values: map[string]string{}, entered: map[[2]string]int{},
	}
	if s.chain.agent != "" {
		c.agent = "subagent"
		if s.record.Agent != "" {
			c.agent = domain.AgentID(beginning(string(s.record.Agent), mostName))
		}
	} else if f.main != nil {
		c.steps = append(c.steps, c.setting(events.SettingContinues, f.main.source, s.at))
	}
	f.chains[s.chain] = c
	f.order = append(f.order, c)
	if s.chain.agent == "" {
		f.main = c
	}
	waiting := f.waiting[s.chain]
	delete(f.waiting, s.chain)
	delete(f.unsaid, s.chain)
	for _, w := range waiting {
		w(c)
	}
	f.settings(s)
	return c
}

// around does what says nothing by itself: at once, if its chain has begun, and
// otherwise when it begins.
func (f *file) around(key chainKey, kind string, do func(*chain)) {
	if c, ok := f.chains[key]; ok {
		do(c)
		return
	}
	f.waiting[key] = append(f.waiting[key], do)
	f.unsaid[key] = append(f.unsaid[key], kind)
}

// setting returns the step that gives a setting a value. It is named by the
// value, and by how often the setting got it: so two files that tell of one
// change by different records mean the same.
func (c *chain) setting(name, value string, at time.Time) step {
	c.values[name] = value
	c.entered[[2]string{name, value}]++
	return fact{
		chain: c, at: at, name: []string{"setting", name, value, fmt.Sprint(c.entered[[2]string{name, value}])},
		event: events.SettingChanged{Setting: name, Value: value},
	}
}

// set records that a setting has a value, if that is news.
func (c *chain) set(name, value string, at time.Time) {
	if value = beginning(value, mostName); value == "" || c.values[name] == value {
		return
	}
	if name == events.SettingLocation && c.cwd == "" {
		c.cwd, c.cwdAt, c.values[name] = value, at, value
		return
	}
	c.steps = append(c.steps, c.setting(name, value, at))
}

// event returns the ID of an event of the chain.
func (c *chain) event(at time.Time, parts ...string) domain.EventID {
	return adopt(c.held, derive[domain.EventID](domain.IDFromBytes, at, c.parted("event", parts)...))
}

func (c *chain) message(at time.Time, parts ...string) domain.MessageID {
	return adopt(c.held, derive[domain.MessageID](domain.IDFromBytes, at, c.parted("message", parts)...))
}

func (c *chain) turn(at time.Time, parts ...string) domain.TurnID {
	return adopt(c.held, derive[domain.TurnID](domain.IDFromBytes, at, c.parted("turn", parts)...))
}

func (c *chain) layer() domain.LayerID {
	return adopt(c.held, derive[domain.LayerID](domain.IDFromBytes, c.opened, c.parted("layer", nil)...))
}

func (c *chain) parted(kind string, parts []string) []string {
	return append([]string{claudeCode, c.session.String(), kind}, parts...)
}

// say adds a fact.
func (c *chain) say(at time.Time, e events.Event, name ...string) {
	c.steps = append(c.steps, fact{chain: c, at: at, name: name, cause: c.prompt, event: e})
}

// uses takes it that a call used a tool.
func (c *chain) uses(name string, at time.Time) {
	if c.used[name] == nil {
		c.used[name] = &tool{name, at}
		c.tools = append(c.tools, c.used[name])
	}
}

// offered returns the registration that is observed for a name. It is zero for
// what is not a name.
func (c *chain) offered(name string) domain.Offered {
	parsed, err := domain.ParseName(name)
	t := c.used[name]
	if err != nil || t == nil {
		return domain.Offered{}
	}
	return domain.Offered{Name: parsed, Registration: domain.RegistrationOf(c.event(t.at, "tool", name)), Layer: c.layer()}
}

// registrations returns what the chain says in its layer's stream.
func (c *chain) registrations() []events.Draft {
	if len(c.tools) == 0 {
		return nil
	}
	scope := adopt(c.held, derive[domain.ScopeID](domain.IDFromBytes, c.opened, c.parted("scope", nil)...))
	all := []events.Draft{{
		ID: c.event(c.opened, "layer"), Time: c.opened, Correlation: c.session,
		Event: events.LayerOpened{Layer: c.layer(), Placement: domain.PerSession, Session: c.session, Observed: true},
	}}
	for _, t := range c.tools {
		registered := events.ToolsRegistered{Scope: scope, Tools: []events.RegisteredTool{}}
		if parsed, err := domain.ParseName(t.name); err != nil {
			registered.Refused = []events.RefusedTool{{Name: beginning(t.name, mostName), Reason: err.Error()}}
		} else {
			registered.Tools = append(registered.Tools, events.RegisteredTool{Name: parsed})
		}
		all = append(all, events.Draft{ID: c.event(t.at, "tool", t.name), Time: t.at, Correlation: c.session, Event: registered})
	}
	return all
}

// drafts yields what the chain says in its own stream, where what its opening
// did not know follows that.
func (c *chain) drafts(parent domain.SessionID, learned []events.Draft) iter.Seq[events.Draft] {
	return func(yield func(events.Draft) bool) {
		first := append([]events.Draft{{ID: c.event(c.opened, "opened"), Time: c.opened, Event: events.SessionOpened{
			Session: c.session, Agent: c.agent, Location: c.cwd, Model: c.model, Parent: parent,
			Origin: events.Origin{Kind: events.Imported, Format: claudeCode, Source: c.source},
		}}}, learned...)
		if by := c.spawner; by != nil {
			first = append(first, c.spawned(spawn{by.reply.chain.session, by.reply.message(), by.asked.ID}))
		}
		for _, d := range first {
			if !yield(d) {
				return
			}
		}
		for _, s := range c.steps {
			for _, d := range s.drafts() {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// A spawn is a call that began a session. One without a call is known by its
// session alone.
type spawn struct {
	parent  domain.SessionID
	message domain.MessageID
	call    domain.CallID
}

// spawned returns the event that says which call began the chain.
func (c *chain) spawned(s spawn) events.Draft {
	id := derive[domain.EventID](domain.IDFromBytes, c.opened, claudeCode, c.session.String(), "event", "spawned", s.parent.String(), s.message.String(), string(s.call))
	return events.Draft{ID: id, Time: c.opened, Event: events.SessionSpawned{Parent: s.parent, Message: s.message, Call: s.call}}
}
