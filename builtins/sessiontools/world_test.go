package sessiontools_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// planFile is the plan of every session.
const planFile = ".ledger/plans/one.md"

// A setup says what a world has besides the tools of the package.
type setup struct {
	rules   string // of the gate, in the form of permission.ParseRules; empty: allow * *
	hides   bool   // the rules also hide tools
	tools   registry.Tools
	person  *person                     // nil: there is no person
	tasks   func(sessiontools.Task) any // a TaskResult or an error
	agents  []sessiontools.AgentInfo
	clients []string
	client  string
}

// A world is a runner with the real gate over an in-memory store, a model that plays
// prepared replies, and one session, whose tools act through it.
type world struct {
	t       testing.TB
	setup   setup
	ledger  *events.Ledger
	runner  *runner.Runner
	gate    *permission.Gate
	facts   *facts
	model   *player
	session domain.SessionID
}

func newWorld(t testing.TB, s setup, replies ...[]runner.Part) *world {
	t.Helper()
	mint := domain.NewMint(time.Now, rand.Reader)
	w := &world{t: t, setup: s, facts: &facts{}, model: &player{replies: replies}}
	w.ledger = events.NewLedger(eventstest.NewSlice(), mint, time.Now)
	rules := parse(t, s.rules)
	w.gate = w.newGate(rules, mint)
	layers := registry.NewLayers(w.ledger, mint.Process())
	layer, err := layers.Location(t.Context(), "/here")
	w.must(err)
	tools, err := sessiontools.Tools(w.config())
	w.must(err)
	w.must(layer.Scope().Register(t.Context(), tools))
	w.must(layer.Scope().Register(t.Context(), s.tools))
	found, err := layers.Registry(registry.Config{Outputs: &memory{}, Grace: time.Second}, layer)
	w.must(err)
	var profile runner.Profile
	if s.hides {
		profile.Rules = domain.RuleSets{rules}
	}
	w.runner = runner.New(runner.Config{
		Ledger: w.ledger, Registry: found, Provider: w.model, Client: s.client,
		Profile: func(context.Context, *conversation.State) (runner.Profile, error) { return profile, nil },
	})
	w.session, err = w.runner.Open(t.Context(), events.SessionOpened{Agent: "build", Location: "/here"})
	w.must(err)
	w.must(w.runner.Admit(t.Context(), w.session, mint.Message(), "go"))
	return w
}

func (w *world) newGate(rules domain.Rules, mint *domain.Mint) *permission.Gate {
	c := permission.Config{
		Rules:    func(domain.Invocation) domain.RuleSets { return domain.RuleSets{rules} },
		Approver: permission.Headless{}, Recorder: w.facts, Mint: mint, Now: time.Now,
	}
	if w.setup.person != nil {
		c.Approver, c.Questioner = w.setup.person, w.setup.person
	}
	gate, err := permission.NewGate(c)
	w.must(err)
	return gate
}

