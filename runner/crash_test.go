package runner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

// manyCalls is a session of twelve calls: some in parallel, one unknown, one with an
// invalid input, one with a defect, two with outputs over the limits, one that adds three
// calls, and one that asks a question, replaces the todos and switches the agent.
const manyCalls = `{"schema_version":"ATIF-v1.7","agent":{"name":"build"},"steps":[
 {"source":"user","message":"go"},
 {"source":"agent","message":"","tool_calls":[
  {"tool_call_id":"1","function_name":"echo","arguments":{"text":"a"}},
  {"tool_call_id":"2","function_name":"large","arguments":{"text":"b"}},
  {"tool_call_id":"3","function_name":"missing","arguments":{}}]},
 {"source":"agent","message":"","tool_calls":[
  {"tool_call_id":"1","function_name":"echo","arguments":{"text":"c"}},
  {"tool_call_id":"2","function_name":"echo","arguments":{"wrong":true}}]},
 {"source":"agent","message":"","tool_calls":[
  {"tool_call_id":"6","function_name":"breaks","arguments":{"text":"d"}},
  {"tool_call_id":"7","function_name":"large","arguments":{"text":"e"}},
  {"tool_call_id":"8","function_name":"echo","arguments":{"text":"f"}},
  {"tool_call_id":"9","function_name":"echo","arguments":{"text":"g"}}]},
 {"source":"agent","message":"","tool_calls":[
  {"tool_call_id":"11","function_name":"notes","arguments":{"text":"i"}},
  {"tool_call_id":"12","function_name":"adds","arguments":{"names":["echo","large","breaks"]}}]},
 {"source":"agent","message":"","tool_calls":[{"tool_call_id":"10","function_name":"echo","arguments":{"text":"h"}}]},
 {"source":"agent","message":"done"}]}`

var errPower = errors.New("the power is gone")

// A cutting store cuts the power at one append: before the append, or after it is durable
// and before it is acknowledged. All later operations fail.
type cutting struct {
	events.Store
	at    int
	after bool
	cut   func()
	mu    struct {
		sync.Mutex
		appends int
		dead    bool
		acked   []events.Record
	}
}

func (c *cutting) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.dead {
		return errPower
	}
	c.mu.appends++
	if c.mu.appends == c.at && !c.after {
		c.mu.dead = true
		c.cut()
		return errPower
	}
	if err := c.Store.Append(ctx, s, after, records...); err != nil {
		return err
	}
	if c.mu.appends == c.at {
		c.mu.dead = true
		c.cut()
		return errPower
	}
	c.mu.acked = append(c.mu.acked, records...)
	return nil
}

// A machine is a disk and the counter that its tools change, which a power cut does not
// reset.
type machine struct {
	t     *testing.T
	world *counter
}

// A life is one process on a disk.
type life struct {
	*program
	store   *embedded.Store
	outputs *outputs.Store
	cutting *cutting
}

// notes records a question and its answer, todos, and a switch of the agent.
func (l *life) notes(ctx context.Context, inv domain.Invocation) error {
	question := l.ledger.Mint().Permission()
	for _, e := range []events.Event{
		events.QuestionAsked{Question: question, Message: inv.Message, Call: inv.Call, Agent: inv.Agent, Questions: []domain.Question{{Question: "Which?"}}},
		events.QuestionAnswered{Question: question, By: events.ByPerson, Answers: []events.AnsweredQuestion{{Chosen: []string{"this"}}}},
		events.TodosReplaced{Message: inv.Message, Call: inv.Call, Todos: []domain.Todo{{Content: "act", Status: "pending", Priority: "high"}}},
		events.AgentSwitched{Agent: "plan", Previous: inv.Agent, Message: inv.Message, Call: inv.Call},
	} {
		if err := l.runner.Note(ctx, inv, e); err != nil {
			return err
		}
	}
	return nil
}

