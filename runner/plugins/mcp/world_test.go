package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner/plugins"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp/mcpconfig"
)

// TestMain runs the test binary as an MCP server if the environment asks for one.
func TestMain(m *testing.M) {
	if mode := os.Getenv("MCP_TEST"); mode != "" {
		serveTest(mode)
		return
	}
	os.Exit(m.Run())
}

// token is the secret in the environment of the servers of the tests.
const token = "tok-5f3a9c71\"e2/b8"

// An entry is the configuration of a server of the tests.
type entry map[string]any

// process returns the entry of a server that the test binary runs in a mode.
func process(mode string) entry {
	return entry{"command": os.Args[0], "env": map[string]string{"MCP_TEST": mode, "TOKEN": token}, "startup_timeout": "20s", "timeout": "20s"}
}

// with returns the entry with another key.
func (e entry) with(key string, value any) entry {
	e[key] = value
	return e
}

// A world is one process with a layer, a permission gate in front of a person, and the
// plugins of MCP servers.
type world struct {
	t        testing.TB
	project  string
	state    string
	mint     *domain.Mint
	ledger   *events.Ledger
	layer    *registry.Layer
	registry *registry.Registry
	journal  *journal
	host     *plugins.Host
	gate     *permission.Gate
	person   person
	facts    *facts
	as       domain.Invocation
	faults   []*mcpconfig.Fault
}

// newWorld returns a world with the servers of the user, and rules before the allowance of
// all calls.
func newWorld(t testing.TB, servers map[string]entry) *world {
	t.Helper()
	return openWorld(t, servers, nil, "allow mcp *\n", t.TempDir())
}

// openWorld returns a world with the servers of the user and of the project, rules, and a
// folder of known definitions.
func openWorld(t testing.TB, user, project map[string]entry, rules, state string) *world {
	t.Helper()
	w := &world{t: t, project: t.TempDir(), state: state, person: make(person), facts: new(facts)}
	w.mint = domain.NewMint(time.Now, rand.NewChaCha8([32]byte{1}))
	w.ledger = events.NewLedger(eventstest.NewSlice(), w.mint, time.Now)
	layers := registry.NewLayers(w.ledger, w.mint.Process())
	var err error
	w.layer, err = layers.Location(context.Background(), w.project)
	must(t, err)
	w.registry, err = layers.Registry(registry.Config{}, w.layer)
	must(t, err)
	w.as = domain.Invocation{Session: w.mint.Session(), Agent: "build", Message: w.mint.Message()}
	w.journal = &journal{writer: w.ledger.Writer(events.SessionStream(w.as.Session), 0), ends: map[domain.CallID]domain.Settlement{}}
	parsed, err := permission.ParseRules("test", strings.NewReader(rules))
	must(t, err)
	w.gate, err = permission.NewGate(permission.Config{
		Rules:    func(domain.Invocation) domain.RuleSets { return domain.RuleSets{parsed} },
		Approver: w.person, Questioner: w.person, Recorder: w.facts, Mint: w.mint, Now: time.Now,
	})
	must(t, err)
	w.host, err = plugins.New(plugins.Config{Layer: w.layer, RefreshTimeout: 30 * time.Second, Location: plugins.PluginLocation{
		Folder: w.project, Environment: append(os.Environ(), "UNRELATED_SECRET=s3"), Permission: w.gate, Questions: w.gate,
	}})
	must(t, err)
	file := filepath.Join(t.TempDir(), "mcp.json")
	w.config(file, user)
	if project != nil {
		w.config(filepath.Join(w.project, mcp.ProjectFile), project)
	}
	var list []plugins.Plugin
	list, w.faults = mcp.Load(mcp.LoadConfig{Workspace: w.project, UserFile: file, StateFolder: state, Environment: []string{"HOME=/h"}, Reserved: []string{"a_bash"}})
	must(t, w.host.Install(t.Context(), list...))
	t.Cleanup(func() {
		must(t, w.host.Close(context.Background()))
		must(t, layers.Close(context.Background()))
		must(t, layers.Wait(context.Background()))
		w.wantNoSecret()
	})
	return w
}

