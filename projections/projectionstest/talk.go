package projectionstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// talk carries one session forward by a step.
func (w *world) talk() {
	t, ok := pick(w, w.sessions)
	if !ok {
		return
	}
	switch k := w.log.Rand.IntN(12); {
	case k == 0:
		w.prompt(t)
	case k == 1:
		w.approval(t)
	case k == 2:
		w.after(t)
	case k == 3 && w.chance(3):
		w.rest(t)
		w.log.Add(t.stream, events.SessionInterrupted{Reason: domain.ByUser, Detail: "enough"})
	case k < 7:
		w.advance(t)
	default:
		w.rest(t)
		w.turn(t)
	}
}

// turn offers what is in effect and lets the model answer.
func (w *world) turn(t *talk) {
	t.turn, t.message, t.offer, t.calls = w.log.Mint.Turn(), w.log.Mint.Message(), w.effective(t), nil
	e := events.TurnMaterialized{Turn: t.turn, Message: t.message, Agent: agent, Model: "m-1", Tools: t.offer}
	if len(t.offer) > 1 && w.chance(3) {
		rule := domain.Rule{Action: "*", Resource: "*", Effect: domain.Deny, Source: "rules:1"}
		e.Hidden = []events.HiddenTool{{Offered: t.offer[0], Rule: rule}}
		t.offer = t.offer[1:]
		e.Tools = t.offer
	}
	w.log.Add(t.stream, e)
	r := events.ReplyReceived{
		Turn: t.turn, Message: t.message, Text: "Let me see.", Model: "m-1", Finish: "stop",
		Tokens: events.Tokens{Input: int64(w.log.Rand.IntN(999)), Output: 7},
	}
	for i := range w.log.Rand.IntN(4) {
		r.Calls = append(r.Calls, w.ask(t, i))
	}
	w.log.Add(t.stream, r)
	if len(r.Calls) > 0 && w.chance(9) {
		c := r.Calls[0]
		w.log.Add(t.stream, events.LoopDetected{Message: t.message, Call: c.ID, Tool: c.Name, Period: 1, Rounds: 3})
	}
}

// ask makes a call whose ID comes again in other messages.
func (w *world) ask(t *talk, i int) domain.Call {
	c := domain.Call{ID: domain.CallID(fmt.Sprintf("tool_%d", i)), Name: "teleport", Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, w.log.Rand.IntN(3)))}
	if w.chance(8) {
		c.Input = json.RawMessage(`{"text":"` + strings.Repeat("é<", 200) + `"}`)
	}
	a := &asked{Call: c}
	if o, ok := pick(w, t.offer); ok && !w.chance(6) {
		a.Name, a.offered = string(o.Name), o
	}
	t.calls = append(t.calls, a)
	return a.Call
}

// advance carries one call of the last reply forward by a step.
func (w *world) advance(t *talk) {
	open := slices.DeleteFunc(slices.Clone(t.calls), func(a *asked) bool { return !a.settled.IsZero() })
	a, ok := pick(w, open)
	switch {
	case !ok:
	case !a.waits.IsZero():
		w.decide(t, a)
	case a.begun && w.chance(3):
		w.request(t, a)
	case a.begun:
		w.settle(t, a, w.begunOutcome())
	case a.offered.IsZero():
		w.settle(t, a, domain.UnknownTool)
	case !slices.Contains(w.effective(t), a.offered):
		w.settle(t, a, domain.Stale)
	case w.chance(6):
		w.settle(t, a, []domain.Outcome{domain.InvalidInput, domain.Disabled, domain.Interrupted}[w.log.Rand.IntN(3)])
	default:
		a.begun = true
		w.log.Add(t.stream, events.CallStarted{
			Turn: t.turn, Message: t.message, Call: a.ID, Tool: a.Name, Offered: a.offered, Effective: a.offered, Process: w.process,
		})
	}
}

// rest brings every call of the last reply to its end.
func (w *world) rest(t *talk) {
	for slices.ContainsFunc(t.calls, func(a *asked) bool { return a.settled.IsZero() }) {
		w.advance(t)
	}
}

func (w *world) begunOutcome() domain.Outcome {
	if !w.chance(3) {
		return domain.Succeeded
	}
	return []domain.Outcome{
		domain.Failed, domain.InvalidOutput, domain.DeniedByRule, domain.DeclinedByUser, domain.Interrupted,
		domain.Defective, domain.RetentionFailed, domain.MediaTooLarge, domain.Lost,
	}[w.log.Rand.IntN(9)]
}

