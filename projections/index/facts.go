package index

import (
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A CallFact has what sums and percentiles need of a call.
type CallFact struct {
	Session                   domain.SessionID
	Tool, Agent, Model        string
	Outcome                   string // OpenOutcome: it has no settlement
	Asked                     time.Time
	Ran                       bool // RanMS is known
	RanMS, WaitedMS, Requests int64
	InputBytes, ShownBytes    int64
}

// callFactColumns are the columns of a CallFact, in the order of scan.
var callFactColumns = "calls.session, calls.tool, calls.agent, (" + callModel + "), coalesce(calls.outcome, 'open'), calls.asked_time, " + tookColumn + ", calls.waited_ms, calls.requests, calls.input_bytes, calls.shown_bytes"

// scan reads callFactColumns.
func (f *CallFact) scan(c *columnReader) error {
	c.text(&f.Session)
	f.Tool, f.Agent, f.Model, f.Outcome, f.Asked = c.string(), c.string(), c.string(), c.string(), c.time()
	took := c.next()
	f.RanMS, f.Ran = took.(int64)
	f.WaitedMS, f.Requests, f.InputBytes, f.ShownBytes = c.integer(), c.integer(), c.integer(), c.integer()
	return c.err
}

// CallFacts passes the facts of each selected call to visit, in no order. It ignores the
// limit of the query.
func (s *Snapshot) CallFacts(q CallQuery, visit func(CallFact)) error {
	for _, ending := range q.endings() {
		condition, args := q.condition(ending)
		err := s.each(func(c *columnReader) error {
			var f CallFact
			err := f.scan(c)
			if err == nil {
				visit(f)
			}
			return err
		}, "SELECT "+callFactColumns+" FROM calls WHERE "+condition, args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// A ReplyFact has what sums need of a reply.
type ReplyFact struct {
	Session      domain.SessionID
	Agent, Model string
	Time         time.Time
	Tokens       events.Tokens
}

// replyAgent is the SQL of the agent of a reply: of its turn, or else of its session.
const replyAgent = `coalesce((SELECT turns.agent FROM turns WHERE turns.session = messages.session AND turns.turn = messages.turn),
	(SELECT sessions.agent FROM sessions WHERE sessions.session = messages.session))`

// ReplyFacts passes the facts of each reply to visit, in no order: of the replies of the
// session, the agent and the period of the query, and if it has further conditions, of those
// that ask for such a call. It ignores the limit of the query.
func (s *Snapshot) ReplyFacts(q CallQuery, visit func(ReplyFact)) error {
	w := &conditions{}
	if !q.Session.IsZero() {
		w.add("messages.session = ?", q.Session)
	}
	if condition, args := q.only().subqueries("(messages.session, messages.message)", "calls.session, calls.message"); condition != "" {
		w.add(condition, args...)
	}
	w.within("messages.time", q.From, q.To)
	w.also("messages.kind = 'reply'")
	if q.Agent != "" {
		w.also(replyAgent+" = ?", q.Agent)
	}
	return s.each(func(c *columnReader) error {
		var f ReplyFact
		c.text(&f.Session)
		f.Agent, f.Model, f.Time = c.string(), c.string(), c.time()
		f.Tokens = events.Tokens{Input: c.integer(), Output: c.integer(), CacheRead: c.integer(), CacheWrite: c.integer()}
		if c.err == nil {
			visit(f)
		}
		return c.err
	}, "SELECT messages.session, "+replyAgent+", messages.model, messages.time, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens FROM messages WHERE "+w.text(), w.args...)
}

// only returns the query without its session, agent and period, which other rows have too.
func (q CallQuery) only() CallQuery {
	q.Session, q.Agent, q.From, q.To, q.Limit = domain.SessionID{}, "", time.Time{}, time.Time{}, 0
	return q
}

// AboutCalls reports whether the query has a condition besides session, agent and period.
func (q CallQuery) AboutCalls() bool { return q.only().any() }

// A TurnFact has what the count of offers needs of a turn.
type TurnFact struct {
	Session      domain.SessionID
	Agent, Model string
	Time         time.Time
	Offer        int64
}

// TurnFacts passes the facts of each turn to visit, in no order, as ReplyFacts does.
func (s *Snapshot) TurnFacts(q CallQuery, visit func(TurnFact)) error {
	w := &conditions{}
	if !q.Session.IsZero() {
		w.add("turns.session = ?", q.Session)
	}
	if condition, args := q.only().subqueries("turns.turn", "calls.turn"); condition != "" {
		w.add(condition, args...)
	}
	w.within("turns.time", q.From, q.To)
	if q.Agent != "" {
		w.also("+turns.agent = ?", q.Agent)
	}
	return s.each(func(c *columnReader) error {
		var f TurnFact
		c.text(&f.Session)
		f.Agent, f.Model, f.Time, f.Offer = c.string(), c.string(), c.time(), c.integer()
		if c.err == nil {
			visit(f)
		}
		return c.err
	}, "SELECT session, agent, model, time, offer FROM turns WHERE "+w.text(), w.args...)
}

// readOfferTools selects the tools of an offer.
const readOfferTools = "SELECT tool FROM offered_tools WHERE offer = ? ORDER BY place"

// OfferTools returns the tools of an offer, in the order in which the model saw them.
func (s *Snapshot) OfferTools(offer int64) ([]string, error) {
	return s.strings(readOfferTools, offer)
}
