package projectionstest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// stepSession chooses a random action in a random session and adds its events.
func (g *generator) stepSession() {
	t, ok := pick(g, g.sessions)
	if !ok {
		return
	}
	switch k := g.log.Rand.IntN(13); {
	case k == 0:
		g.prompt(t)
	case k == 1:
		g.revokeApproval(t)
	case k == 2:
		g.afterEnd(t)
	case k == 3 && g.chance(3):
		g.settleAll(t)
		g.log.Add(t.stream, events.SessionInterrupted{Reason: domain.ByUser, Detail: "enough"})
	case k == 12:
		g.note(t)
	case k < 7:
		g.advance(t)
	default:
		g.settleAll(t)
		g.turn(t)
	}
}

// turn adds a turn that offers the effective tools, and a reply with up to three
// calls. A rule sometimes hides one of the tools.
func (g *generator) turn(t *sessionGen) {
	if !t.message.IsZero() {
		t.past = append(t.past, t.message)
	}
	t.turn, t.message, t.offer, t.calls = g.log.Mint.Turn(), g.log.Mint.Message(), g.effective(t), nil
	e := events.TurnMaterialized{Turn: t.turn, Message: t.message, Agent: t.agent, Model: "m-1", Tools: t.offer, System: t.text, Compacted: t.compact, RulesText: t.text}
	if len(t.offer) > 1 && g.chance(3) {
		rule := domain.Rule{Action: "*", Resource: "*", Effect: domain.Deny, Source: "rules:1"}
		e.Hidden = []events.HiddenTool{{Offered: t.offer[0], Rule: rule}}
		t.offer = t.offer[1:]
		e.Tools = t.offer
	}
	g.log.Add(t.stream, e)
	r := events.ReplyReceived{
		Turn: t.turn, Message: t.message, Text: "Let me see.", Model: "m-1", Finish: "stop",
		Tokens: events.Tokens{Input: int64(g.log.Rand.IntN(999)), Output: 7},
	}
	for i := range g.log.Rand.IntN(4) {
		r.Calls = append(r.Calls, g.addCall(t, i))
	}
	g.log.Add(t.stream, r)
	if len(r.Calls) > 0 && g.chance(9) {
		c := r.Calls[0]
		g.log.Add(t.stream, events.LoopDetected{Message: t.message, Call: c.ID, Tool: c.Name, Period: 1, Rounds: 3})
	}
}

// addCall adds a call to the last turn and returns the call. The call ID is "tool_"
// and the index i, and so repeats in other messages. The tool is sometimes unknown. Most
// inputs name a path.
func (g *generator) addCall(t *sessionGen, i int) domain.Call {
	n := g.log.Rand.IntN(3)
	c := domain.Call{ID: domain.CallID(fmt.Sprintf("tool_%d", i)), Name: "teleport", Input: json.RawMessage(fmt.Sprintf(`{"n":%d,"path":"src/%d.go"}`, n, n))}
	if g.chance(8) {
		c.Input = json.RawMessage(`{"text":"` + strings.Repeat("é<", 200) + `"}`)
	}
	a := &callGen{Call: c}
	if o, ok := pick(g, t.offer); ok && !g.chance(6) {
		a.Name, a.offered = string(o.Name), o
	}
	t.calls = append(t.calls, a)
	return a.Call
}

// addCalls adds one or two calls that the running call a makes.
func (g *generator) addCalls(t *sessionGen, a *callGen) {
	e := events.CallsAdded{Message: t.message, Parent: a.ID}
	for range 1 + g.log.Rand.IntN(2) {
		c := g.addCall(t, len(t.calls))
		c.ID = domain.CallID(fmt.Sprintf("%s/%d", a.ID, len(t.calls)))
		t.calls[len(t.calls)-1].ID = c.ID
		e.Calls = append(e.Calls, c)
	}
	g.log.Add(t.stream, e)
}

