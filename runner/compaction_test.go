package runner_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A narrowModel is a provider whose context has few tokens. It refuses a request with
// more, as servers do, and plays one prepared reply after another. It counts a token for
// every four bytes.
type narrowModel struct {
	// name is the name of the model.
	name string
	// window is the number of tokens of a request and its reply, and reserved the number
	// of them that is for the reply.
	window, reserved int64
	// counts says that replies report their tokens.
	counts bool
	// summarize replies to a request for a summary. Nil: with a text that names the number
	// of messages.
	summarize func(runner.Turn) ([]runner.Part, error)
	replies   [][]runner.Part

	mu       sync.Mutex
	requests []narrowRequest
	refused  int
}

// A narrowRequest is a request that the model accepted.
type narrowRequest struct {
	turn     domain.TurnID
	summary  bool
	messages []conversation.ModelMessage
}

// A knownModel is a narrowModel whose limits the runner knows.
type knownModel struct{ *narrowModel }

func (m knownModel) ContextLimit(string) (window, output int64) { return m.window, m.reserved }

// tokens returns the number of tokens of messages.
func tokens(messages []conversation.ModelMessage) (n int64) {
	for _, m := range messages {
		n += int64(len(m.Text)+len(m.Reading.Text)+len(m.Reading.Error)+len(m.Reading.Structured))/4 + 4
		for _, c := range m.Calls {
			n += int64(len(c.Input)) / 4
		}
	}
	return n
}

// NextModel implements runner.ModelNamer.
func (m *narrowModel) NextModel(*conversation.State, string) (provider, model string) {
	return "narrow", m.name
}

func (m *narrowModel) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	messages := turn.Conversation.ModelMessages()
	fail := func(err error) iter.Seq2[runner.Part, error] {
		return func(yield func(runner.Part, error) bool) { yield(nil, err) }
	}
	if n := tokens(messages); n > m.window-m.reserved {
		m.refused++
		return fail(&runner.ProviderError{Provider: "narrow", Model: "n-1", Failure: runner.ContextExceeded, Status: 400, Message: fmt.Sprintf("%d tokens are too many", n)})
	}
	m.requests = append(m.requests, narrowRequest{turn.ID, turn.Summary, messages})
	reply := []runner.Part{runner.TextPart("done")}
	switch {
	case turn.Summary && m.summarize != nil:
		parts, err := m.summarize(turn)
		if err != nil {
			return fail(err)
		}
		reply = parts
	case turn.Summary:
		reply = []runner.Part{runner.TextPart(fmt.Sprintf("summary of %d messages", len(messages)))}
	case len(m.replies) > 0:
		reply, m.replies = m.replies[0], m.replies[1:]
	}
	return func(yield func(runner.Part, error) bool) {
		for _, part := range reply {
			if !yield(part, nil) {
				return
			}
		}
		finish := runner.FinishPart{Reason: "stop", Model: "n-1"}
		if m.counts {
			finish.Tokens = events.Tokens{Input: tokens(messages) / 2, CacheRead: tokens(messages) - tokens(messages)/2, Output: 8}
		}
		yield(finish, nil)
	}
}

// pageTool returns a tool whose result has as many bytes as its input says.
func pageTool() domain.Tool {
	return must(domain.Spec[struct {
		Bytes int `json:"bytes"`
	}, string]{Execute: func(_ context.Context, in struct {
		Bytes int `json:"bytes"`
	}, _ domain.Invocation) (string, error) {
		return strings.Repeat("x", in.Bytes), nil
	}})
}

// pages returns n replies, each with a call of the tool page.
func pages(n, bytes int) (replies [][]runner.Part) {
	for i := range n {
		replies = append(replies, []runner.Part{runner.TextPart(fmt.Sprintf("page %d", i)), ask(fmt.Sprint("c", i), "page", fmt.Sprintf(`{"bytes":%d}`, bytes))})
	}
	return replies
}

