package runner_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// profiles returns a Config.Profile of agents by name. Any other agent is unknown.
func profiles(of map[domain.AgentID]runner.Profile) func(context.Context, *conversation.State) (runner.Profile, error) {
	return func(_ context.Context, s *conversation.State) (runner.Profile, error) {
		p, ok := of[s.Agent]
		if !ok {
			return p, errUnknownAgent
		}
		return p, nil
	}
}

var errUnknownAgent = errors.New("there is no such agent")

// turns returns the turns of a session and its texts by digest, in the order of the log.
// It fails the test if a turn names a text that is not on record before it, or if a text
// is on record twice or under another digest.
func (p *program) turns(session domain.SessionID) ([]events.TurnMaterialized, map[string]string) {
	p.t.Helper()
	var turns []events.TurnMaterialized
	texts := map[string]string{}
	for v, err := range p.ledger.Read(p.t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		switch e := v.Event.(type) {
		case events.TextRecorded:
			sum := sha256.Sum256([]byte(e.Text))
			if _, again := texts[e.Digest]; again || e.Digest != hex.EncodeToString(sum[:]) {
				p.t.Errorf("text %q is on record again, or under another digest: %s", e.Text, e.Digest)
			}
			texts[e.Digest] = e.Text
		case events.TurnMaterialized:
			named := []string{e.System, e.RulesText}
			for _, d := range e.Described {
				named = append(named, d.Text)
			}
			for _, digest := range named {
				if _, ok := texts[digest]; !ok && digest != "" {
					p.t.Errorf("turn %s names the text %s, which is not on record before it", e.Turn, digest)
				}
			}
			turns = append(turns, e)
		}
	}
	return turns, texts
}

// switching returns a tool that switches the agent of its session to the one that its
// input names.
func switching(p **program) domain.Tool {
	return must(domain.Spec[text, string]{Execute: func(ctx context.Context, in text, inv domain.Invocation) (string, error) {
		e := events.AgentSwitched{Agent: domain.AgentID(in.Text), Previous: inv.Agent, Message: inv.Message, Call: inv.Call}
		return "", (*p).runner.Note(ctx, inv, e)
	}})
}

// The system prompt and the descriptions of a turn are on record once in each session,
// also over several turns, prompts and processes, and every turn names its own.
func TestATextIsOnRecordOnceInItsSession(t *testing.T) {
	t.Parallel()
	describes := must(domain.Spec[text, string]{
		Execute:      func(_ context.Context, in text, _ domain.Invocation) (string, error) { return in.Text, nil },
		DescribeTurn: func(f domain.TurnFacts) string { return "Echoes for " + string(f.Agent) + "." },
	})
	same := must(domain.Spec[text, string]{
		Execute:      func(_ context.Context, in text, _ domain.Invocation) (string, error) { return in.Text, nil },
		DescribeTurn: func(f domain.TurnFacts) string { return "Echoes for " + string(f.Agent) + "." },
	})
	var p *program
	tools := registry.Tools{"echo": describes, "same": same, "switch": switching(&p)}
	config := runner.Config{Profile: profiles(map[domain.AgentID]runner.Profile{
		"build": {System: "Build \xff.", Rules: domain.RuleSets{{{Action: "*", Resource: "*", Effect: domain.Allow, Source: "build:1"}}}}, "plan": {System: "Plan."},
	})}
	store := eventstest.NewSlice()
	var session domain.SessionID
	for process := range 2 {
		model := plays([]runner.Part{ask("a", "echo", `{"text":"t"}`)}, []runner.Part{ask("b", "switch", `{"text":"plan"}`)}, []runner.Part{ask("c", "switch", `{"text":"build"}`)})
		config.Provider = model
		var err error
		if p, err = boot(t, store, noOutputs{}, tools, config); err != nil {
			t.Fatal(err)
		}
		if process == 0 {
			session = p.open("go")
		} else {
			p.admit(session, "go on")
		}
		p.run(session)
		for i, turn := range model.turns {
			if want := "Echoes for " + string(turn.Agent) + "."; turn.Tools[0].Description != want || turn.Tools[1].Description != want {
				t.Errorf("turn %d of %s has the descriptions %q and %q, want %q", i, turn.Agent, turn.Tools[0].Description, turn.Tools[1].Description, want)
			}
		}
	}
	turns, texts := p.turns(session)
	var systems []string
	for _, turn := range turns {
		systems = append(systems, texts[turn.System])
		if (texts[turn.RulesText] != "") != (turn.Agent == "build") {
			t.Errorf("turn of %s has the rules %q", turn.Agent, texts[turn.RulesText])
		}
		if len(turn.Described) != 2 || texts[turn.Described[0].Text] != "Echoes for "+string(turn.Agent)+"." {
			t.Errorf("turn of %s describes %v", turn.Agent, turn.Described)
		}
	}
	build, plan := "Build \uFFFD.", "Plan."
	if want := []string{build, build, plan, build, build, build, plan, build}; !slices.Equal(systems, want) || len(texts) != 5 {
		t.Errorf("the system prompts are %q among %d texts, want %q among 5", systems, len(texts), want)
	}
}