func (w *world) config() sessiontools.Config {
	return sessiontools.Config{
		Session: w, Permission: w.gate, Clients: w.setup.clients,
		Subagents: func() []sessiontools.AgentInfo { return w.setup.agents },
		PlanFile:  func(domain.SessionID) string { return planFile },
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// run runs the session and checks that the log keeps its laws.
func (w *world) run() *world {
	w.t.Helper()
	w.must(w.runner.Run(w.t.Context(), w.session))
	p := calls.Projection()
	s, err := projections.Fold(p, p.Init(), w.ledger.ReadAll(w.t.Context(), events.Position{}))
	w.must(err)
	if broken := append(s.Exceptions(), s.Unfinished()...); len(broken) > 0 {
		w.t.Errorf("the log breaks laws: %v", broken)
	}
	return w
}

func (w *world) state() *conversation.State {
	w.t.Helper()
	p := conversation.Projection()
	s, err := projections.Fold(p, p.Init(), w.ledger.Read(w.t.Context(), events.SessionStream(w.session), 0))
	w.must(err)
	return s
}

// settled returns the settlements of the session in the order of the log.
func (w *world) settled() (all []events.CallSettled) {
	w.t.Helper()
	for v, err := range w.ledger.Read(w.t.Context(), events.SessionStream(w.session), 0) {
		w.must(err)
		if e, ok := v.Event.(events.CallSettled); ok {
			all = append(all, e)
		}
	}
	return all
}

// end returns the settlement of a call.
func (w *world) end(id domain.CallID) domain.Settlement {
	w.t.Helper()
	for _, e := range w.settled() {
		if e.Call == id {
			return e.Settlement(domain.EventID{})
		}
	}
	w.t.Fatalf("call %s has no end", id)
	return domain.Settlement{}
}

// text returns the text that the model reads for a call that must succeed.
func (w *world) text(id domain.CallID) string {
	w.t.Helper()
	end := w.end(id)
	if end.Outcome != domain.Succeeded {
		w.t.Fatalf("call %s = %s %q, want success", id, end.Outcome, end.Text)
	}
	return end.Content.Text()
}

// wantEnd checks the outcome of a call and the text that the model reads.
func (w *world) wantEnd(id domain.CallID, outcome domain.Outcome, parts ...string) {
	w.t.Helper()
	end := w.end(id)
	if end.Outcome != outcome {
		w.t.Fatalf("call %s = %s %q, want %s", id, end.Outcome, end.Text, outcome)
	}
	for _, part := range parts {
		if text := end.Text + end.Content.Text(); !strings.Contains(text, part) {
			w.t.Errorf("the model reads %q, want %q in it", text, part)
		}
	}
}

// The world is the CallSession of its tools.

func (w *world) Todos(context.Context, domain.SessionID) ([]domain.Todo, error) {
	return w.state().Todos, nil
}

func (w *world) ReplaceTodos(ctx context.Context, inv domain.Invocation, todos []domain.Todo) error {
	return w.runner.Note(ctx, inv, events.TodosReplaced{Message: inv.Message, Call: inv.Call, Todos: todos})
}

func (w *world) SwitchAgent(ctx context.Context, inv domain.Invocation, agent domain.AgentID) error {
	return w.runner.Note(ctx, inv, events.AgentSwitched{Agent: agent, Previous: inv.Agent, Message: inv.Message, Call: inv.Call})
}

func (w *world) SettleAdded(ctx context.Context, inv domain.Invocation, added []domain.Call) ([]domain.Call, []domain.Settlement, error) {
	return w.runner.SettleAdded(ctx, inv, added)
}

func (w *world) AskQuestions(ctx context.Context, inv domain.Invocation, questions []domain.Question) ([][]string, error) {
	return w.gate.AskQuestions(ctx, inv, questions)
}

func (w *world) RunTask(_ context.Context, _ domain.Invocation, task sessiontools.Task) (sessiontools.TaskResult, error) {
	switch done := w.setup.tasks(task).(type) {
	case sessiontools.TaskResult:
		return done, nil
	case error:
		return sessiontools.TaskResult{}, done
	}
	return sessiontools.TaskResult{}, fmt.Errorf("the test has no result of %v", task)
}

// parse returns the rules of a text. An empty text allows everything.
func parse(t testing.TB, text string) domain.Rules {
	t.Helper()
	if text == "" {
		text = "allow * *"
	}
	rules, err := permission.ParseRules("rules", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// A person answers requests and questions as told. It is an Approver and a Questioner.
type person struct {
	decide permission.Answer
	reply  permission.QuestionReply

	mu    sync.Mutex
	shown []domain.Preview
	asked []domain.Question
}

func (p *person) Decide(_ context.Context, r permission.Request) (permission.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = append(p.shown, r.Shown)
	return p.decide, nil
}

func (p *person) AskQuestions(_ context.Context, r permission.QuestionRequest) (permission.QuestionReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.Questions...)
	return p.reply, nil
}

// answers returns a person who gives these answers to questions.
func answers(given ...[]string) *person {
	return &person{reply: permission.QuestionReply{Answers: given, By: permission.ByUser}}
}

// facts are a Recorder in memory.
type facts struct {
	mu       sync.Mutex
	requests []permission.Request
	saved    []permission.Approval
	asked    int
}

func (f *facts) Requested(_ context.Context, r permission.Request) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	return nil
}

func (f *facts) Decided(context.Context, permission.Decision) error { return nil }

func (f *facts) Saved(_ context.Context, a permission.Approval) (domain.EventID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved = append(f.saved, a)
	return domain.EventID{}, nil
}

func (f *facts) QuestionAsked(context.Context, permission.QuestionRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return nil
}

func (f *facts) QuestionAnswered(context.Context, permission.QuestionResult) error { return nil }

// memory stores outputs over the limits.
type memory struct{}

func (*memory) Keep(_ context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	whole, err := io.ReadAll(r)
	sum := sha256.Sum256(whole)
	return domain.Retained{Ref: ref, MIME: mime, Bytes: int64(len(whole)), Lines: int64(strings.Count(string(whole), "\n")), SHA256: hex.EncodeToString(sum[:])}, err
}

func (*memory) Confirm(context.Context, domain.EventID) error { return nil }

// A player is a provider that plays one reply after another, and then a text.
type player struct {
	mu      sync.Mutex
	replies [][]runner.Part
	turns   []runner.Turn
}

func (p *player) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = append(p.turns, turn)
	reply := []runner.Part{runner.TextPart("done")}
	if len(p.replies) > 0 {
		reply, p.replies = p.replies[0], p.replies[1:]
	}
	return func(yield func(runner.Part, error) bool) {
		for _, part := range reply {
			if !yield(part, nil) {
				return
			}
		}
	}
}

// offers returns the definition of a tool in a turn of the model, and whether the turn
// has it.
func (p *player) offers(turn int, name domain.Name) (domain.Definition, bool) {
	for _, d := range p.turns[turn].Tools {
		if d.Name == name {
			return d, true
		}
	}
	return domain.Definition{}, false
}

// call returns a reply of the model with one call, c1.
func call(name, input string) []runner.Part { return []runner.Part{callPart("c1", name, input)} }

func callPart(id, name, input string) runner.Part {
	return runner.CallPart{ID: domain.CallID(id), Name: name, Input: []byte(input)}
}

// marshal returns a value as JSON.
func marshal(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tool returns the tool of a spec without a description.
func tool[In, Out any](t testing.TB, s domain.Spec[In, Out]) domain.Tool {
	t.Helper()
	s.Description = "for a test"
	made, err := domain.Make(s)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// setTodos records a list of tasks before the first run.
func (w *world) setTodos(todos []domain.Todo) error {
	stream := events.SessionStream(w.session)
	_, err := w.ledger.Append(w.t.Context(), stream, w.state().Revision, w.ledger.Draft(events.TodosReplaced{Todos: todos}, domain.EventID{}))
	return err
}