// checkRequests fails the test unless each accepted request is the one that the log says:
// the messages of the session up to the event of its turn, without those that the
// compaction named by the turn leaves out; for a summary, up to the message that the turn
// names. It returns the compactions.
func checkRequests(p *program, session domain.SessionID, model *narrowModel) []events.ContextCompacted {
	p.t.Helper()
	projection := conversation.Projection()
	s := projection.Init()
	var compactions []events.ContextCompacted
	sent := map[domain.TurnID]narrowRequest{}
	for _, r := range model.requests {
		sent[r.turn] = r
	}
	for v, err := range p.ledger.Read(p.t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if e, ok := v.Event.(events.TurnMaterialized); ok {
			var compacted domain.EventID
			if s.Compaction != nil {
				compacted = s.Compaction.Event
			}
			if e.Compacted != compacted {
				p.t.Errorf("turn %s names the compaction %s, and %s is in effect", e.Turn, e.Compacted, compacted)
			}
			request := *s
			if !e.Summarizes.IsZero() {
				for i, m := range s.Messages {
					if m.ID == e.Summarizes {
						request.Messages = s.Messages[:i+1]
					}
				}
			}
			r, ok := sent[e.Turn]
			if want := request.ModelMessages(); ok && !reflect.DeepEqual(r.messages, want) {
				p.t.Errorf("turn %s was sent %d messages\n%v\nand the log says %d\n%v", e.Turn, len(r.messages), r.messages, len(want), want)
			}
			delete(sent, e.Turn)
		}
		if e, ok := v.Event.(events.ContextCompacted); ok {
			if len(compactions) > 0 {
				checkShortened(p.t, s, compactions[len(compactions)-1], e)
			}
			compactions = append(compactions, e)
			var want events.ContextCompacted
			for _, m := range s.Messages {
				if e.Through.IsZero() {
					break
				}
				if m.Prompt != nil {
					want.Prompts++
				} else {
					want.Replies++
					want.Calls += int64(len(m.Reply.Calls))
				}
				if m.ID == e.Through {
					break
				}
			}
			if e.Prompts != want.Prompts || e.Replies != want.Replies || e.Calls != want.Calls {
				p.t.Errorf("a compaction through %s leaves out %d prompts, %d replies, %d calls, and the log says %d, %d, %d", e.Through, e.Prompts, e.Replies, e.Calls, want.Prompts, want.Replies, want.Calls)
			}
		}
		s = projection.Apply(s, v)
	}
	for turn := range sent {
		p.t.Errorf("turn %s was sent, and is not on record", turn)
	}
	return compactions
}

// checkShortened fails the test unless a compaction leaves out the results that the one
// before left out, but those of the messages that it leaves out.
func checkShortened(t testing.TB, s *conversation.State, before, after events.ContextCompacted) {
	t.Helper()
	gone := map[domain.MessageID]bool{}
	for _, m := range s.Messages {
		if after.Through.IsZero() {
			break
		}
		gone[m.ID] = true
		if m.ID == after.Through {
			break
		}
	}
	for _, r := range before.Shortened {
		if gone[r.Message] == slices.Contains(after.Shortened, r) {
			t.Errorf("the result of %s is left out by %+v and not by %+v, or twice", r.Call, before, after)
		}
	}
}