// A namer is a player that names a provider and a model.
type namer struct {
	*player
	model string
}

func (n namer) NextModel(*conversation.State, string) (provider, model string) {
	return "acme", n.model
}

// The model of a turn is that of the agent, or else that of the provider, or else that of
// the session. The turn records it with the provider, the client and the flags.
func TestTheModelOfATurnIsThatOfTheAgentFirst(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ agent, provider, session, want string }{
		{"m-agent", "m-provider", "m-session", "m-agent"}, {"", "m-provider", "m-session", "m-provider"},
		{"", "", "m-session", "m-session"}, {"m-agent", "", "", "m-agent"}, {"", "", "", ""},
	} {
		model := plays()
		p := start(t, registry.Tools{}, runner.Config{
			Provider: namer{model, row.provider}, Client: "cli", Flags: []string{"x", "y"},
			Profile: profiles(map[domain.AgentID]runner.Profile{"build": {Model: row.agent, Rules: domain.RuleSets{{}, {}}}}),
		})
		session, err := p.runner.Open(t.Context(), events.SessionOpened{Agent: "build", Model: row.session})
		if err != nil {
			t.Fatal(err)
		}
		p.admit(session, "go")
		p.run(session)
		turns, _ := p.turns(session)
		e := turns[0]
		if model.turns[0].Model != row.want || e.Model != row.want {
			t.Errorf("the model of %+v is %q and %q on record, want %q", row, model.turns[0].Model, e.Model, row.want)
		}
		if e.Provider != "acme" || e.Client != "cli" || !slices.Equal(e.Flags, []string{"x", "y"}) || e.Rules != (domain.RuleSets{{}, {}}).Digest() || e.Agent != "build" {
			t.Errorf("the turn is %+v, want the provider, client, flags, rules and agent of the run", e)
		}
	}
}

// The facts of the turn hide a tool whose conditions it does not meet, and the turn
// records why.
func TestATurnRecordsTheConditionsThatHideATool(t *testing.T) {
	t.Parallel()
	offered := func(where domain.AvailableWhere) domain.Tool {
		return must(domain.Spec[text, string]{
			Execute:   func(_ context.Context, in text, _ domain.Invocation) (string, error) { return in.Text, nil },
			Available: domain.Availability{where},
		})
	}
	model := plays([]runner.Part{ask("c", "flagged", `{"text":"t"}`)})
	p := start(t, registry.Tools{
		"flagged": offered(domain.AvailableWhere{Flags: []string{"!x"}}), "needy": offered(domain.AvailableWhere{Needs: []string{"program:a|b"}}),
		"for_cli": offered(domain.AvailableWhere{Clients: []string{"cli"}, Flags: []string{"x"}, Needs: []string{"env:A"}}), "unlisted": echo(&counter{}),
	}, runner.Config{
		Provider: model, Client: "cli", Flags: []string{"x"}, Has: func(need string) bool { return need == "env:A" },
		Profile: profiles(map[domain.AgentID]runner.Profile{"build": {Tools: []string{"*", "!unlisted"}}}),
	})
	session := p.open("go")
	p.run(session)
	turns, _ := p.turns(session)
	hidden := map[domain.Name]string{}
	for _, h := range turns[0].Hidden {
		hidden[h.Name] = h.Unmet[0].String()
	}
	want := map[domain.Name]string{
		"flagged": "the flag x is set", "needy": "this machine lacks program:a|b", "unlisted": "agent build is not among agents that list unlisted",
	}
	if len(turns[0].Tools) != 1 || turns[0].Tools[0].Name != "for_cli" || fmt.Sprint(hidden) != fmt.Sprint(want) {
		t.Errorf("the turn offers %v and hides %v, want for_cli, and %v", turns[0].Tools, hidden, want)
	}
	if end := p.ends(session)[0]; end.Outcome != domain.UnknownTool {
		t.Errorf("the call of a hidden tool ended %v, want %v", end.Outcome, domain.UnknownTool)
	}
}