// compaction adds a compaction through a reply before the last one, which sometimes a
// request for a summary precedes or which follows a request that was too large. It also
// leaves out the result of a call of the last reply.
func (g *generator) compaction(t *sessionGen) {
	through, ok := pick(g, t.past)
	if !ok {
		return
	}
	if g.chance(2) {
		turn := g.log.Mint.Turn()
		g.log.Add(t.stream, events.TurnMaterialized{Turn: turn, Message: g.log.Mint.Message(), Agent: t.agent, Disabled: true, Summarizes: through, Compacted: t.compact})
		if g.chance(2) {
			g.log.Add(t.stream, events.ProviderFailed{Turn: turn, Failure: events.FailureContextExceeded})
		}
	} else {
		g.log.Add(t.stream, events.ProviderFailed{Turn: t.turn, Failure: events.FailureContextExceeded})
	}
	e := events.ContextCompacted{Trigger: events.CompactedExceeded, Through: through, Replies: 1, Summary: "so far"}
	if len(t.calls) > 0 {
		e.Shortened = []events.ShortenedResult{{Message: t.message, Call: t.calls[0].ID, Bytes: 7}}
	}
	t.compact = g.log.Add(t.stream, e).ID
}

// note adds an event of a session that concerns no call: a switch of the agent, a list of
// todos, a compaction or a text, which later turns name as their system prompt.
func (g *generator) note(t *sessionGen) {
	switch g.log.Rand.IntN(4) {
	case 2:
		g.compaction(t)
	case 0:
		from := t.agent
		t.agent = []domain.AgentID{agent, "plan"}[g.log.Rand.IntN(2)]
		g.log.Add(t.stream, events.AgentSwitched{Agent: t.agent, Previous: from})
	case 1:
		todos := []domain.Todo{{Content: "act", Status: "pending", Priority: "high"}}
		g.log.Add(t.stream, events.TodosReplaced{Todos: todos[:g.log.Rand.IntN(2)]})
	default:
		text := fmt.Sprintf("You are %s, %d.", t.agent, g.log.Rand.IntN(1000))
		sum := sha256.Sum256([]byte(text))
		t.text = hex.EncodeToString(sum[:])
		g.log.Add(t.stream, events.TextRecorded{Digest: t.text, Text: text})
	}
}

// advance adds the next event of a random open call of the last reply: a start, added
// calls, a request for permission, a question, a decision, an answer or a settlement.
func (g *generator) advance(t *sessionGen) {
	open := slices.DeleteFunc(slices.Clone(t.calls), func(a *callGen) bool { return !a.settled.IsZero() })
	a, ok := pick(g, open)
	switch {
	case !ok:
	case !a.waits.IsZero():
		g.decide(t, a)
	case a.begun && g.chance(3):
		g.request(t, a)
	case a.begun && len(t.calls) < 9 && g.chance(6):
		g.addCalls(t, a)
	case a.begun:
		g.settle(t, a, g.begunOutcome())
	case a.offered.IsZero():
		g.settle(t, a, domain.UnknownTool)
	case !slices.Contains(g.effective(t), a.offered):
		g.settle(t, a, domain.Stale)
	case g.chance(6):
		g.settle(t, a, []domain.Outcome{domain.InvalidInput, domain.Disabled, domain.Interrupted}[g.log.Rand.IntN(3)])
	default:
		a.begun = true
		g.log.Add(t.stream, events.CallStarted{
			Turn: t.turn, Message: t.message, Call: a.ID, Tool: a.Name, Offered: a.offered, Effective: a.offered, Process: g.process,
			Title: []string{"", "src/a.go", strings.Repeat("wörd ", 40)}[g.log.Rand.IntN(3)], AsksFirst: g.chance(2),
		})
	}
}

// settleAll advances the calls of the last reply until all are settled.
func (g *generator) settleAll(t *sessionGen) {
	for slices.ContainsFunc(t.calls, func(a *callGen) bool { return a.settled.IsZero() }) {
		g.advance(t)
	}
}

// begunOutcome returns a random outcome of a call that has begun. With probability
// 2/3 it returns success.
func (g *generator) begunOutcome() domain.Outcome {
	if !g.chance(3) {
		return domain.Succeeded
	}
	return []domain.Outcome{
		domain.Failed, domain.InvalidOutput, domain.DeniedByRule, domain.DeclinedByUser, domain.Interrupted,
		domain.Defective, domain.RetentionFailed, domain.MediaTooLarge, domain.Lost,
	}[g.log.Rand.IntN(9)]
}