// A session that outgrows its context again and again goes on to its end. No request is too
// large, each follows from the log, and the prompt is in each.
func TestASessionOutgrowsItsContext(t *testing.T) {
	t.Parallel()
	for _, counts := range []bool{true, false} {
		model := &narrowModel{window: 3000, reserved: 500, counts: counts, replies: pages(30, 1200)}
		displayed := func(turn runner.Turn, part runner.Part) {
			if turn.Summary {
				t.Errorf("the part %v of a summary is displayed", part)
			}
		}
		p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: knownModel{model}, OnPart: displayed})
		session := p.open("read thirty pages")
		p.run(session)
		compactions := checkRequests(p, session, model)
		if len(compactions) < 3 || len(p.ends(session)) != 30 || model.refused > 0 {
			t.Errorf("counts %v: %d compactions, %d calls, %d requests refused; want at least 3, 30 and none", counts, len(compactions), len(p.ends(session)), model.refused)
		}
		for i, e := range compactions {
			if e.Trigger != events.CompactedAuto || e.Window != 3000 || e.Model != "n-1" || e.Detail != "" || e.Before <= 2500 || e.After >= 2500/2 || !strings.Contains(e.Summary, "summary of") {
				t.Errorf("counts %v: compaction %d is %+v", counts, i, e)
			}
		}
		for _, r := range model.requests {
			if !strings.Contains(fmt.Sprint(r.messages), "read thirty pages") {
				t.Errorf("counts %v: the prompt is in no message of %v", counts, r.messages)
			}
		}
		if left := exceptions(t, p.ledger); len(left) > 0 {
			t.Errorf("counts %v: the log breaks %v", counts, left)
		}
	}
}

// A prompt that a compaction left out of memory is still on record: admitting it again
// appends no event, and its message takes no other text.
func TestAPromptBeforeACompactionIsNotAdmittedAgain(t *testing.T) {
	t.Parallel()
	model := &narrowModel{window: 3000, reserved: 500, counts: true, replies: pages(30, 1200)}
	p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: knownModel{model}})
	session, message := p.open("first"), p.ledger.Mint().Message()
	if err := p.runner.Admit(t.Context(), session, message, "read thirty pages"); err != nil {
		t.Fatal(err)
	}
	p.run(session)
	before := p.state(session).Revision
	if err := p.runner.Admit(t.Context(), session, message, "other"); !errors.Is(err, runner.ErrOtherText) {
		t.Errorf("Admit with another text = %v, want ErrOtherText", err)
	}
	if err := p.runner.Admit(t.Context(), session, message, "read thirty pages"); err != nil {
		t.Error(err)
	}
	if after := p.state(session).Revision; after != before {
		t.Errorf("the session has %d events after the prompt was admitted again, want %d", after, before)
	}
}

// A provider that refuses requests as too large, and whose limits are not known, is asked
// again with less, until a request fits.
func TestARefusedRequestBecomesSmaller(t *testing.T) {
	t.Parallel()
	model := &narrowModel{window: 2500, replies: pages(20, 1200)}
	p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: model})
	session := p.open("read twenty pages")
	p.run(session)
	compactions := checkRequests(p, session, model)
	if len(compactions) < 2 || len(p.ends(session)) != 20 || model.refused == 0 {
		t.Errorf("%d compactions, %d calls, %d requests refused", len(compactions), len(p.ends(session)), model.refused)
	}
	for _, e := range compactions {
		if e.Trigger != events.CompactedExceeded || e.Window != 0 {
			t.Errorf("the compaction is %+v", e)
		}
	}
}

// Results that alone do not fit are left out, and the model reads their sizes. A prompt
// that alone does not fit ends the run with the error of the provider; a shorter one is
// then answered.
func TestWhatTheModelHasNotReadStays(t *testing.T) {
	t.Parallel()
	model := &narrowModel{window: 2000, replies: [][]runner.Part{{ask("small", "page", `{"bytes":900}`), ask("large", "page", `{"bytes":20000}`)}}}
	p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	compactions := checkRequests(p, session, model)
	if len(compactions) != 1 || len(compactions[0].Shortened) != 1 || compactions[0].Shortened[0].Call != "large" || compactions[0].Shortened[0].Bytes != 20000 || !compactions[0].Through.IsZero() {
		t.Errorf("the compactions are %+v, want one of the result of the call large", compactions)
	}
	p.admit(session, strings.Repeat("y", 20000))
	err := p.runner.Run(t.Context(), session)
	if failed, ok := errors.AsType[*runner.ProviderError](err); !ok || failed.Failure != runner.ContextExceeded {
		t.Errorf("with a prompt that does not fit, Run = %v", err)
	}
	before := len(checkRequests(p, session, model))
	if err := p.runner.Run(t.Context(), session); err == nil {
		t.Error("the prompt that does not fit was answered")
	}
	if after := checkRequests(p, session, model); len(after) != before {
		t.Errorf("another run added %d compactions", len(after)-before)
	}
	model.window = 20000
	p.run(session)
	if s := p.state(session); !s.Replied {
		t.Error("a model with a larger window did not reply")
	}
}

