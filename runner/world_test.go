package runner_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/openwork"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A program is one process over a store. A crash loses it, and the store stays.
type program struct {
	t        testing.TB
	ledger   *events.Ledger
	layers   *registry.Layers
	place    *registry.Layer
	registry *registry.Registry
	runner   *runner.Runner
}

// noOutputs is a store of outputs that fails every Keep.
type noOutputs struct{}

func (noOutputs) Keep(context.Context, domain.Ref, string, io.Reader) (domain.Retained, error) {
	return domain.Retained{}, fmt.Errorf("this test keeps no outputs")
}
func (noOutputs) Confirm(context.Context, domain.EventID) error { return nil }

// boot starts a program over a store, with tools in a location layer. It returns an error
// if the power of the store was cut.
func boot(t testing.TB, store events.Store, outputs registry.Outputs, tools registry.Tools, config runner.Config) (*program, error) {
	mint := domain.NewMint(time.Now, rand.Reader)
	p := &program{t: t, ledger: events.NewLedger(store, mint, time.Now)}
	ctx := t.Context()
	self := mint.Process()
	started := events.ProcessStarted{Process: self, Host: "test", PID: 1, Program: "test", Version: "1"}
	if _, err := p.ledger.Append(ctx, events.ProcessStream(self), 0, p.ledger.Draft(started, domain.EventID{})); err != nil {
		return p, err
	}
	p.layers = registry.NewLayers(p.ledger, self)
	var err error
	if p.place, err = p.layers.Location(ctx, "/here"); err != nil {
		return p, err
	}
	if err = p.place.Scope().Register(ctx, tools); err != nil {
		return p, err
	}
	if p.registry, err = p.layers.Registry(registry.Config{Outputs: outputs, Grace: time.Second}, p.place); err != nil {
		return p, err
	}
	config.Ledger, config.Registry = p.ledger, p.registry
	p.runner = runner.New(config)
	return p, nil
}

// start is boot over a store of its own that does not fail.
func start(t testing.TB, tools registry.Tools, config runner.Config) *program {
	t.Helper()
	p, err := boot(t, eventstest.NewSlice(), noOutputs{}, tools, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// open opens a session and admits a prompt.
func (p *program) open(prompt string) domain.SessionID {
	p.t.Helper()
	session, err := p.runner.Open(p.t.Context(), events.SessionOpened{Agent: "build", Location: "/here"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.admit(session, prompt)
	return session
}

func (p *program) admit(session domain.SessionID, prompt string) {
	p.t.Helper()
	if err := p.runner.Admit(p.t.Context(), session, p.ledger.Mint().Message(), prompt); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) run(session domain.SessionID) {
	p.t.Helper()
	if err := p.runner.Run(p.t.Context(), session); err != nil {
		p.t.Fatal(err)
	}
}

// state folds a session from the log.
func (p *program) state(session domain.SessionID) *conversation.State {
	p.t.Helper()
	projection := conversation.Projection()
	s, err := projections.Fold(projection, projection.Init(), p.ledger.Read(p.t.Context(), events.SessionStream(session), 0))
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// ends returns the settlements of a session in the order of its calls.
func (p *program) ends(session domain.SessionID) []domain.Settlement {
	p.t.Helper()
	var ends []domain.Settlement
	for _, m := range p.state(session).Messages {
		if m.Reply == nil {
			continue
		}
		for _, c := range m.Reply.Calls {
			if c.Settlement == nil {
				p.t.Fatalf("call %s of %s has no end", c.ID, m.ID)
			}
			ends = append(ends, *c.Settlement)
		}
	}
	return ends
}

func (p *program) kinds(session domain.SessionID) string {
	p.t.Helper()
	var kinds []string
	for v, err := range p.ledger.Read(p.t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		kinds = append(kinds, v.Event.Kind())
	}
	return strings.Join(kinds, " ")
}

// foldOrphans folds the work that every process but self left open.
func foldOrphans(ctx context.Context, l *events.Ledger, self domain.ProcessID) (runner.Orphans, error) {
	lives, open := runner.Processes(), openwork.Projection()
	l0, o0 := lives.Init(), open.Init()
	for v, err := range l.ReadAll(ctx, events.Position{}) {
		if err != nil {
			return runner.Orphans{}, err
		}
		l0, o0 = lives.Apply(l0, v), open.Apply(o0, v)
	}
	w := runner.Orphans{Started: l0, Open: o0}
	for _, p := range l0.Processes {
		if p.Process != self {
			w.Processes = append(w.Processes, p.Process)
		}
	}
	return w, nil
}

// recoverOrphans recovers the work that every other process left open.
func (p *program) recoverOrphans() runner.RecoveryReport {
	p.t.Helper()
	w, err := foldOrphans(p.t.Context(), p.ledger, p.layers.Process())
	if err != nil {
		p.t.Fatal(err)
	}
	done, err := p.runner.RecoverAll(p.t.Context(), w)
	if err != nil {
		p.t.Fatal(err)
	}
	return done
}

// exceptions returns the laws that the log breaks, and the calls and requests that it has
// open.
func exceptions(t testing.TB, l *events.Ledger) []calls.Exception {
	t.Helper()
	projection := calls.Projection()
	s, err := projections.Fold(projection, projection.Init(), l.ReadAll(t.Context(), events.Position{}))
	if err != nil {
		t.Fatal(err)
	}
	return append(s.Exceptions(), s.Unfinished()...)
}

// A player is a provider that plays one prepared reply after another, each a text or
// calls, and records the turns that it received.
type player struct {
	mu      sync.Mutex
	replies [][]runner.Part
	turns   []runner.Turn
	shown   []string // kinds of what each turn showed, in order
}

func plays(replies ...[]runner.Part) *player { return &player{replies: replies} }

func (p *player) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = append(p.turns, turn)
	p.shown = append(p.shown, roles(turn.Conversation))
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

func roles(s *conversation.State) string {
	var out []string
	for _, shown := range s.ModelMessages() {
		out = append(out, string(shown.Role))
	}
	return strings.Join(out, " ")
}

func ask(id, name, input string) runner.Part {
	return runner.CallPart{ID: domain.CallID(id), Name: name, Input: []byte(input)}
}

// must returns a tool whose spec is valid.
func must[In, Out any](s domain.Spec[In, Out]) domain.Tool {
	s.Description = "for a test"
	t, err := domain.Make(s)
	if err != nil {
		panic(err)
	}
	return t
}

type text struct {
	Text string `json:"text"`
}

// echo returns a tool that returns its input and counts its runs.
func echo(count *counter) domain.Tool {
	return must(domain.Spec[text, string]{
		Execute: func(_ context.Context, in text, inv domain.Invocation) (string, error) {
			count.add(inv)
			return in.Text, nil
		},
	})
}

// A counter counts the runs of calls. It is the state outside the process that tools
// change.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
}

func (c *counter) add(inv domain.Invocation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	c.runs[inv.Message.String()+"/"+string(inv.Call)]++
}

func (c *counter) of(message domain.MessageID, call domain.CallID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[message.String()+"/"+string(call)]
}

func (c *counter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, runs := range c.runs {
		n += runs
	}
	return n
}