// config writes a file of servers.
func (w *world) config(file string, servers map[string]entry) {
	w.t.Helper()
	data, err := json.Marshal(map[string]any{"mcpServers": servers})
	must(w.t, err)
	must(w.t, os.WriteFile(file, data, 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantNoSecret fails the test if a record of the log or a known definition has the token.
func (w *world) wantNoSecret() {
	w.t.Helper()
	check := func(place string, data []byte) {
		for _, form := range []string{token, strings.Trim(quoted(token), `"`)} {
			if strings.Contains(string(data), form) {
				w.t.Errorf("%s has the secret: %.300s", place, data)
			}
		}
	}
	for _, stream := range []events.Stream{events.LayerStream(w.layer.ID()), w.journal.writer.Stream()} {
		for v, err := range w.ledger.Read(context.Background(), stream, 0) {
			must(w.t, err)
			data, err := json.Marshal(v.Event)
			must(w.t, err)
			check(v.Event.Kind(), data)
		}
	}
	files, err := filepath.Glob(filepath.Join(w.state, "*"))
	must(w.t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(w.t, err)
		check(file, data)
	}
}

// quoted returns a text as JSON.
func quoted(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}

func (w *world) refresh() {
	w.t.Helper()
	must(w.t, w.host.Refresh(context.Background()))
}

// offer refreshes the plugins and returns the offer of a new turn.
func (w *world) offer() *registry.Materialization {
	w.t.Helper()
	w.refresh()
	return w.materialize()
}

// materialize returns the offer of a new turn without a refresh.
func (w *world) materialize() *registry.Materialization {
	w.t.Helper()
	m, err := w.registry.Materialize(context.Background(), registry.TurnSpec{ID: w.mint.Turn()})
	must(w.t, err)
	return m
}

// names returns the names of the offered tools.
func names(m *registry.Materialization) []string {
	all := []string{}
	for _, d := range m.Definitions() {
		all = append(all, string(d.Name))
	}
	return all
}

func (w *world) wantOffered(want ...string) {
	w.t.Helper()
	if got := names(w.offer()); !slices.Equal(got, want) {
		w.t.Errorf("offered %v, want %v; refused: %v", got, want, w.refusals())
	}
}

// refusals returns the recorded refusals, as "NAME: REASON", in order.
func (w *world) refusals() []string {
	w.t.Helper()
	all := []string{}
	for _, e := range w.layerEvents() {
		if e, ok := e.(events.ToolsRegistered); ok {
			for _, r := range e.Refused {
				all = append(all, r.Name+": "+r.Reason)
			}
		}
	}
	return all
}

// wantRefusal fails the test unless a recorded refusal contains each of the texts.
func (w *world) wantRefusal(texts ...string) {
	w.t.Helper()
	for _, r := range w.refusals() {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(r, text) }) {
			return
		}
	}
	w.t.Errorf("refused %.2000q, want one with %q", w.refusals(), texts)
}

func (w *world) layerEvents() []events.Event {
	w.t.Helper()
	var all []events.Event
	for v, err := range w.ledger.Read(context.Background(), events.LayerStream(w.layer.ID()), 0) {
		must(w.t, err)
		all = append(all, v.Event)
	}
	return all
}

// settle settles a call of a tool of an offer.
func (w *world) settle(ctx context.Context, m *registry.Materialization, name, input string) domain.Settlement {
	w.t.Helper()
	s, err := m.Settle(ctx, w.journal, w.as, domain.Call{ID: domain.CallID(w.mint.Turn().String()), Name: name, Input: json.RawMessage(input)})
	must(w.t, err)
	return s
}

// call settles a call in a new turn.
func (w *world) call(name, input string) domain.Settlement {
	w.t.Helper()
	return w.settle(w.t.Context(), w.offer(), name, input)
}

// reads returns the text that the model reads.
func reads(s domain.Settlement) string {
	r := s.ToolResult()
	var b strings.Builder
	b.WriteString(r.Error + r.Text + string(r.Structured))
	for _, c := range r.Content {
		switch c := c.(type) {
		case domain.Text:
			b.WriteString(string(c))
		case domain.Media:
			fmt.Fprintf(&b, "<%s %s %d>", c.MIME, c.Name, len(c.Data))
		}
	}
	return b.String()
}

// want fails the test unless a settlement has an outcome, and the texts in what the model
// or the operator reads.
func (w *world) want(s domain.Settlement, outcome domain.Outcome, texts ...string) {
	w.t.Helper()
	got := reads(s) + "\n" + s.Detail
	if s.Outcome != outcome || slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(got, text) }) {
		w.t.Errorf("settlement = %v reading %.2000q, want %v with %q", s.Outcome, got, outcome, texts)
	}
}