// A result that was left out once stays out while its message stays.
func TestALeftOutResultStaysOut(t *testing.T) {
	t.Parallel()
	var replies [][]runner.Part
	for i := range 24 {
		size := []int{300, 300, 12000, 12000}[i%4]
		replies = append(replies, []runner.Part{ask("a", "page", fmt.Sprintf(`{"bytes":%d}`, size)), ask("b", "page", fmt.Sprintf(`{"bytes":%d}`, size/2))})
	}
	model := &narrowModel{window: 3000, reserved: 500, counts: true, replies: replies}
	p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: knownModel{model}})
	session := p.open("read it")
	p.run(session)
	stayed := false
	compactions := checkRequests(p, session, model)
	for i, e := range compactions[1:] {
		stayed = stayed || slices.ContainsFunc(e.Shortened, func(r events.ShortenedResult) bool { return slices.Contains(compactions[i].Shortened, r) })
	}
	if !stayed || len(p.ends(session)) != 48 {
		t.Errorf("%d calls ended, and of %d compactions none left out a result of the one before", len(p.ends(session)), len(compactions))
	}
}

// Sessions of random prompts, results, windows and failures of the summaries go on to their
// ends, or end with the error of the provider for a prompt that does not fit. Each
// compaction leaves out more than the one before, and no request is repeated without one.
func TestRandomSessionsFitIntoTheirContext(t *testing.T) {
	t.Parallel()
	seeds := uint64(40)
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		seeds = 3000
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 22))
		model := &narrowModel{window: 1500 + r.Int64N(4000), counts: r.IntN(2) == 0}
		model.reserved = r.Int64N(model.window / 2)
		if r.IntN(2) == 0 {
			model.summarize = func(runner.Turn) ([]runner.Part, error) {
				switch r.IntN(4) {
				case 0:
					return nil, &runner.ProviderError{Provider: "narrow", Failure: runner.Overloaded}
				case 1:
					return []runner.Part{ask("c", "page", `{}`)}, nil
				}
				return []runner.Part{runner.TextPart(strings.Repeat("summary ", r.IntN(2000)))}, nil
			}
		}
		var provider runner.Provider = model
		if r.IntN(3) > 0 {
			provider = knownModel{model}
		}
		p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: provider})
		session := p.open("begin")
		for range 3 {
			for range r.IntN(8) {
				var reply []runner.Part
				for i := range 1 + r.IntN(3) {
					reply = append(reply, ask(fmt.Sprint("c", i), "page", fmt.Sprintf(`{"bytes":%d}`, r.IntN(1<<r.IntN(14)))))
				}
				model.replies = append(model.replies, reply)
			}
			err := p.runner.Run(t.Context(), session)
			if failed, ok := errors.AsType[*runner.ProviderError](err); err != nil && (!ok || failed.Failure != runner.ContextExceeded) {
				t.Errorf("seed %d: Run = %v", seed, err)
			}
			p.admit(session, strings.Repeat("p", 1+r.IntN(1<<r.IntN(12))))
		}
		compactions := checkRequests(p, session, model)
		order := map[domain.MessageID]int{}
		for i, m := range p.state(session).Messages {
			order[m.ID] = i + 1
		}
		for i, e := range compactions[min(1, len(compactions)):] {
			before := compactions[i]
			if order[e.Through] < order[before.Through] || order[e.Through] == order[before.Through] && len(e.Shortened) <= len(before.Shortened) {
				t.Errorf("seed %d: compaction %d, %+v, leaves out no more than %+v", seed, i+1, e, before)
			}
		}
		for _, e := range compactions {
			for _, short := range e.Shortened {
				if short.Bytes < 1000 {
					t.Errorf("seed %d: a result of %d bytes is left out", seed, short.Bytes)
				}
			}
		}
		for _, a := range p.state(session).Open() {
			t.Errorf("seed %d: call %s is open", seed, a.ID)
		}
	}
}