// The smaller of two limits bounds the replies to one prompt: the limit of the agent and
// the limit of the runner. A limit of zero bounds nothing.
func TestTheStepsAreTheFewerOfAgentAndRunner(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ agent, runner, want int }{{2, 0, 2}, {0, 3, 3}, {2, 4, 2}, {4, 2, 2}, {0, 0, 6}} {
		var replies [][]runner.Part
		for i := range 5 {
			replies = append(replies, []runner.Part{ask("c", "echo", fmt.Sprintf(`{"text":"%d"}`, i))})
		}
		p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{
			Provider: plays(replies...), Steps: row.runner, Profile: profiles(map[domain.AgentID]runner.Profile{"build": {Steps: row.agent}}),
		})
		session := p.open("go")
		p.run(session)
		turns, _ := p.turns(session)
		if len(turns) != row.want || turns[len(turns)-1].Disabled != (row.want < 6) {
			t.Errorf("agent %d and runner %d: %d turns, want %d, the last without tools if they are limited", row.agent, row.runner, len(turns), row.want)
		}
	}
}

// After a switch of the agent, the next turn has the profile of the new agent, its maximum
// number of steps too, and the calls of the earlier reply are those of the old agent.
func TestASwitchOfTheAgentTakesEffectInTheNextTurn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		plan, build, want int
	}{{2, 0, 4}, {0, 2, 2}, {2, 3, 3}} {
		var p *program
		var agents []domain.AgentID
		tools := registry.Tools{"switch": switching(&p), "echo": must(domain.Spec[text, string]{
			Execute: func(_ context.Context, in text, inv domain.Invocation) (string, error) {
				agents = append(agents, inv.Agent)
				return in.Text, nil
			},
		})}
		model := plays(
			[]runner.Part{ask("a", "switch", `{"text":"plan"}`), ask("b", "echo", `{"text":"1"}`)},
			[]runner.Part{ask("c", "echo", `{"text":"2"}`)}, []runner.Part{ask("d", "echo", `{"text":"3"}`)},
		)
		p = start(t, tools, runner.Config{Parallel: 1, Provider: model, Profile: profiles(map[domain.AgentID]runner.Profile{
			"build": {Steps: row.plan, System: "Build.", Model: "m-1"}, "plan": {Steps: row.build, System: "Plan.", Model: "m-2"},
		})})
		session := p.open("go")
		p.run(session)
		turns, texts := p.turns(session)
		if len(turns) != row.want {
			t.Fatalf("%+v: %d turns, want %d", row, len(turns), row.want)
		}
		for i, turn := range turns {
			agent, system, name := domain.AgentID("plan"), "Plan.", "m-2"
			if i == 0 {
				agent, system, name = "build", "Build.", "m-1"
			}
			if turn.Agent != agent || texts[turn.System] != system || turn.Model != name || model.turns[i].System != system || turn.Disabled != (row.build == i+1) {
				t.Errorf("%+v: turn %d is %+v, want one of %s with its profile", row, i, turn, agent)
			}
		}
		if agents[0] != "build" || slices.Contains(agents[1:], "build") {
			t.Errorf("%+v: the calls are of %v, want the first of build and the others of plan", row, agents)
		}
	}
}