func (w *world) settle(t *talk, a *asked, o domain.Outcome) {
	a.settled = w.log.Mint.Event()
	s := domain.Settlement{Outcome: o, Began: a.begun, Offered: a.offered, Text: "It ended: " + o.String(), Detail: "detail"}
	switch o {
	case domain.Succeeded:
		w.succeed(t, a, &s)
	case domain.Interrupted:
		s.Interruption = domain.ByUser
	case domain.Failed:
		s.Progress = &domain.Progress{Structured: json.RawMessage(`{"done":1}`), Content: domain.Contents{domain.Text("half")}}
	case domain.DeniedByRule:
		s.Rule = domain.Rule{Action: "bash", Resource: "rm *", Effect: domain.Deny, Source: "rules:2"}
	}
	if a.begun {
		s.Effective = a.offered
	}
	w.log.AddAs(a.settled, t.stream, events.Settled(t.turn, t.message, a.Call, s))
	t.settled = append(t.settled, a.settled)
}

// succeed gives a settlement an output: a value, a text, media, or one that is
// kept whole elsewhere.
func (w *world) succeed(t *talk, a *asked, s *domain.Settlement) {
	s.Text, s.Detail = "", ""
	s.Structured = json.RawMessage(`{"exit":0}`)
	switch w.log.Rand.IntN(4) {
	case 0:
		s.Content = domain.Contents{domain.Text(strings.Repeat("wörd ", w.log.Rand.IntN(200)))}
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

func (w *world) request(t *talk, a *asked) {
	a.waits = w.log.Mint.Permission()
	w.log.Add(t.stream, events.PermissionRequested{
		Permission: a.waits, Message: t.message, Call: a.ID, Agent: agent, Action: a.Name, Resources: []string{"src/*"}, Save: []string{"src/*"},
	})
}

func (w *world) decide(t *talk, a *asked) {
	scope, effect := "once", domain.Allow
	if w.chance(3) {
		scope, effect = "reject", domain.Deny
	}
	w.log.Add(t.stream, events.PermissionDecided{
		Permission: a.waits, Effect: effect, By: events.ByPerson, Scope: scope, WaitedMS: int64(w.log.Rand.IntN(5000)),
	})
	if effect == domain.Allow && w.chance(2) {
		e := events.ApprovalSaved{Permission: a.waits, Location: location, Action: a.Name, Resource: "src/*"}
		w.log.Add(t.stream, e)
		t.saved = append(t.saved, e)
	}
	a.waits = domain.PermissionID{}
}

// approval takes a saved approval back.
func (w *world) approval(t *talk) {
	if e, ok := pick(w, t.saved); ok {
		w.log.Add(t.stream, events.ApprovalRevoked{Location: e.Location, Action: e.Action, Resource: e.Resource})
	}
}

// after lets something come after the end of a call: a late result, or the
// removal of its output.
func (w *world) after(t *talk) {
	ended := slices.DeleteFunc(slices.Clone(t.calls), func(a *asked) bool { return a.settled.IsZero() })
	if a, ok := pick(w, ended); ok && w.chance(2) {
		w.log.Add(t.stream, events.LateResultObserved{
			Message: t.message, Call: a.ID, Tool: a.Name, Settlement: a.settled, Outcome: domain.Succeeded, Text: "at last",
		})
	}
	if len(t.kept) > 0 && w.chance(2) {
		w.log.Add(t.stream, events.OutputPruned{Retained: t.kept[0], Policy: "7 days", Pruned: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)})
		t.kept = t.kept[1:]
	}
}

// importSession adds a session that another program ran: its tools observed by
// name alone, and one reply in several events.
func (w *world) importSession() {
	id := w.log.Mint.Session()
	stream, layer := events.SessionStream(id), w.log.Mint.Layer()
	w.log.Add(events.LayerStream(layer), events.LayerOpened{Layer: layer, Placement: domain.PerSession, Session: id, Observed: true})
	seen := w.log.Add(events.LayerStream(layer), events.ToolsRegistered{Scope: w.log.Mint.Scope(), Tools: []events.RegisteredTool{{Name: "Bash"}, {Name: "Read"}}})
	offered := func(name domain.Name) domain.Offered {
		return domain.Offered{Name: name, Registration: domain.RegistrationOf(seen.ID), Layer: layer}
	}
	w.log.Add(stream, events.SessionOpened{Session: id, Agent: "claude-code", Origin: events.Origin{Kind: events.Imported, Format: "claude-code", Source: "s-1"}})
	w.log.Add(stream, events.PromptAdmitted{Message: w.log.Mint.Message(), Text: "mend it"})
	turn, message := w.log.Mint.Turn(), w.log.Mint.Message()
	for i, name := range []domain.Name{"Bash", "Read"} {
		w.log.Add(stream, events.TurnMaterialized{Turn: turn, Message: message, Agent: "claude-code", Tools: []domain.Offered{offered(name)}, Observed: true})
		call := domain.Call{ID: domain.CallID(fmt.Sprintf("toolu_%d", i)), Name: string(name), Input: json.RawMessage(`{}`)}
		w.log.Add(stream, events.ReplyReceived{Turn: turn, Message: message, Text: "part", Calls: []domain.Call{call}})
		w.log.Add(stream, events.CallSettled{
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
		events.SessionSpawned{Parent: w.log.Mint.Session()},
	} {
		w.log.Add(stream, e)
	}
}