// If the model writes no usable summary, the program does, and the log says why. The reply
// is on record as refused, and no call of it runs.
func TestTheProgramWritesTheSummaryThatTheModelDoesNot(t *testing.T) {
	t.Parallel()
	overloaded := &runner.ProviderError{Provider: "narrow", Model: "n-1", Failure: runner.Overloaded, Status: 529, Message: "busy"}
	for _, c := range []struct {
		name, detail string
		parts        []runner.Part
		err          error
		refused      int
	}{
		{"fails", "busy", nil, overloaded, 0},
		{"calls", "has calls", []runner.Part{runner.TextPart("so"), ask("c", "page", `{"bytes":1}`)}, nil, 1},
		{"blank", "has no text", []runner.Part{runner.TextPart(" \n")}, nil, 1},
	} {
		model := &narrowModel{window: 3000, counts: true, replies: pages(8, 1500), summarize: func(runner.Turn) ([]runner.Part, error) { return c.parts, c.err }}
		p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: knownModel{model}})
		session := p.open("read eight pages")
		p.run(session)
		compactions := checkRequests(p, session, model)
		if len(compactions) == 0 || len(p.ends(session)) != 8 {
			t.Errorf("%s: %d compactions, %d calls", c.name, len(compactions), len(p.ends(session)))
		}
		for _, e := range compactions {
			if e.Model != "" || !strings.Contains(e.Detail, c.detail) || !strings.Contains(e.Summary, "read eight pages") || !strings.Contains(e.Summary, "page: ") {
				t.Errorf("%s: the compaction is %+v", c.name, e)
			}
		}
		if got := len(eventsOf[events.ReplyRefused](t, p, session)); got != c.refused*len(compactions) {
			t.Errorf("%s: %d replies are on record as refused, of %d compactions", c.name, got, len(compactions))
		}
	}
}

// An interruption while the model writes a summary ends the run. The next run compacts
// anew.
func TestAnInterruptedSummaryIsWrittenAgain(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	model := &narrowModel{window: 3000, counts: true, replies: pages(8, 1500)}
	model.summarize = func(runner.Turn) ([]runner.Part, error) {
		stop()
		model.summarize = nil
		return []runner.Part{runner.TextPart("half of it")}, nil
	}
	p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: knownModel{model}})
	session := p.open("read eight pages")
	if err := p.runner.Run(ctx, session); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run ended with %v", err)
	}
	if s := p.state(session); s.Compaction != nil || s.Interrupted == nil {
		t.Errorf("after the interruption: compaction %v, interruption %v", s.Compaction, s.Interrupted)
	}
	if refused := eventsOf[events.ReplyRefused](t, p, session); len(refused) != 1 || refused[0].Text != "half of it" {
		t.Errorf("the refused replies are %+v, want the part of the summary", refused)
	}
	p.run(session)
	if compactions := checkRequests(p, session, model); len(compactions) == 0 || len(p.ends(session)) != 8 {
		t.Errorf("%d compactions, %d calls", len(compactions), len(p.ends(session)))
	}
}