// A run of an unknown agent ends before anything is recorded. If the switch of a run names
// one, the run ends before the next turn.
func TestAnUnknownAgentTakesNoTurn(t *testing.T) {
	t.Parallel()
	var p *program
	p = start(t, registry.Tools{"switch": switching(&p)}, runner.Config{
		Provider: plays([]runner.Part{ask("a", "switch", `{"text":"other"}`)}), Profile: profiles(map[domain.AgentID]runner.Profile{"build": {}}),
	})
	session, err := p.runner.Open(t.Context(), events.SessionOpened{Agent: "none"})
	if err != nil {
		t.Fatal(err)
	}
	p.admit(session, "go")
	if err := p.runner.Run(t.Context(), session); !errors.Is(err, errUnknownAgent) || !strings.Contains(err.Error(), "agent none") {
		t.Errorf("Run = %v, want the error of the profile with the name of the agent", err)
	}
	if got, want := p.kinds(session), "SessionOpened PromptAdmitted"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
	session = p.open("go")
	if err := p.runner.Run(t.Context(), session); !errors.Is(err, errUnknownAgent) {
		t.Errorf("Run = %v, want the error of the profile", err)
	}
	if turns, _ := p.turns(session); len(turns) != 1 {
		t.Errorf("%d turns, want the one before the switch", len(turns))
	}
	p.wantLaws()
}

// Config.Refresh runs before each offer and before the calls of each reply are settled. A
// tool that it replaces after the offer is stale, and the next turn offers the new one.
func TestToolsAreRefreshedBeforeTheOfferAndBeforeTheCalls(t *testing.T) {
	t.Parallel()
	var p *program
	var old, fresh counter
	var scope *registry.Scope
	refreshes := 0
	replace := func(ctx context.Context) error {
		refreshes++
		if refreshes != 2 { // the first is for the offer, the second for its calls
			return nil
		}
		if err := scope.Close(ctx); err != nil {
			return err
		}
		return p.place.Scope().Register(ctx, registry.Tools{"echo": echo(&fresh)})
	}
	model := plays([]runner.Part{ask("a", "echo", `{"text":"1"}`)}, []runner.Part{ask("b", "echo", `{"text":"2"}`)})
	p = start(t, registry.Tools{}, runner.Config{Provider: model, Refresh: replace})
	scope = p.place.Scope()
	if err := scope.Register(t.Context(), registry.Tools{"echo": echo(&old)}); err != nil {
		t.Fatal(err)
	}
	session := p.open("go")
	p.run(session)
	ends := p.ends(session)
	if ends[0].Outcome != domain.Stale || ends[1].Outcome != domain.Succeeded || old.total() != 0 || fresh.total() != 1 {
		t.Errorf("the calls ended %v and %v after %d runs of the old tool and %d of the new one", ends[0].Outcome, ends[1].Outcome, old.total(), fresh.total())
	}
	if refreshes != 5 { // three offers, two replies with calls
		t.Errorf("Refresh ran %d times, want 5", refreshes)
	}
}

// An error of Config.Refresh ends the run, and its calls have their ends.
func TestAnErrorOfRefreshEndsTheRun(t *testing.T) {
	t.Parallel()
	broke := errors.New("the folder of tools is gone")
	for _, at := range []int{1, 2} {
		refreshes := 0
		p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{
			Provider: plays([]runner.Part{ask("a", "echo", `{"text":"1"}`)}),
			Refresh: func(context.Context) error {
				if refreshes++; refreshes == at {
					return broke
				}
				return nil
			},
		})
		session := p.open("go")
		if err := p.runner.Run(t.Context(), session); !errors.Is(err, broke) {
			t.Errorf("Run = %v, want the error of Refresh", err)
		}
		if turns, _ := p.turns(session); len(turns) != at-1 {
			t.Errorf("%d turns, want %d", len(turns), at-1)
		}
		p.wantLaws()
	}
}