// profileOf returns a profile whose texts go on record.
func profileOf(_ context.Context, s *conversation.State) (runner.Profile, error) {
	return runner.Profile{System: "You are " + string(s.Agent), Model: "m-" + string(s.Agent)}, nil
}

func (m *machine) tools(l *life, adds *adding) registry.Tools {
	act := func(after func(text) (string, error)) domain.Tool {
		return must(domain.Spec[text, string]{Execute: func(_ context.Context, in text, inv domain.Invocation) (string, error) {
			m.world.add(inv)
			return after(in)
		}})
	}
	return registry.Tools{
		"adds": adds.tool(m.world),
		"notes": must(domain.Spec[text, string]{Execute: func(ctx context.Context, in text, inv domain.Invocation) (string, error) {
			m.world.add(inv)
			return in.Text, l.notes(ctx, inv)
		}}),
		"echo":   act(func(in text) (string, error) { return in.Text, nil }),
		"large":  act(func(in text) (string, error) { return strings.Repeat(in.Text+"\n", 30_000), nil }),
		"breaks": act(func(text) (string, error) { return "", errors.New("broken") }),
	}
}

// live starts a process on a disk. It returns errPower if the power was cut, and ends the
// test at any other error.
func (m *machine) live(fs vfs.FS, at int, after bool, cut func()) (*life, error) {
	m.t.Helper()
	speaker, err := script.Parse("many", strings.NewReader(manyCalls))
	if err != nil {
		m.t.Fatal(err)
	}
	l := &life{}
	if l.store, err = embedded.Open(m.t.Context(), "store", embedded.Config{FS: fs}); err != nil {
		m.t.Fatal(err)
	}
	if l.outputs, err = outputs.Open("outputs", outputs.Config{FS: fs}); err != nil {
		m.t.Fatal(err)
	}
	l.cutting = &cutting{Store: l.store, at: at, after: after, cut: cut}
	adds := new(adding)
	l.program, err = boot(m.t, l.cutting, l.outputs, m.tools(l, adds), runner.Config{Provider: speaker, Profile: profileOf})
	adds.program.Store(l.program)
	if err != nil && !errors.Is(err, errPower) {
		m.t.Fatal(err)
	}
	return l, err
}

func (l *life) close() {
	if err := errors.Join(l.store.Close(), l.outputs.Close()); err != nil {
		l.t.Error(err)
	}
}

// play opens the session and runs it until it is idle or the power is cut.
func (l *life) play() error {
	ctx := l.t.Context()
	session, err := l.runner.Open(ctx, events.SessionOpened{Agent: "build"})
	if err != nil {
		return err
	}
	if err := l.runner.Admit(ctx, session, l.ledger.Mint().Message(), "go"); err != nil {
		return err
	}
	return l.runner.Run(ctx, session)
}

// A power cut before or after any append of a session keeps the laws of calls. The test
// loses unsynced data at random, and all memory, and then recovers. The short run takes
// every seventh cut.
func TestAPowerCutAtAnyAppendKeepsTheCallLaws(t *testing.T) {
	t.Parallel()
	appends := countAppends(t)
	if appends < 45 {
		t.Fatalf("the session makes %d appends, want 45 and more: fifteen calls make thirty", appends)
	}
	step := 7 // odd, so that cuts before and after an append alternate
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		step = 1
	}
	for n := 0; n < 2*appends; n += step {
		at, after := 1+n/2, n%2 == 1
		t.Run(fmt.Sprintf("append %d of %d, durable %t", at, appends, after), func(t *testing.T) {
			t.Parallel()
			cutAndRecover(t, at, after)
		})
	}
}