// A request that one model refused as too large is sent to another model as it is. A
// recovery neither compacts nor asks a model.
func TestOnlyTheModelThatRefusedGetsLess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		recovers    bool
		compactions int
	}{{"small", false, 1}, {"large", false, 0}, {"small", true, 0}} {
		model := &narrowModel{name: "small", window: 1 << 20, replies: pages(4, 1200)}
		p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: model})
		session := p.open("go")
		p.run(session)
		p.admit(session, "go on")
		mint, s := p.ledger.Mint(), p.state(session)
		turn := events.TurnMaterialized{Turn: mint.Turn(), Message: mint.Message(), Agent: "build", Model: "small"}
		failed := events.ProviderFailed{Turn: turn.Turn, Failure: events.FailureContextExceeded}
		asked := events.PermissionRequested{Permission: mint.Permission(), Message: s.Messages[1].ID, Call: "c0", Agent: "build", Action: "page", Resources: []string{"*"}}
		for i, e := range []events.Event{turn, failed, asked} {
			if _, err := p.ledger.Append(t.Context(), events.SessionStream(session), s.Revision+events.Revision(i), p.ledger.Draft(e, s.Last)); err != nil {
				t.Fatal(err)
			}
		}
		model.name = c.name
		requests := len(model.requests)
		if c.recovers {
			if err := p.runner.Recover(t.Context(), session); err != nil || len(model.requests) != requests {
				t.Errorf("the recovery sent %d requests and returned %v", len(model.requests)-requests, err)
			}
		} else {
			p.run(session)
		}
		if got := eventsOf[events.ContextCompacted](t, p, session); len(got) != c.compactions {
			t.Errorf("%+v: the compactions are %+v", c, got)
		}
		if asks := p.state(session).Asks; len(asks) != 0 {
			t.Errorf("%+v: requests are open: %v", c, asks)
		}
	}
}

// A session whose process dies at any append goes on in the next process, with requests
// that follow from the log. A recovery asks for no summary.
func TestACompactionSurvivesThePowerCut(t *testing.T) {
	t.Parallel()
	tools := registry.Tools{"page": pageTool()}
	// live runs a session in a process whose power is cut at one of its appends, and returns
	// the number of appends.
	live := func(t *testing.T, store events.Store, model *narrowModel, cut int) (session domain.SessionID, appends int) {
		dying := &cutting{Store: store, at: cut, after: cut%2 == 0, cut: func() {}}
		p, err := boot(t, dying, noOutputs{}, tools, runner.Config{Provider: knownModel{model}})
		if err == nil {
			session, err = p.runner.Open(t.Context(), events.SessionOpened{Agent: "build", Location: "/here"})
		}
		if err == nil {
			err = p.runner.Admit(t.Context(), session, p.ledger.Mint().Message(), "read eight pages")
		}
		if err == nil {
			err = p.runner.Run(t.Context(), session)
		}
		if (err == nil) != (cut == 0) {
			t.Errorf("with the power cut at %d the process ended with %v", cut, err)
		}
		return session, dying.mu.appends
	}
	narrow := func() *narrowModel { return &narrowModel{window: 2600, counts: true, replies: pages(8, 1500)} }
	_, appends := live(t, eventstest.NewSlice(), narrow(), 0)
	for cut := 1; cut <= appends; cut++ {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			store, model := eventstest.NewSlice(), narrow()
			session, _ := live(t, store, model, cut)
			p, err := boot(t, store, noOutputs{}, tools, runner.Config{Provider: knownModel{model}})
			if err != nil {
				t.Fatal(err)
			}
			if session.IsZero() || len(p.state(session).Messages) == 0 {
				return // the power was cut before the prompt was on record
			}
			asked := len(model.requests)
			p.recoverOrphans()
			if len(model.requests) != asked {
				t.Error("the recovery asked the model")
			}
			p.run(session)
			if got := checkRequests(p, session, model); len(got) == 0 {
				t.Error("there was no compaction")
			}
			if left := exceptions(t, p.ledger); len(left) > 0 {
				t.Errorf("the log breaks %v", left)
			}
		})
	}
}