// settle adds the settlement of a call with the outcome o and the fields that go with it.
func (g *generator) settle(t *sessionGen, a *callGen, o domain.Outcome) {
	a.settled = g.log.Mint.Event()
	s := domain.Settlement{Outcome: o, Began: a.begun, Offered: a.offered, Text: "It ended: " + o.String(), Detail: "detail"}
	switch o {
	case domain.Succeeded:
		g.succeed(t, a, &s)
	case domain.Interrupted:
		s.Interruption = domain.ByUser
	case domain.Failed:
		s.Progress = &domain.Progress{Structured: json.RawMessage(`{"done":1}`), Content: domain.Contents{domain.Text("half")}}
	case domain.DeniedByRule:
		s.Rule = domain.Rule{Action: "bash", Resource: "rm *", Effect: domain.Deny, Source: "rules:2"}
	}
	if a.begun {
		s.Effective, s.Ran = a.offered, time.Duration(g.log.Rand.IntN(5000))*time.Millisecond
	}
	e := events.Settled(t.turn, t.message, a.Call, s)
	if o == domain.Succeeded {
		e.Allowed = []domain.Rule{{Action: "*", Resource: "*", Effect: domain.Allow, Source: "rules:1"}, {Action: a.Name, Resource: "src/*", Effect: domain.Allow}}
	}
	g.log.AddAs(a.settled, t.stream, e)
}

// succeed sets the output of a successful settlement at random: a structured value; a
// structured value and a text; a structured value and a text that refers to a retained
// output; or a text and an image.
func (g *generator) succeed(t *sessionGen, a *callGen, s *domain.Settlement) {
	s.Text, s.Detail = "", ""
	s.Structured = json.RawMessage(`{"exit":0}`)
	if g.chance(2) {
		version := []string{"", "sha256:ab", "sha256:cd"}[g.log.Rand.IntN(3)]
		s.Files = []domain.FileAccess{{Path: fmt.Sprintf("/w/%d", g.log.Rand.IntN(3)), Access: domain.FileRead, Version: version}}
	}
	switch g.log.Rand.IntN(4) {
	case 0:
		s.Content = domain.Contents{domain.Text(strings.Repeat("wörd ", g.log.Rand.IntN(200)))}
	case 1:
		s.Structured = nil
		s.Content = domain.Contents{domain.Text("a picture"), domain.Media{MIME: "image/png", Name: "p.png", Data: []byte{1, 2, 3}}}
	case 2:
		r := domain.Retained{
			Ref: domain.NewRef(a.settled, domain.TextChannel), Bytes: 99999, Lines: 3000, MIME: "text/plain", SHA256: strings.Repeat("ab", 32),
		}
		s.Content, s.Retained = domain.Contents{domain.Text("… " + r.Ref.String())}, []domain.Retained{r}
		t.kept = append(t.kept, r)
	}
}

// request adds a request for permission, or a question, to the call a.
func (g *generator) request(t *sessionGen, a *callGen) {
	a.waits = g.log.Mint.Permission()
	if a.asks = g.chance(3); a.asks {
		questions := []domain.Question{{Question: "Which?", Options: []domain.QuestionOption{{Label: "this"}}}}
		g.log.Add(t.stream, events.QuestionAsked{Question: a.waits, Message: t.message, Call: a.ID, Agent: t.agent, Questions: questions})
		return
	}
	g.log.Add(t.stream, events.PermissionRequested{
		Permission: a.waits, Message: t.message, Call: a.ID, Agent: t.agent, Action: a.Name, Resources: []string{"src/*"}, Save: []string{"src/*"},
	})
}

// decide adds the answer to the pending question of the call a, or the decision about its
// pending request. After a decision that allows the request, it sometimes adds a saved
// approval.
func (g *generator) decide(t *sessionGen, a *callGen) {
	if a.asks {
		g.log.Add(t.stream, events.QuestionAnswered{Question: a.waits, Dismissed: g.chance(2), By: events.ByPerson, WaitedMS: int64(g.log.Rand.IntN(5000))})
		a.waits = domain.PermissionID{}
		return
	}
	scope, effect := "once", domain.Allow
	if g.chance(3) {
		scope, effect = "reject", domain.Deny
	}
	decided := events.PermissionDecided{
		Permission: a.waits, Effect: effect, By: events.ByPerson, Scope: scope, WaitedMS: int64(g.log.Rand.IntN(5000)),
	}
	if effect == domain.Allow && !t.approved.IsZero() {
		decided.By, decided.Scope, decided.Approvals = events.ByApproval, "", []events.UsedApproval{{Event: t.approved, Resource: "src/*"}}
	}
	g.log.Add(t.stream, decided)
	if effect == domain.Allow && g.chance(2) {
		e := events.ApprovalSaved{Permission: a.waits, Location: location, Action: a.Name, Resource: "src/*"}
		t.approved = g.log.Add(t.stream, e).ID
		t.saved = append(t.saved, e)
	}
	a.waits = domain.PermissionID{}
}