// A question is a permission request that waits for its answer.
type question struct {
	permission.Request
	answer chan permission.Answer
}

// A form is a list of questions that waits for its answers.
type form struct {
	permission.QuestionRequest
	answer chan permission.QuestionReply
}

// A person receives permission requests (question) and questions (form).
type person chan any

func (p person) Decide(ctx context.Context, r permission.Request) (permission.Answer, error) {
	q := question{r, make(chan permission.Answer, 1)}
	return asked(ctx, p, q, q.answer)
}

func (p person) AskQuestions(ctx context.Context, r permission.QuestionRequest) (permission.QuestionReply, error) {
	f := form{r, make(chan permission.QuestionReply, 1)}
	return asked(ctx, p, f, f.answer)
}

// asked puts a question to the person and waits for the answer.
func asked[A any](ctx context.Context, p person, q any, answer <-chan A) (a A, err error) {
	select {
	case p <- q:
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
}

// answering answers the permission requests and questions that come while do runs, in
// order: a permission.Choice or a permission.QuestionReply. It returns them.
func (w *world) answering(do func(), answers ...any) (all []any) {
	w.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	for {
		select {
		case q := <-w.person:
			all = append(all, q)
			var answer any
			if len(all) <= len(answers) {
				answer = answers[len(all)-1]
			}
			switch q := q.(type) {
			case question:
				choice, ok := answer.(permission.Choice)
				if !ok {
					w.t.Errorf("asked %s %v, want %v", q.Action, q.Resources, answer)
					choice = permission.Reject
				}
				q.answer <- permission.Answer{Choice: choice, Feedback: "not today", By: permission.ByUser}
			case form:
				reply, ok := answer.(permission.QuestionReply)
				if !ok {
					w.t.Errorf("asked %v, want %v", q.Questions, answer)
					reply = permission.QuestionReply{Dismissed: true}
				}
				reply.By = permission.ByUser
				q.answer <- reply
			}
		case <-done:
			if len(all) < len(answers) {
				w.t.Errorf("asked %d questions, want %d", len(all), len(answers))
			}
			return all
		}
	}
}

// facts are a permission.Recorder in memory.
type facts struct {
	mu      sync.Mutex
	decided []permission.Decision
}

func (f *facts) Requested(context.Context, permission.Request) error { return nil }

func (f *facts) Decided(_ context.Context, d permission.Decision) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided = append(f.decided, d)
	return nil
}

func (f *facts) Saved(context.Context, permission.Approval) (domain.EventID, error) {
	return domain.EventID{}, nil
}
func (f *facts) QuestionAsked(context.Context, permission.QuestionRequest) error   { return nil }
func (f *facts) QuestionAnswered(context.Context, permission.QuestionResult) error { return nil }

// A journal records calls in the session's stream.
type journal struct {
	writer *events.Writer
	mu     sync.Mutex
	ends   map[domain.CallID]domain.Settlement
}

func (j *journal) Recorded(_ context.Context, _ domain.MessageID, id domain.CallID) (registry.Recorded, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if end, ok := j.ends[id]; ok {
		return registry.Recorded{Settlement: &end}, nil
	}
	return registry.Recorded{}, nil
}

func (j *journal) Begin(ctx context.Context, d events.Draft) error { return j.append(ctx, d) }

func (j *journal) Settle(ctx context.Context, d events.Draft) error {
	if err := j.append(ctx, d); err != nil {
		return err
	}
	e := d.Event.(events.CallSettled)
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, twice := j.ends[e.Call]; twice {
		panic("call " + e.Call + " ended twice")
	}
	j.ends[e.Call] = e.Settlement(d.ID)
	return nil
}

func (j *journal) Late(ctx context.Context, d events.Draft) error { return j.append(ctx, d) }

func (j *journal) append(ctx context.Context, d events.Draft) error {
	_, err := j.writer.Append(ctx, d)
	return err
}
