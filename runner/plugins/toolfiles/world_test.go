package toolfiles_test

import (
	"context"
	"encoding/json"
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
	"github.com/settlement-ledger/ledger/runner/plugins/toolfiles"
)

// A world is one process with a layer, a permission gate in front of a person, and a folder
// of tools.
type world struct {
	t        testing.TB
	project  string // the folder of the location
	folder   string // the folder of the tools
	mint     *domain.Mint
	ledger   *events.Ledger
	layer    *registry.Layer
	registry *registry.Registry
	journal  *journal
	host     *plugins.Host
	person   person
	facts    *facts
	as       domain.Invocation
}

// newWorld returns a world with an empty folder of the given placement. The rules allow
// the action free and deny the action forbidden.
func newWorld(t testing.TB, placement domain.Placement) *world {
	t.Helper()
	w := &world{t: t, project: t.TempDir(), person: make(person), facts: new(facts)}
	w.folder = filepath.Join(w.project, ".ledger", "tools")
	if placement != domain.Location {
		w.folder = t.TempDir()
	}
	must(t, os.MkdirAll(w.folder, 0o755))
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
	rules, err := permission.ParseRules("test", strings.NewReader("allow free *\ndeny forbidden *\n"))
	must(t, err)
	gate, err := permission.NewGate(permission.Config{
		Rules:    func(domain.Invocation) domain.RuleSets { return domain.RuleSets{rules} },
		Approver: w.person, Recorder: w.facts, Mint: w.mint, Now: time.Now,
	})
	must(t, err)
	w.host, err = plugins.New(plugins.Config{Layer: w.layer, Location: plugins.PluginLocation{
		Folder: w.project, Environment: append(os.Environ(), "SECRET_FOR_TOOLS=s3"), Permission: gate,
	}})
	must(t, err)
	folder, err := toolfiles.New(toolfiles.Config{Name: "files", Folder: w.folder, Placement: placement, Reserved: []string{"bash"}})
	must(t, err)
	must(t, w.host.Install(t.Context(), folder))
	t.Cleanup(func() {
		must(t, w.host.Close(context.Background()))
		must(t, layers.Close(context.Background()))
		must(t, layers.Wait(context.Background()))
	})
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a file of the folder, executable if it begins with "#!".
func (w *world) write(name, content string) {
	w.t.Helper()
	mode := os.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	file := filepath.Join(w.folder, name)
	must(w.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(w.t, os.WriteFile(file, []byte(content), mode))
	must(w.t, os.Chmod(file, mode)) // of a file that was there
}

// tool writes a shell program and its manifest, with more keys for the manifest.
func (w *world) tool(name, script, keys string) {
	w.t.Helper()
	w.write(name+".sh", script)
	w.write(name+".json", `{"description":"for a test","input":{"type":"object"},"command":["sh","./`+name+`.sh"]`+keys+`}`)
}

func (w *world) refresh() {
	w.t.Helper()
	must(w.t, w.host.Refresh(w.t.Context()))
}

// offer refreshes the plugins and returns the offer of a new turn.
func (w *world) offer() *registry.Materialization {
	w.t.Helper()
	w.refresh()
	m, err := w.registry.Materialize(w.t.Context(), registry.TurnSpec{ID: w.mint.Turn()})
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

func (w *world) layerEvents() []events.Event {
	w.t.Helper()
	var all []events.Event
	for v, err := range w.ledger.Read(context.Background(), events.LayerStream(w.layer.ID()), 0) {
		must(w.t, err)
		all = append(all, v.Event)
	}
	return all
}

// titles returns the titles of the calls that began.
func (w *world) titles() []string {
	w.t.Helper()
	var all []string
	for v, err := range w.ledger.Read(context.Background(), w.journal.writer.Stream(), 0) {
		must(w.t, err)
		if e, ok := v.Event.(events.CallStarted); ok {
			all = append(all, e.Title)
		}
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
	return r.Error + r.Text + string(r.Structured)
}

func (w *world) want(s domain.Settlement, outcome domain.Outcome, text string) {
	w.t.Helper()
	if got := reads(s); s.Outcome != outcome || !strings.Contains(got, text) {
		w.t.Errorf("settlement = %v reading %q (detail %q), want %v with %q", s.Outcome, got, s.Detail, outcome, text)
	}
}

// A question is a permission question that waits for its answer.
type question struct {
	permission.Request
	answer chan permission.Answer
}

// reply answers the question.
func (q question) reply(c permission.Choice, feedback string) {
	q.answer <- permission.Answer{Choice: c, Feedback: feedback, By: permission.ByUser}
}

// A person receives permission questions.
type person chan question

func (p person) Decide(ctx context.Context, r permission.Request) (permission.Answer, error) {
	q := question{r, make(chan permission.Answer, 1)}
	select {
	case p <- q:
	case <-ctx.Done():
		return permission.Answer{}, context.Cause(ctx)
	}
	select {
	case a := <-q.answer:
		return a, nil
	case <-ctx.Done():
		return permission.Answer{}, context.Cause(ctx)
	}
}

// answering answers the questions that come while do runs with choices, in order, and
// returns them. The test fails if there are fewer or more.
func (w *world) answering(do func(), choices ...permission.Choice) []question {
	w.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	var asked []question
	for {
		select {
		case q := <-w.person:
			asked = append(asked, q)
			if len(asked) > len(choices) {
				w.t.Errorf("asked %s %v, want no more questions", q.Action, q.Resources)
				q.reply(permission.Reject, "")
				continue
			}
			q.reply(choices[len(asked)-1], "not today")
		case <-done:
			if len(asked) < len(choices) {
				w.t.Errorf("asked %d questions, want %d", len(asked), len(choices))
			}
			return asked
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
