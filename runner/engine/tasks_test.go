package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// A scripted provider returns the reply of an agent by the number of replies that the
// session has. Further replies are the text "done". An agent named fails has no replies.
type scripted map[domain.AgentID][]runner.Part

var errProvider = errors.New("the provider is down")

func (s scripted) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	replies := 0
	for _, m := range turn.Conversation.Messages {
		if m.Reply != nil {
			replies++
		}
	}
	return func(yield func(runner.Part, error) bool) {
		switch script := s[turn.Agent]; {
		case turn.Agent == "fails":
			yield(nil, errProvider)
		case replies < len(script):
			yield(script[replies], nil)
		default:
			yield(runner.TextPart("done by "+string(turn.Agent)), nil)
		}
	}
}

// callPart returns a part with a call.
func callPart(name, format string, args ...any) runner.Part {
	return runner.CallPart{ID: "c", Name: name, Input: fmt.Appendf(nil, format, args...)}
}

// task returns a part with a call of task for an agent.
func task(agent string) runner.Part {
	return callPart("task", `{"agent":%q,"description":"a task","prompt":"do it"}`, agent)
}

// A family is a workspace whose sessions run tasks.
type family struct {
	*engine.Workspace
	t      *testing.T
	ledger *events.Ledger
	asked  struct {
		sync.Mutex
		requests []permission.Request
	}
	choice permission.Choice
}

// Decide implements permission.Approver.
func (f *family) Decide(_ context.Context, r permission.Request) (permission.Answer, error) {
	f.asked.Lock()
	defer f.asked.Unlock()
	f.asked.requests = append(f.asked.requests, r)
	return permission.Answer{Choice: f.choice, By: permission.ByUser}, nil
}

// newFamily opens a workspace with the tools of sessions and act, which asks for
// permission to act. agents are the known agents with their rules.
func newFamily(t *testing.T, script scripted, agents map[domain.AgentID]string, configure func(*engine.WorkspaceConfig)) *family {
	t.Helper()
	f := &family{t: t, ledger: ledgerOver(eventstest.NewSlice()), choice: permission.Once}
	p := start(t, engine.ProcessConfig{Ledger: f.ledger})
	config := engine.WorkspaceConfig{
		Location: "/w", Rules: rules("allow * *"), Approver: f, TaskDepth: 3, Runner: runner.Config{Provider: script},
		Agents: func(name domain.AgentID) (runner.Profile, error) {
			text, ok := agents[name]
			if !ok {
				return runner.Profile{}, fmt.Errorf("there is no agent %s", name)
			}
			return runner.Profile{Rules: domain.RuleSets{rules(text)}, System: "You are " + string(name)}, nil
		},
		Tools: func(w *engine.Workspace) (registry.Tools, error) {
			made, err := sessiontools.Tools(sessiontools.Config{
				Session: w, Permission: w.Gate, Subagents: func() (named []sessiontools.AgentInfo) {
					for _, name := range append(slices.Collect(maps.Keys(agents)), "nobody") {
						named = append(named, sessiontools.AgentInfo{Name: name, Description: "For a test."})
					}
					return named
				}, PlanFile: func(domain.SessionID) string { return "plan.md" },
			})
			if err != nil {
				return nil, err
			}
			acts, err := acting(func() {})(w)
			maps.Copy(made, map[string]domain.Tool{"act": acts["greet"]})
			return registry.Tools(made), err
		},
	}
	if configure != nil {
		configure(&config)
	}
	var err error
	if f.Workspace, err = p.Open(t.Context(), config); err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return f
}