// revokeApproval revokes a random saved approval of a session, if it has one.
func (g *generator) revokeApproval(t *sessionGen) {
	if e, ok := pick(g, t.saved); ok {
		g.log.Add(t.stream, events.ApprovalRevoked{Location: e.Location, Action: e.Action, Resource: e.Resource})
	}
}

// afterEnd adds events that follow the end of a call: a late result, or the pruning of a
// retained output.
func (g *generator) afterEnd(t *sessionGen) {
	ended := slices.DeleteFunc(slices.Clone(t.calls), func(a *callGen) bool { return a.settled.IsZero() })
	if a, ok := pick(g, ended); ok && g.chance(2) {
		g.log.Add(t.stream, events.LateResultObserved{
			Message: t.message, Call: a.ID, Tool: a.Name, Settlement: a.settled, Outcome: domain.Succeeded, Text: "at last",
		})
	}
	if len(t.kept) > 0 && g.chance(2) {
		g.log.Add(t.stream, events.OutputPruned{Retained: t.kept[0], Policy: "7 days", Pruned: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)})
		t.kept = t.kept[1:]
	}
}

// importSession adds an imported session with an observed layer of tools known by
// name only, one reply in several events, settings, added context, a command, a
// provider failure and a parent session.
func (g *generator) importSession() {
	id := g.log.Mint.Session()
	stream, layer := events.SessionStream(id), g.log.Mint.Layer()
	g.log.Add(events.LayerStream(layer), events.LayerOpened{Layer: layer, Placement: domain.PerSession, Session: id, Observed: true})
	seen := g.log.Add(events.LayerStream(layer), events.ToolsRegistered{Scope: g.log.Mint.Scope(), Tools: []events.RegisteredTool{{Name: "Bash"}, {Name: "Read"}}})
	offered := func(name domain.Name) domain.Offered {
		return domain.Offered{Name: name, Registration: domain.RegistrationOf(seen.ID), Layer: layer}
	}
	g.log.Add(stream, events.SessionOpened{Session: id, Agent: "claude-code", Origin: events.Origin{Kind: events.Imported, Format: "claude-code", Source: "s-1"}})
	g.log.Add(stream, events.PromptAdmitted{Message: g.log.Mint.Message(), Text: "mend it"})
	turn, message := g.log.Mint.Turn(), g.log.Mint.Message()
	for i, name := range []domain.Name{"Bash", "Read"} {
		g.log.Add(stream, events.TurnMaterialized{Turn: turn, Message: message, Agent: "claude-code", Tools: []domain.Offered{offered(name)}, Observed: true})
		call := domain.Call{ID: domain.CallID(fmt.Sprintf("toolu_%d", i)), Name: string(name), Input: json.RawMessage(`{}`)}
		g.log.Add(stream, events.ReplyReceived{Turn: turn, Message: message, Text: "part", Calls: []domain.Call{call}})
		g.log.Add(stream, events.CallSettled{
			Turn: turn, Message: message, Call: call.ID, Tool: call.Name, Outcome: domain.Succeeded, Began: true,
			Content: domain.Contents{domain.Text("ok")}, Offered: offered(name),
		})
	}
	for _, e := range []events.Event{
		events.SettingChanged{Setting: events.SettingModel, Value: "m-2"},
		events.SettingChanged{Setting: events.SettingLocation, Value: "/w"},
		events.SettingChanged{Setting: events.SettingPermissionMode, Value: "plan"},
		events.ContextCompacted{Trigger: "auto"},
		events.ContextAdded{Source: events.ContextSummary, Text: "so far"},
		events.CommandRan{By: events.ByUser, Name: "/compact"},
		events.ProviderFailed{Detail: "busy", Status: 529},
		events.SessionSpawned{Parent: g.log.Mint.Session()},
	} {
		g.log.Add(stream, e)
	}
}
