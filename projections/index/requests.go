package index

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index/where"
)

// A RequestQuery selects permission requests and questions. The zero RequestQuery selects all
// of them.
type RequestQuery struct {
	Session  domain.SessionID
	Agent    string
	By       string      // decided by this: rule, approval, user, headless, recovery or a person; empty: all
	Pending  bool        // without a decision
	From, To time.Time   // the time of the request; To is excluded; zero: unbounded
	Calls    CallQuery   // of such a call; zero: all requests
	Where    *where.Expr // over RequestFields; nil: all requests
	Limit    int         // the last so many; 0: all
	Skip     int         // leave the last so many out, before Limit
}

// A Request is a permission request or a question of a call to a person.
type Request struct {
	ID        domain.PermissionID
	Question  bool
	Session   domain.SessionID
	Message   domain.MessageID
	Call      domain.CallID
	Tool      string // of the call; empty: the log has no such call
	Agent     domain.AgentID
	Action    string          // question for a question
	Resources json.RawMessage // a JSON array: the objects of the action, or the questions
	Position  events.Position
	Time      time.Time
	// Effect is allow or deny, or answered or dismissed; empty: it is open.
	Effect                  string
	By, Scope, Person       string
	Feedback                string
	RuleAction, RuleObjects string // the patterns of the denying rule
	RuleSource              string
	Answers                 json.RawMessage // of a question, as a JSON array; nil: none
	WaitedMS                int64
	Decided                 time.Time
}

// The tables of requests, with equal columns.
const (
	permissionRows = `SELECT permission AS request, 'permission' AS kind, session, message, call, agent, action, resources, requested_position AS position, requested_time AS time,
	effect, decided_by AS by, scope, person, feedback, rule_action, rule_resource, rule_source AS rule, NULL AS answers, waited_ms AS waited, decided_time AS decided FROM permissions`
	questionRows = `SELECT question AS request, 'question' AS kind, session, message, call, agent, 'question' AS action, questions AS resources, asked_position AS position, asked_time AS time,
	CASE dismissed WHEN 1 THEN 'dismissed' WHEN 0 THEN 'answered' END AS effect, answered_by AS by, NULL AS scope, person, feedback, NULL AS rule_action, NULL AS rule_resource, NULL AS rule, answers,
	waited_ms AS waited, answered_time AS decided FROM questions`
	requestColumns = `requests.request, requests.kind, requests.session, requests.message, requests.call,
	(SELECT tool FROM calls WHERE calls.message = requests.message AND calls.call = requests.call AND calls.session = requests.session),
	requests.agent, requests.action, requests.resources, requests.position, requests.time, requests.effect, requests.by, requests.scope, requests.person, requests.feedback,
	requests.rule_action, requests.rule_resource, requests.rule, requests.answers, requests.waited, requests.decided`
)

// scan reads requestColumns.
func (r *Request) scan(c *columnReader) error {
	c.text(&r.ID)
	r.Question = c.string() == "question"
	c.text(&r.Session, &r.Message)
	r.Call, r.Tool, r.Agent, r.Action, r.Resources = domain.CallID(c.string()), c.string(), domain.AgentID(c.string()), c.string(), json.RawMessage(c.string())
	r.Position, r.Time = c.position(), c.time()
	r.Effect, r.By, r.Scope, r.Person, r.Feedback = c.string(), c.string(), c.string(), c.string(), c.string()
	r.RuleAction, r.RuleObjects, r.RuleSource = c.string(), c.string(), c.string()
	if answers := c.string(); answers != "" {
		r.Answers = json.RawMessage(answers)
	}
	r.WaitedMS, r.Decided = c.integer(), c.time()
	if c.err == nil && !json.Valid(r.Resources) {
		c.fail(fmt.Errorf("request %s: its resources are no JSON", r.ID))
	}
	return c.err
}

// Requests returns the selected permission requests and questions in the order of the log.
func (s *Snapshot) Requests(q RequestQuery) (all []Request, err error) {
	for _, rows := range []string{permissionRows, questionRows} {
		w := &conditions{}
		if !q.Session.IsZero() {
			w.add("requests.session = ?", q.Session)
		}
		if condition, args := q.Calls.subqueries("(requests.session, requests.message, requests.call)", "calls.session, calls.message, calls.call"); condition != "" {
			w.add(condition, args...)
		}
		if q.Pending {
			w.also("requests.decided IS NULL") // permissions_open and questions_open have the open ones
		}
		if q.By != "" && len(w.parts) == 0 {
			w.also("(requests.by = ? OR requests.person = ?)", q.By, q.By)
		} else if q.By != "" {
			w.also("(+requests.by = ? OR +requests.person = ?)", q.By, q.By)
		}
		w.within("requests.time", q.From, q.To)
		plain := len(w.parts) == 0
		if q.Agent != "" {
			w.also("+requests.agent = ?", q.Agent)
		}
		w.where(q.Where, plain)
		err = s.each(func(c *columnReader) error {
			all = append(all, Request{})
			return all[len(all)-1].scan(c)
		}, "SELECT "+requestColumns+" FROM ("+rows+") AS requests WHERE "+w.text()+" ORDER BY requests.position DESC LIMIT ?", append(w.args, atMost(q.Limit, q.Skip))...)
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b Request) int { return a.Position.Compare(b.Position) })
	return page(all, q.Limit, q.Skip), nil
}
