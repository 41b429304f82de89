package transcripts

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A reply is one message of a model. Several records may make it.
type reply struct {
	chain    *chain
	key      string
	at       time.Time
	cause    *prompt
	texts    []string
	thoughts []string
	size     int // of texts, thoughts and inputs
	calls    []*call
	model    string
	tokens   events.Tokens
	finish   string
}

// reply returns the reply that a record belongs to, and begins it if there is
// none.
func (c *chain) reply(s saying, m message) *reply {
	key := string(m.ID)
	if key == "" {
		key = string(s.record.Request)
	}
	if key == "" {
		key = s.key
	}
	if r, ok := c.replies[key]; ok {
		return r
	}
	r := &reply{chain: c, key: key, at: s.at, cause: c.prompt}
	c.replies[key] = r
	c.steps = append(c.steps, r)
	return r
}

func (r *reply) message() domain.MessageID { return r.chain.message(r.at, "reply", r.key) }
func (r *reply) turn() domain.TurnID       { return r.chain.turn(r.at, r.key) }
func (r *reply) event() domain.EventID     { return r.chain.event(r.at, "reply", r.key) }

// hear takes what a record says of its reply as a whole. Each record repeats
// the tokens, as far as they were counted by then.
func (r *reply) hear(m message, at time.Time) {
	t := m.tokens()
	r.tokens = events.Tokens{
		Input: max(r.tokens.Input, t.Input), Output: max(r.tokens.Output, t.Output),
		CacheRead: max(r.tokens.CacheRead, t.CacheRead), CacheWrite: max(r.tokens.CacheWrite, t.CacheWrite),
	}
	if r.model == "" {
		r.model = beginning(string(m.Model), mostName)
	}
	if m.StopReason != "" {
		r.finish = beginning(string(m.StopReason), mostName)
	}
	if r.chain.model == "" && m.Model != "<synthetic>" {
		r.chain.model, r.chain.modelAt = r.model, at
	}
}

// add adds a text. A record that is repeated under another uuid brings the
// same one again.
func (f *file) add(r *reply, texts *[]string, text, what string) {
	if text == "" || slices.Contains(*texts, text) {
		return
	}
	if kept := f.within(&r.size, text, what); kept != "" {
		*texts = append(*texts, kept)
	}
}

// drafts returns the observed turn and the reply.
func (r *reply) drafts() []events.Draft {
	turn := events.TurnMaterialized{
		Turn: r.turn(), Message: r.message(), Agent: r.chain.agent, Model: r.model, Tools: []domain.Offered{}, Observed: true,
	}
	received := events.ReplyReceived{
		Turn: turn.Turn, Message: turn.Message, Text: strings.Join(r.texts, "\n\n"), Model: r.model, Tokens: r.tokens, Finish: r.finish,
		Thinking: strings.Join(r.thoughts, "\n\n"),
	}
	for _, c := range r.calls {
		received.Calls = append(received.Calls, c.asked)
		if o := c.offered(); !o.IsZero() && !slices.Contains(turn.Tools, o) {
			turn.Tools = append(turn.Tools, o)
		}
	}
	d := events.Draft{ID: r.chain.event(r.at, "turn", r.key), Time: r.at, Event: turn}
	if r.cause != nil {
		d.Causation = r.cause.id()
	}
	return []events.Draft{d, {ID: r.event(), Time: r.at, Causation: d.ID, Event: received}}
}

// A call is one that a model asked for.
type call struct {
	reply  *reply
	asked  domain.Call
	whole  digest // of the input, where asked has not all of it
	at     time.Time
	result *result // the first; nil while the call is open
	began  bool
}

func (c *call) offered() domain.Offered { return c.reply.chain.offered(c.asked.Name) }

// call reads one call. One that its reply has already is a repeat.
func (f *file) call(s saying, r *reply, b block) {
	id := domain.CallID(b.ID)
	if id == "" {
		f.refuse("call of %q has no id", beginning(string(b.Name), mostName))
		return
	}
	if len(id) > mostName {
		f.refuse("call ID of %d bytes is longer than %d", len(id), mostName)
		return
	}
	for _, c := range r.calls {
		if c.asked.ID == id {
			same := c.whole == sum(b.Input) || c.whole == digest{} && equal(c.asked.Input, b.Input)
			if c.asked.Name != beginning(string(b.Name), mostName) || !same {
				f.refuse("call %q comes again in the same reply with another name or input", id)
			}
			return
		}
	}
	if r.size += roomOfCall + len(id) + min(len(b.Name), mostName); r.size > mostText {
		f.refuse("call %q: its reply is too long with it", id)
		return
	}
	c := &call{reply: r, at: s.at, asked: domain.Call{ID: id, Name: beginning(string(b.Name), mostName), Input: b.Input}}
	if kept := f.within(&r.size, string(b.Input), "input of call "+string(id)); len(kept) != len(b.Input) {
		c.whole = sum(b.Input)
		c.asked.Input, _ = json.Marshal(kept)
	}
	r.chain.uses(c.asked.Name, s.at)
	r.calls = append(r.calls, c)
	r.chain.steps = append(r.chain.steps, c)
	f.calls[id] = append(f.calls[id], c)
	f.report.Calls++
	f.report.Open++
	f.find(c)
	for _, child := range f.awaited[id] {
		f.spawned(child, c)
	}
	delete(f.awaited, id)
}

// equal reports whether two inputs mean the same.
func equal(a, b json.RawMessage) bool {
	if string(a) == string(b) {
		return true
	}
	x, err := domain.Canonical(a)
	if err != nil {
		return false
	}
	y, err := domain.Canonical(b)
	return err == nil && string(x) == string(y)
}

func (c *call) started() domain.EventID {
	return c.reply.chain.event(c.at, "started", c.reply.key, string(c.asked.ID))
}

// drafts returns the start of the call, if it is known to have begun.
func (c *call) drafts() []events.Draft {
	if !c.hasBegun() {
		return nil
	}
	return []events.Draft{{ID: c.started(), Time: c.at, Causation: c.reply.event(), Event: events.CallStarted{
		Turn: c.reply.turn(), Message: c.reply.message(), Call: c.asked.ID, Tool: c.asked.Name, Offered: c.offered(), Effective: c.offered(),
	}}}
}

func (c *call) hasBegun() bool { return c.began || c.result != nil && c.result.ending.ran }