// open opens a session of an agent and prompts it.
func (f *family) open(agent domain.AgentID) domain.SessionID {
	f.t.Helper()
	session, err := f.Runner.Open(f.t.Context(), events.SessionOpened{Agent: agent, Location: "/w"})
	if err == nil {
		err = f.Runner.Admit(f.t.Context(), session, f.ledger.Mint().Message(), "go")
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return session
}

// run opens a session, runs it to its end and checks the laws of calls.
func (f *family) run(agent domain.AgentID) *conversation.State {
	f.t.Helper()
	session := f.open(agent)
	if err := f.Run(f.t.Context(), session); err != nil {
		f.t.Fatalf("Run = %v", err)
	}
	f.wantLaws()
	return f.state(session)
}

// wantLaws fails the test if the log breaks a law of calls or has open work.
func (f *family) wantLaws() {
	f.t.Helper()
	for _, e := range exceptions(f.t, f.ledger) {
		f.t.Errorf("%s: %s", e.Law, e.Detail)
	}
}

// state returns the state of a session.
func (f *family) state(session domain.SessionID) *conversation.State {
	f.t.Helper()
	s, err := f.Conversation(f.t.Context(), session)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// sessions returns the states of all sessions in the order of their opening.
func (f *family) sessions() (all []*conversation.State) {
	f.t.Helper()
	for v, err := range f.ledger.ReadAll(f.t.Context(), events.Position{}) {
		if err != nil {
			f.t.Fatal(err)
		}
		if e, ok := v.Event.(events.SessionOpened); ok {
			all = append(all, f.state(e.Session))
		}
	}
	return all
}

// end returns the settlement of the last call of a session.
func end(t *testing.T, s *conversation.State) domain.Settlement {
	t.Helper()
	for _, m := range slices.Backward(s.Messages) {
		if m.Reply != nil && len(m.Reply.Calls) > 0 {
			if end := m.Reply.Calls[0].Settlement; end != nil {
				return *end
			}
		}
	}
	t.Fatal("the session has no call with an end")
	return domain.Settlement{}
}

// wantEnd fails the test unless the last call of a session ended like this, with each of
// the texts in what the model reads.
func (f *family) wantEnd(s *conversation.State, outcome domain.Outcome, texts ...string) {
	f.t.Helper()
	got := end(f.t, s)
	reading := got.ToolResult().Text + got.ToolResult().Error
	for _, text := range texts {
		if got.Outcome != outcome || !strings.Contains(reading, text) {
			f.t.Errorf("the call of %s ended %s with %q, want %s with %q", s.Agent, got.Outcome, reading, outcome, text)
		}
	}
}

// A task is a session with a stream of its own, which names its parent, the call that
// started it and the agents above it. Its last reply is the result.
func TestATaskIsASessionBelowItsCall(t *testing.T) {
	t.Parallel()
	f := newFamily(t, scripted{"build": {task("general")}, "general": {task("explore")}}, map[domain.AgentID]string{"build": "allow * *", "general": "allow * *", "explore": "allow * *"}, nil)
	root := f.run("build")
	f.wantEnd(root, domain.Succeeded, "done by general")
	all := f.sessions()
	if len(all) != 3 {
		t.Fatalf("%d sessions, want 3", len(all))
	}
	for i, want := range [][]domain.AgentID{nil, {"build"}, {"build", "general"}} {
		s := all[i]
		if !slices.Equal(s.Ancestors, want) || s.Location != "/w" {
			t.Errorf("session %d is below %v, want %v", i, s.Ancestors, want)
		}
		if i == 0 {
			continue
		}
		parent := all[i-1]
		if c, ok := parent.Call(s.ParentMessage, s.ParentCall); s.Parent != parent.Session || !ok || c.Name != "task" || s.Messages[0].Prompt.Text != "do it" {
			t.Errorf("session %d is of call %s of %s with the prompt %+v", i, s.ParentCall, s.Parent, s.Messages[0].Prompt)
		}
	}
}

// A task at the maximum depth, one for an unknown agent and one that continues another
// session than a child of its own, opened by its own agent, run nothing. Scenario 166.
func TestATaskThatMayNotRunSaysWhy(t *testing.T) {
	t.Parallel()
	agents := map[domain.AgentID]string{"build": "allow * *", "general": "allow * *"}
	t.Run("too deep", func(t *testing.T) {
		t.Parallel()
		f := newFamily(t, scripted{"build": {task("general")}, "general": {task("general")}}, agents, nil)
		f.run("build")
		all := f.sessions()
		f.wantEnd(all[3], domain.Failed, "Subagent depth limit reached (3).")
		if len(all) != 4 {
			t.Errorf("%d sessions, want the root and three below it", len(all))
		}
	})
	t.Run("no depth", func(t *testing.T) {
		t.Parallel()
		f := newFamily(t, scripted{"build": {task("general")}}, agents, func(c *engine.WorkspaceConfig) { c.TaskDepth = -1 })
		f.wantEnd(f.run("build"), domain.Failed, "Subagent depth limit reached (0).")
	})
	t.Run("default depth", func(t *testing.T) {
		t.Parallel()
		f := newFamily(t, scripted{"build": {task("general")}, "general": {task("general")}}, agents, func(c *engine.WorkspaceConfig) { c.TaskDepth = 0 })
		f.run("build")
		f.wantEnd(f.sessions()[1], domain.Failed, "Subagent depth limit reached (1).")
	})
	t.Run("unknown agent", func(t *testing.T) {
		t.Parallel()
		f := newFamily(t, scripted{"build": {task("nobody")}}, agents, nil)
		f.wantEnd(f.run("build"), domain.Failed, "nobody")
	})
	for name, of := range map[string]struct {
		opened events.SessionOpened
		want   string
	}{
		"a session without a parent": {events.SessionOpened{Agent: "general"}, "is not a child of the current session"},
		"a child of another agent":   {events.SessionOpened{Agent: "build", Ancestors: []domain.AgentID{"build"}}, "is one of agent build, not of general"},
		"a child that another agent opened": {
			events.SessionOpened{Agent: "general", Ancestors: []domain.AgentID{"general"}}, "was opened by another agent than build",
		},
		"a session that is not there": {events.SessionOpened{}, "Subagent session not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := scripted{}
			f := newFamily(t, script, agents, nil)
			root, child := f.open("build"), f.ledger.Mint().Session()
			if of.opened.Agent != "" {
				if of.opened.Ancestors != nil {
					of.opened.Parent = root
				}
				var err error
				if child, err = f.Runner.Open(t.Context(), of.opened); err != nil {
					t.Fatal(err)
				}
			}
			script["build"] = []runner.Part{callPart("task", `{"agent":"general","description":"d","prompt":"more","sessionID":%q}`, child)}
			if err := f.Run(t.Context(), root); err != nil {
				t.Fatal(err)
			}
			f.wantEnd(f.state(root), domain.Failed, of.want)
			if n := len(f.state(child).Messages); n != 0 {
				t.Errorf("the session of another has %d messages, want none", n)
			}
			f.wantLaws()
		})
	}
}

// A task that continues its child adds a prompt to the same session.
func TestATaskContinuesItsChild(t *testing.T) {
	t.Parallel()
	script := scripted{"build": {task("general")}}
	f := newFamily(t, script, map[domain.AgentID]string{"build": "allow * *", "general": "allow * *"}, nil)
	root := f.run("build")
	child := f.sessions()[1].Session
	replies := 0
	for _, m := range root.Messages {
		if m.Reply != nil {
			replies++
		}
	}
	script["build"] = append(slices.Repeat([]runner.Part{runner.TextPart("")}, replies), callPart("task", `{"agent":"general","description":"d","prompt":"more","sessionID":%q}`, child))
	if err := f.Runner.Admit(t.Context(), root.Session, f.ledger.Mint().Message(), "again"); err != nil {
		t.Fatal(err)
	}
	if err := f.Run(t.Context(), root.Session); err != nil {
		t.Fatal(err)
	}
	f.wantEnd(f.state(root.Session), domain.Succeeded, child.String(), "done by general")
	s := f.state(child)
	if len(f.sessions()) != 2 || len(s.Messages) != 4 || s.Messages[2].Prompt == nil || s.Messages[2].Prompt.Text != "more" {
		t.Errorf("%d sessions, and the child has %d messages, want 2 and the second prompt as the third of four", len(f.sessions()), len(s.Messages))
	}
	f.wantLaws()
}

// The rules of every agent above bind a subsession: a denial of the root's agent denies in
// the grandchild, and a question of the root's agent is one in the grandchild, with its
// invocation, for the same person.
func TestTheRulesOfEveryAncestorBindASubsession(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		build, general, explore string
		outcome                 domain.Outcome
		text                    string
		asked                   int
	}{
		{"allow * *\ndeny act x", "allow * *", "allow * *", domain.DeniedByRule, "Permission denied: act x", 0},
		{"allow * *", "allow * *\ndeny act x", "allow * *", domain.DeniedByRule, "Permission denied: act x", 0},
		{"allow * *\nask act *", "allow * *", "allow * *", domain.Succeeded, "done", 1},
		{"allow * *", "allow * *", "allow * *", domain.Succeeded, "done", 0},
		{"allow * *\nask act *", "allow * *\ndeny act *", "allow act x", domain.UnknownTool, "Unknown tool: act", 0},
	} {
		f := newFamily(t, scripted{"build": {task("general")}, "general": {task("explore")}, "explore": {callPart("act", `{"Name":"x"}`)}},
			map[domain.AgentID]string{"build": row.build, "general": row.general, "explore": row.explore}, nil)
		f.run("build")
		all := f.sessions()
		f.wantEnd(all[2], row.outcome, row.text)
		if len(f.asked.requests) != row.asked || row.asked == 1 && f.asked.requests[0].Invocation.Session != all[2].Session {
			t.Errorf("%+v: the person was asked %+v, want %d requests of the grandchild", row, f.asked.requests, row.asked)
		}
	}
}