func countAppends(t *testing.T) int {
	t.Helper()
	m := &machine{t, &counter{}}
	l, err := m.live(vfs.NewCrashableMem(), 0, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.play(); err != nil {
		t.Fatal(err)
	}
	l.mustHold(m.world)
	session := l.folded().Sessions()[0]
	s := l.state(session.ID)
	if s.Agent != "plan" || len(s.Todos) != 1 || len(s.Texts) != 2 || session.Calls != 15 {
		t.Errorf("the session has %d calls, the agent %s, the todos %v and the texts %v", session.Calls, s.Agent, s.Todos, s.Texts)
	}
	return l.cutting.mu.appends
}

func cutAndRecover(t *testing.T, at int, after bool) {
	m := &machine{t, &counter{}}
	disk := vfs.NewCrashableMem()
	seed := rand.Uint64()
	var left *vfs.MemFS
	first, err := m.live(disk, at, after, func() {
		left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, 0))})
	})
	if err == nil {
		err = first.play()
	}
	if !errors.Is(err, errPower) {
		t.Fatalf("the process ended with %v, want its power cut (seed %d)", err, seed)
	}
	if first.layers != nil {
		if err := first.layers.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first.close() // on the disk that is gone
	second, err := m.live(left, 0, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	second.mustHave(first.cutting.mu.acked)
	second.recoverOrphans()
	second.sweep()
	second.mustHold(m.world)
	second.goOn()
	second.mustHold(m.world)
}

// mustHave fails the test unless every acknowledged record survived.
func (l *life) mustHave(acked []events.Record) {
	l.t.Helper()
	have := map[domain.EventID]bool{}
	for e, err := range l.ledger.Entries(l.t.Context(), events.Position{}) {
		if err != nil {
			l.t.Fatal(err)
		}
		have[e.ID] = true
	}
	for _, r := range acked {
		if !have[r.ID] {
			l.t.Errorf("%s %s was acknowledged and is gone", r.Kind, r.ID)
		}
	}
}

func (l *life) folded() *calls.State {
	l.t.Helper()
	p := calls.Projection()
	s, err := projections.Fold(p, p.Init(), l.ledger.ReadAll(l.t.Context(), events.Position{}))
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// sweep deletes the outputs that no settlement names.
func (l *life) sweep() {
	l.t.Helper()
	named := map[domain.EventID]bool{}
	for _, r := range l.folded().Retained() {
		named[r.Settlement] = true
	}
	_, err := l.outputs.Sweep(l.t.Context(), func(_ context.Context, id domain.EventID) (bool, error) { return named[id], nil })
	if err != nil {
		l.t.Fatal(err)
	}
}

// goOn runs every session of the log, as a person would who resumes them.
func (l *life) goOn() {
	l.t.Helper()
	for _, s := range l.folded().Sessions() {
		if s.Prompts > 0 {
			l.run(s.ID)
		}
	}
}

// mustHold fails the test unless the laws of calls hold: every call has one end, ran at
// most once, and is on record as begun if it ran; every reference resolves; and the store
// has no output without a reference.
func (l *life) mustHold(world *counter) {
	l.t.Helper()
	s := l.folded()
	for _, e := range append(s.Exceptions(), s.Unfinished()...) {
		l.t.Errorf("%s: %s", e.Law, e.Detail)
	}
	asked := 0
	for _, c := range s.Calls() {
		asked++
		runs := world.of(c.Message, c.ID)
		if runs > 1 || runs == 1 && !c.Settlement.Began {
			l.t.Errorf("call %s ran %d times and is on record as begun: %t", c.ID, runs, c.Settlement.Began)
		}
		if c.Settlement.Outcome == domain.Succeeded && runs != 1 {
			l.t.Errorf("call %s succeeded and ran %d times", c.ID, runs)
		}
	}
	if world.total() > asked {
		l.t.Errorf("%d calls ran and %d are on record", world.total(), asked)
	}
	named := 0
	for _, r := range s.Retained() {
		named++
		if err := l.outputs.Verify(l.t.Context(), r.Ref); err != nil {
			l.t.Errorf("resolve %s: %v", r.Ref, err)
		}
	}
	kept := 0
	for _, err := range l.outputs.All(l.t.Context()) {
		if err != nil {
			l.t.Fatal(err)
		}
		kept++
	}
	if kept != named {
		l.t.Errorf("%d outputs are kept and %d named", kept, named)
	}
}
