package transcripts

import (
	"fmt"
	"iter"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A sessionKey identifies a session within a file: the session ID of the format, and
// the name of a sub-agent, which is empty for the session of a user.
type sessionKey struct{ session, agent string }

// A fileSession is one session of a file, of the user or of a sub-agent. It begins
// with the first record that has events. [Importer.Import] replaces its derived IDs
// with the stored ones.
type fileSession struct {
	key sessionKey
	// format is the name of the format.
	format string
	// source is the name of the session in the format, see [sessionFile.sourceOf].
	source  string
	session domain.SessionID
	opened  time.Time
	agent   domain.AgentID
	// cwd is the first location of the session and cwdAt its time. model is the first
	// model and modelAt its time.
	cwd     string
	cwdAt   time.Time
	model   string
	modelAt time.Time
	// prompt is the last prompt so far. Later steps name it as their cause.
	prompt *userPrompt
	// replies has the replies by key.
	replies map[string]*modelReply
	// tools has the tools that calls used, in the order of their first use, and
	// toolsByName the same by name.
	tools       []*observedTool
	toolsByName map[string]*observedTool
	// steps are the sources of the events, in the order of the stream.
	steps []draftSource
	// settings has the current value of each setting. settingCounts has, for each
	// setting and value, how often the setting got that value.
	settings      map[string]string
	settingCounts map[[2]string]int
	// spawner is the call that started the sub-agent, or nil if the file does not
	// name it.
	spawner *modelCall
	// stored has the IDs that the ledger has for the session. It is nil until Import
	// reads them.
	stored storedIDs
}

// An observedTool is a tool name that the calls of a session used, with the time of
// the first.
type observedTool struct {
	name string
	at   time.Time
}

// A draftSource returns the events of one step of a session. Import calls drafts
// after the whole file was read, because later lines complete replies and attach
// results. It may call drafts several times.
type draftSource interface{ drafts() []events.Draft }

// A fixedStep is a draftSource of one event that later lines do not change.
type fixedStep struct {
	session *fileSession
	at      time.Time
	// name has the parts of the name from which the event ID derives.
	name []string
	// cause is the last prompt before the event, or nil.
	cause *userPrompt
	event events.Event
}

// drafts returns the event.
func (s fixedStep) drafts() []events.Draft {
	d := events.Draft{ID: s.session.eventID(s.at, s.name...), Time: s.at, Event: s.event}
	if s.cause != nil {
		d.Causation = s.cause.eventID()
	}
	return []events.Draft{d}
}

// sessionFor returns the session of the record s. If s is the first record of its
// session that has events, sessionFor begins the session and applies the changes that
// waited for it. If a user session begins after another one in the file, it records
// that it continues the earlier session.
func (f *sessionFile) sessionFor(s parsedRecord) *fileSession {
	if c, ok := f.sessions[s.session]; ok {
		return c
	}
	c := &fileSession{
		key: s.session, format: f.format, source: f.sourceOf(s.session), session: f.sessionID(s.session, s.time), opened: s.time, agent: domain.AgentID(f.format),
		replies: map[string]*modelReply{}, toolsByName: map[string]*observedTool{}, settings: map[string]string{}, settingCounts: map[[2]string]int{},
	}
	if s.session.agent != "" {
		c.agent = "subagent"
		if s.record.Agent != "" {
			c.agent = domain.AgentID(truncate(string(s.record.Agent), maxName))
		}
	} else if f.main != nil {
		c.steps = append(c.steps, c.newSetting(events.SettingContinues, f.main.source, s.time))
	}
	f.sessions[s.session] = c
	f.order = append(f.order, c)
	f.named[sessionName(f.format, c.source)] = c
	if s.session.agent == "" {
		f.main = c
	}
	// Facts that came before the first event of the session follow its opening.
	waiting := f.pending[s.session]
	delete(f.pending, s.session)
	delete(f.pendingKinds, s.session)
	for _, w := range waiting {
		w(c)
	}
	f.readSettings(s)
	return c
}

// whenOpened calls do with the session of key, at once if the session has begun and
// otherwise when it begins. If the session never begins, the record counts as ignored
// under kind.
func (f *sessionFile) whenOpened(key sessionKey, kind string, do func(*fileSession)) {
	if c, ok := f.sessions[key]; ok {
		do(c)
		return
	}
	f.pending[key] = append(f.pending[key], do)
	f.pendingKinds[key] = append(f.pendingKinds[key], kind)
}

// newSetting returns the step that records a new value of a setting. The event ID
// derives from the value and from how often the setting got this value, so that two
// files with different records of one change agree.
func (c *fileSession) newSetting(name, value string, at time.Time) draftSource {
	c.settings[name] = value
	c.settingCounts[[2]string{name, value}]++
	return fixedStep{
		session: c, at: at, name: []string{"setting", name, value, fmt.Sprint(c.settingCounts[[2]string{name, value}])},
		event: events.SettingChanged{Setting: name, Value: value},
	}
}

// changeSetting records the value of a setting if it differs from the last one. The
// first location is recorded in the opening of the session.
func (c *fileSession) changeSetting(name, value string, at time.Time) {
	if value = truncate(value, maxName); value == "" || c.settings[name] == value {
		return
	}
	// The opening has the first location.
	if name == events.SettingLocation && c.cwd == "" {
		c.cwd, c.cwdAt, c.settings[name] = value, at, value
		return
	}
	c.steps = append(c.steps, c.newSetting(name, value, at))
}

// eventID returns the ID of an event of the session: the stored ID of the event if
// the ledger has it, and otherwise an ID derived from the time and the parts of its
// name. messageID, turnID and layerID do the same for other kinds of ID.
func (c *fileSession) eventID(at time.Time, parts ...string) domain.EventID {
	return storedID(c.stored, deriveID[domain.EventID](domain.IDFromBytes, at, c.idParts("event", parts)...))
}

// messageID returns the ID of a message of the session.
func (c *fileSession) messageID(at time.Time, parts ...string) domain.MessageID {
	return storedID(c.stored, deriveID[domain.MessageID](domain.IDFromBytes, at, c.idParts("message", parts)...))
}

// turnID returns the ID of a turn of the session.
func (c *fileSession) turnID(at time.Time, parts ...string) domain.TurnID {
	return storedID(c.stored, deriveID[domain.TurnID](domain.IDFromBytes, at, c.idParts("turn", parts)...))
}

// layerID returns the ID of the layer of the observed tools.
func (c *fileSession) layerID() domain.LayerID {
	return storedID(c.stored, deriveID[domain.LayerID](domain.IDFromBytes, c.opened, c.idParts("layer", nil)...))
}

// idParts returns the texts from which deriveID computes an ID: the format, the session,
// the kind of object (such as message or turn), and parts, which identify the object within
// the session.
func (c *fileSession) idParts(kind string, parts []string) []string {
	return append([]string{c.format, c.session.String(), kind}, parts...)
}

// addFact adds an event that later lines do not change.
func (c *fileSession) addFact(at time.Time, e events.Event, name ...string) {
	c.steps = append(c.steps, fixedStep{session: c, at: at, name: name, cause: c.prompt, event: e})
}

// observeTool records that a call used a tool.
func (c *fileSession) observeTool(name string, at time.Time) {
	if c.toolsByName[name] == nil {
		c.toolsByName[name] = &observedTool{name, at}
		c.tools = append(c.tools, c.toolsByName[name])
	}
}

// offered returns the observed registration of a tool name, and zero for an invalid
// name.
func (c *fileSession) offered(name string) domain.Offered {
	parsed, err := domain.ParseName(name)
	t := c.toolsByName[name]
	if err != nil || t == nil {
		return domain.Offered{}
	}
	return domain.Offered{Name: parsed, Registration: domain.RegistrationOf(c.eventID(t.at, "tool", name)), Layer: c.layerID()}
}

// layerDrafts returns the events of the stream of the session's layer: its opening
// and one registration for each tool. It returns nil if the session used no tool.
func (c *fileSession) layerDrafts() []events.Draft {
	if len(c.tools) == 0 {
		return nil
	}
	scope := storedID(c.stored, deriveID[domain.ScopeID](domain.IDFromBytes, c.opened, c.idParts("scope", nil)...))
	all := []events.Draft{{
		ID: c.eventID(c.opened, "layer"), Time: c.opened, Correlation: c.session,
		Event: events.LayerOpened{Layer: c.layerID(), Placement: domain.PerSession, Session: c.session, Observed: true},
	}}
	for _, t := range c.tools {
		registered := events.ToolsRegistered{Scope: scope, Tools: []events.RegisteredTool{}}
		if parsed, err := domain.ParseName(t.name); err != nil {
			registered.Refused = []events.RefusedTool{{Name: truncate(t.name, maxName), Reason: err.Error()}}
		} else {
			registered.Tools = append(registered.Tools, events.RegisteredTool{Name: parsed})
		}
		all = append(all, events.Draft{ID: c.eventID(t.at, "tool", t.name), Time: t.at, Correlation: c.session, Event: registered})
	}
	return all
}

// drafts yields the events of the session's stream in order: the opening, the
// settings learned, which a recorded opening lacks, the call that started the
// session, and the events of the steps.
func (c *fileSession) drafts(parent domain.SessionID, learned []events.Draft) iter.Seq[events.Draft] {
	return func(yield func(events.Draft) bool) {
		first := append([]events.Draft{{ID: c.eventID(c.opened, "opened"), Time: c.opened, Event: events.SessionOpened{
			Session: c.session, Agent: c.agent, Location: c.cwd, Model: c.model, Parent: parent,
			Origin: events.Origin{Kind: events.Imported, Format: c.format, Source: c.source},
		}}}, learned...)
		if by := c.spawner; by != nil {
			first = append(first, c.spawnedDraft(spawnCall{by.reply.session.session, by.reply.messageID(), by.call.ID}))
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

// A spawnCall is the call that started a session. If only the parent session is known,
// message and call are zero.
type spawnCall struct {
	parent  domain.SessionID
	message domain.MessageID
	call    domain.CallID
}

// spawnedDraft returns the event that records the parent and the call of the session.
// The event ID derives from the session, the parent and the call, so that another
// call gives another event.
func (c *fileSession) spawnedDraft(s spawnCall) events.Draft {
	id := deriveID[domain.EventID](domain.IDFromBytes, c.opened, c.format, c.session.String(), "event", "spawned", s.parent.String(), s.message.String(), string(s.call))
	return events.Draft{ID: id, Time: c.opened, Event: events.SessionSpawned{Parent: s.parent, Message: s.message, Call: s.call}}
}