// A person who declines a call of a grandchild without feedback stops every session above
// it, and every call has ended.
func TestADeclineBelowStopsTheRoot(t *testing.T) {
	t.Parallel()
	f := newFamily(t, scripted{"build": {task("general")}, "general": {task("explore")}, "explore": {callPart("act", `{"Name":"x"}`)}},
		map[domain.AgentID]string{"build": "allow * *\nask act *", "general": "allow * *", "explore": "allow * *"}, nil)
	f.choice = permission.Reject
	f.run("build")
	for _, s := range f.sessions() {
		f.wantEnd(s, domain.DeclinedByUser, "")
		if s.Interrupted == nil || s.Interrupted.Reason != domain.ByUser || len(s.Messages) != 2 {
			t.Errorf("the session of %s is interrupted by %v after %d messages, want the user after 2", s.Agent, s.Interrupted, len(s.Messages))
		}
	}
}

// A provider that fails in a subsession fails the task with the ID of the subsession, and
// the parent goes on.
func TestAFailedProviderBelowFailsTheTask(t *testing.T) {
	t.Parallel()
	f := newFamily(t, scripted{"build": {task("fails")}}, map[domain.AgentID]string{"build": "allow * *", "fails": "allow * *"}, nil)
	root := f.run("build")
	f.wantEnd(root, domain.Failed, errProvider.Error(), f.sessions()[1].Session.String())
	if last := root.Messages[len(root.Messages)-1]; last.Reply == nil || last.Reply.Text != "done by build" {
		t.Errorf("the last message is %+v, want the reply after the task", last)
	}
}

