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
	chain   *chain
	key     string
	at      time.Time
	ended   time.Time // the last record that added to it
	cause   domain.EventID
	message domain.MessageID
	turn    domain.TurnID
	texts   []string
	calls   []*call
	model   string
	tokens  events.Tokens
	finish  string
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
	r := &reply{chain: c, key: key, at: s.at, cause: c.cause, message: c.message(s.at, "reply", key)}
	r.turn = derive[domain.TurnID](domain.IDFromBytes, s.at, c.parted("turn", []string{key})...)
	c.replies[key] = r
	c.steps = append(c.steps, r)
	return r
}

// hear takes what a record says of its reply as a whole. Each record repeats
// the tokens, as far as they were counted by then.
func (r *reply) hear(m message, at time.Time) {
	t := m.tokens()
	r.tokens = events.Tokens{
		Input: max(r.tokens.Input, t.Input), Output: max(r.tokens.Output, t.Output),
		CacheRead: max(r.tokens.CacheRead, t.CacheRead), CacheWrite: max(r.tokens.CacheWrite, t.CacheWrite),
	}
	if r.model == "" {
		r.model = string(m.Model)
	}
	if m.StopReason != "" {
		r.finish = string(m.StopReason)
	}
	if r.chain.model == "" && m.Model != "<synthetic>" {
		r.chain.model = string(m.Model)
	}
	r.ended = at
}

// add adds a text. A record that is repeated under another uuid brings the
// same one again.
func (r *reply) add(text string) {
	if text != "" && !slices.Contains(r.texts, text) {
		r.texts = append(r.texts, text)
	}
}

func (r *reply) event() domain.EventID { return r.chain.event(r.at, "reply", r.key) }

// drafts returns the observed turn and the reply.
func (r *reply) drafts(*file) []events.Draft {
	turn := events.TurnMaterialized{
		Turn: r.turn, Message: r.message, Agent: r.chain.agent, Model: r.model, Tools: []domain.Offered{}, Observed: true,
	}
	received := events.ReplyReceived{
		Turn: r.turn, Message: r.message, Text: strings.Join(r.texts, "\n\n"), Model: r.model, Tokens: r.tokens, Finish: r.finish,
	}
	for _, c := range r.calls {
		received.Calls = append(received.Calls, c.asked)
		if !c.offered.IsZero() && !slices.Contains(turn.Tools, c.offered) {
			turn.Tools = append(turn.Tools, c.offered)
		}
	}
	id := r.chain.event(r.at, "turn", r.key)
	return []events.Draft{
		{ID: id, Time: r.at, Causation: r.cause, Event: turn},
		{ID: r.event(), Time: r.at, Causation: id, Event: received},
	}
}

// A call is one that a model asked for.
type call struct {
	reply   *reply
	asked   domain.Call
	at      time.Time
	offered domain.Offered
	result  *result // the first; nil while the call is open
	began   bool
}

// call reads one call. One that its reply has already is a repeat.
func (f *file) call(s saying, r *reply, b block) {
	id := domain.CallID(b.ID)
	if id == "" {
		f.refuse("call of %q has no id", b.Name)
		return
	}
	for _, c := range r.calls {
		if c.asked.ID == id {
			if c.asked.Name != string(b.Name) || !equal(c.asked.Input, b.Input) {
				f.refuse("call %q comes again in the same reply with another name or input", id)
			}
			return
		}
	}
	c := &call{
		reply: r, at: s.at, offered: r.chain.offered(string(b.Name), s.at),
		asked: domain.Call{ID: id, Name: string(b.Name), Input: b.Input},
	}
	r.calls = append(r.calls, c)
	r.chain.steps = append(r.chain.steps, c)
	f.calls[id] = append(f.calls[id], c)
	f.report.Calls++
	f.report.Open++
	f.find(c)
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
func (c *call) drafts(*file) []events.Draft {
	if !c.began {
		return nil
	}
	return []events.Draft{{ID: c.started(), Time: c.at, Causation: c.reply.event(), Event: events.CallStarted{
		Turn: c.reply.turn, Message: c.reply.message, Call: c.asked.ID, Tool: c.asked.Name, Offered: c.offered, Effective: c.offered,
	}}}
}