// An interruption of the root, three levels deep, ends the call of every level once and is
// on record in every session.
func TestAnInterruptionReachesEveryLevel(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	agents := map[domain.AgentID]string{"a": "allow * *", "b": "allow * *", "c": "allow * *", "d": "allow * *"}
	f := newFamily(t, scripted{"a": {task("b")}, "b": {task("c")}, "c": {task("d")}, "d": {callPart("waits", `{}`)}}, agents, func(c *engine.WorkspaceConfig) {
		tools := c.Tools
		c.Tools = func(w *engine.Workspace) (registry.Tools, error) {
			made, err := tools(w)
			if err != nil {
				return nil, err
			}
			made["waits"], err = domain.Make(domain.Spec[struct{}, string]{Description: "Waits.", Execute: func(ctx context.Context, _ struct{}, _ domain.Invocation) (string, error) {
				interrupt(domain.ByUser)
				<-ctx.Done()
				return "", context.Cause(ctx)
			}})
			return made, err
		}
	})
	if err := f.Run(ctx, f.open("a")); !errors.Is(err, domain.ByUser) {
		t.Errorf("Run = %v, want the interruption", err)
	}
	f.wantLaws()
	all := f.sessions()
	if len(all) != 4 {
		t.Fatalf("%d sessions, want 4", len(all))
	}
	for _, s := range all {
		if got := end(t, s); got.Outcome != domain.Interrupted || got.Interruption != domain.ByUser || s.Interrupted == nil || s.Interrupted.Reason != domain.ByUser {
			t.Errorf("the call of %s ended %v by %v, and the interruption on record is %v", s.Agent, got.Outcome, got.Interruption, s.Interrupted)
		}
	}
}

// The agents decide what runs: an unknown agent runs no session, a rule of an agent opens
// nothing that the configuration denies, and a switch to an unknown agent is refused.
func TestAnAgentOpensNothingThatTheConfigurationDenies(t *testing.T) {
	t.Parallel()
	f := newFamily(t, scripted{"build": {callPart("act", `{"Name":"x"}`)}}, map[domain.AgentID]string{"build": "allow * *"}, func(c *engine.WorkspaceConfig) {
		c.Rules = rules("allow * *\ndeny act x")
	})
	f.wantEnd(f.run("build"), domain.DeniedByRule, "Permission denied: act x")
	if err := f.Run(t.Context(), f.open("nobody")); err == nil || !strings.Contains(err.Error(), "there is no agent nobody") {
		t.Errorf("Run of an unknown agent = %v, want an error with its name", err)
	}
	var failure *domain.Failure
	if err := f.SwitchAgent(t.Context(), domain.Invocation{}, "nobody"); !errors.As(err, &failure) {
		t.Errorf("SwitchAgent = %v, want a failure for the model", err)
	}
	orphan, err := f.Runner.Open(t.Context(), events.SessionOpened{Agent: "build", Location: "/w", Ancestors: []domain.AgentID{"gone"}})
	if err == nil {
		err = f.Runner.Admit(t.Context(), orphan, f.ledger.Mint().Message(), "go")
	}
	if err == nil {
		err = f.Run(t.Context(), orphan)
	}
	if s := f.state(orphan); err != nil || len(s.Turn.Tools) != 0 || end(t, s).Outcome != domain.UnknownTool {
		t.Errorf("Run below an agent that is gone = %v with the tools %v, want none offered", err, s.Turn.Tools)
	}
	f.wantLaws()
}
