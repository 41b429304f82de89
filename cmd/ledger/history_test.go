package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A history writes the events of a fixed past into a store. Its clock and its entropy
// are fixed, so each ID is the same in every run; its times lie in 2024, so tables
// print dates and not ages.
type history struct {
	ctx     context.Context
	ledger  *events.Ledger
	outputs *outputs.Store
	lengths map[events.Stream]events.Revision // of the streams written so far
	err     error                             // the first error; it makes later appends no-ops

	process          domain.ProcessID
	app, place       domain.LayerID // of the placements Application and Location
	session          domain.SessionID
	old, fresh       domain.Offered // first and second registration of the name read
	bash, edit, show domain.Offered // show is in the layer place, the others in app
}

// seed writes the history of one session into a new store: eight calls in two turns.
// Among them are an open call, a stale one, a denied one, one whose output is retained,
// and two with the same ID.
func seed(dir string) (err error) {
	ctx := context.Background()
	store, err := embedded.Open(ctx, dir, embedded.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	kept, err := outputs.Open(filepath.Join(dir, "outputs"), outputs.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	now := time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { now = now.Add(250 * time.Millisecond); return now }
	mint := domain.NewMint(clock, rand.NewChaCha8([32]byte{1}))
	h := &history{ctx: ctx, ledger: events.NewLedger(store, mint, clock), outputs: kept, lengths: map[events.Stream]events.Revision{}}
	h.begin()
	h.firstTurn()
	h.secondTurn()
	return h.err
}

// add appends an event to a stream and returns its ID.
func (h *history) add(s events.Stream, e events.Event) domain.EventID {
	return h.append(s, h.ledger.Draft(e, domain.EventID{}))
}

// append appends a draft to a stream and returns its ID. The first error is kept in
// err, and later appends are skipped.
func (h *history) append(s events.Stream, d events.Draft) domain.EventID {
	if h.err != nil {
		return domain.EventID{}
	}
	if _, err := h.ledger.Append(h.ctx, s, h.lengths[s], d); err != nil {
		h.err = fmt.Errorf("seed: %w", err)
	}
	h.lengths[s]++
	return d.ID
}

// say appends an event to the stream of the session.
func (h *history) say(e events.Event) domain.EventID {
	return h.add(events.SessionStream(h.session), e)
}

// register registers one tool in a layer, in a scope of its own, and returns the
// registration as a turn offers it.
func (h *history) register(layer domain.LayerID, name domain.Name, description string) domain.Offered {
	tool := events.RegisteredTool{
		Name: name, Description: description, Action: string(name),
		Input: json.RawMessage(`{"type":"object"}`), Output: json.RawMessage(`{"type":"string"}`),
	}
	fingerprint, err := domain.Definition{Name: name, Description: description, Input: tool.Input, Output: tool.Output}.Fingerprint(tool.Action)
	h.err = cmp.Or(h.err, err)
	tool.Fingerprint = fingerprint
	id := h.add(events.LayerStream(layer), events.ToolsRegistered{Scope: h.ledger.Mint().Scope(), Tools: []events.RegisteredTool{tool}})
	return domain.Offered{Name: name, Registration: domain.RegistrationOf(id), Layer: layer, Fingerprint: fingerprint}
}

// begin records a process, its two layers with four tools, and a session with a prompt
// that holds control characters.
func (h *history) begin() {
	mint := h.ledger.Mint()
	h.process, h.app, h.place, h.session = mint.Process(), mint.Layer(), mint.Layer(), mint.Session()
	h.add(events.ProcessStream(h.process), events.ProcessStarted{Process: h.process, Host: "host", PID: 7, Program: "ledger", Version: "v0"})
	h.add(events.LayerStream(h.app), events.LayerOpened{Layer: h.app, Placement: domain.Application, Process: h.process})
	h.add(events.LayerStream(h.place), events.LayerOpened{Layer: h.place, Placement: domain.Location, Location: "/w", Process: h.process})
	h.old = h.register(h.app, "read", "Read a file.")
	h.bash = h.register(h.app, "bash", "Run a command.")
	h.edit = h.register(h.app, "edit", "Edit a file.")
	h.show = h.register(h.place, "show", "Show 表 a picture.")
	h.say(events.SessionOpened{Session: h.session, Agent: "build", Location: "/w", Model: "m-1", Origin: events.Origin{Kind: events.RunHere}})
	h.say(events.PromptAdmitted{Message: mint.Message(), Text: "mend the failing\ntest \x1b[31mnow"})
}

// A turnAsked is a recorded turn, whose calls are then settled one by one.
type turnAsked struct {
	*history
	turn    domain.TurnID
	message domain.MessageID
}

// ask records a turn and the reply of its model. offered and hidden are the tools of
// the turn, asked the calls of the reply.
func (h *history) ask(text string, offered []domain.Offered, hidden []events.HiddenTool, asked ...domain.Call) turnAsked {
	t := turnAsked{h, h.ledger.Mint().Turn(), h.ledger.Mint().Message()}
	h.say(events.TurnMaterialized{Turn: t.turn, Message: t.message, Agent: "build", Model: "m-1", Tools: offered, Hidden: hidden})
	h.say(events.ReplyReceived{Turn: t.turn, Message: t.message, Text: text, Calls: asked, Model: "m-1", Finish: "tool_use"})
	return t
}

// call returns a call with a JSON input.
func call(id, name, input string) domain.Call {
	return domain.Call{ID: domain.CallID(id), Name: name, Input: json.RawMessage(input)}
}

// start records the start of a call of an offered tool.
func (t turnAsked) start(c domain.Call, o domain.Offered) {
	t.say(events.CallStarted{Turn: t.turn, Message: t.message, Call: c.ID, Tool: c.Name, Offered: o, Effective: o, Process: t.process})
}

// end records the settlement s of a call and returns its event ID. It fills in the ID,
// the offered tool, and the effective tool unless s states how that changed.
func (t turnAsked) end(c domain.Call, o domain.Offered, s domain.Settlement) domain.EventID {
	d := t.ledger.Draft(events.SessionClosed{}, domain.EventID{})
	s.ID, s.Offered = d.ID, o
	if s.Effective.IsZero() && s.ChangedBy.IsZero() {
		s.Effective = o
	}
	d.Event = events.Settled(t.turn, t.message, c, s)
	return t.append(events.SessionStream(t.session), d)
}

// words returns a successful settlement with a text as value and content.
func words(text string) domain.Settlement {
	value, _ := json.Marshal(text)
	return domain.Settlement{Outcome: domain.Succeeded, Began: true, Structured: value, Content: domain.Contents{domain.Text(text)}}
}

// firstTurn records five calls: a success, a retained output, a denial, an unknown tool
// and an invalid input. The tool show is hidden by a rule.
func (h *history) firstTurn() {
	readCall, long, write := call("call_1", "read", `{"path":"go.mod"}`), call("call_2", "bash", `{"command":"make"}`), call("call_3", "edit", `{"path":"a.go"}`)
	unknown, invalid := call("call_4", "grepp", `{}`), call("call_5", "read", `{"pth":"x"}`)
	hidden := []events.HiddenTool{{Offered: h.show, Rule: domain.Rule{Action: "show", Resource: "*", Effect: domain.Deny, Source: "strict.rules:3"}}}
	t := h.ask("I look around.", []domain.Offered{h.old, h.bash, h.edit}, hidden, readCall, long, write, unknown, invalid)
	t.start(readCall, h.old)
	t.end(readCall, h.old, words("module example\n"))
	t.start(long, h.bash)
	t.retain(long)
	t.start(write, h.edit)
	t.deny(write)
	t.end(unknown, domain.Offered{}, domain.Settlement{Outcome: domain.UnknownTool, Text: "Unknown tool: grepp"})
	t.end(invalid, h.old, domain.Settlement{Outcome: domain.InvalidInput, Text: "Invalid tool input: missing property 'path'"})
}

// retain settles a call whose output of 5,000 lines is retained in the output store.
func (t turnAsked) retain(c domain.Call) {
	var whole strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&whole, "line %d\n", i+1)
	}
	d := t.ledger.Draft(events.SessionClosed{}, domain.EventID{})
	r, err := t.outputs.Keep(t.ctx, domain.NewRef(d.ID, domain.TextChannel), "text/plain", strings.NewReader(whole.String()))
	t.err = cmp.Or(t.err, err)
	s := words("line 1\n... output truncated; full output at " + r.Ref.String() + " ...")
	s.ID, s.Offered, s.Effective, s.Retained, s.Structured = d.ID, t.bash, t.bash, []domain.Retained{r}, nil
	d.Event = events.Settled(t.turn, t.message, c, s)
	t.append(events.SessionStream(t.session), d)
	t.err = cmp.Or(t.err, t.outputs.Confirm(t.ctx, d.ID))
}

// deny records a permission request that a rule denies, and the settlement of its call.
func (t turnAsked) deny(c domain.Call) {
	rule := domain.Rule{Action: "edit", Resource: "*", Effect: domain.Deny, Source: "strict.rules:1"}
	permission := t.ledger.Mint().Permission()
	t.say(events.PermissionRequested{Permission: permission, Message: t.message, Call: c.ID, Agent: "build", Action: "edit", Resources: []string{"a.go"}})
	t.say(events.PermissionDecided{Permission: permission, Effect: domain.Deny, By: events.ByRule, Rule: rule, Scope: "reject", WaitedMS: 3})
	t.end(c, t.edit, domain.Settlement{Outcome: domain.DeniedByRule, Began: true, Text: "Permission denied: edit a.go", Rule: rule})
}

// secondTurn records three calls: a stale one, whose tool is registered again
// meanwhile; a failed one with a late result; and an open one, which has the ID of a
// call of the first turn. It ends with an interruption.
func (h *history) secondTurn() {
	stale, failed, again := call("call_6", "read", `{"path":"b.go"}`), call("call_7", "bash", `{}`), call("call_1", "bash", `{"command":"ls"}`)
	t := h.ask("", []domain.Offered{h.old, h.bash}, nil, stale, failed, again)
	h.fresh = h.register(h.app, "read", "Read a file, with care.")
	t.end(stale, h.old, domain.Settlement{
		Outcome: domain.Stale, Text: "Stale tool call: read", Effective: h.fresh, ChangedBy: domain.EventOf(h.fresh.Registration),
	})
	t.start(failed, h.bash)
	settled := t.end(failed, h.bash, domain.Settlement{
		Outcome: domain.Failed, Began: true, Text: "no such command",
		Progress: &domain.Progress{Content: domain.Contents{domain.Text("half way")}},
	})
	h.say(events.LateResultObserved{Message: t.message, Call: failed.ID, Tool: failed.Name, Settlement: settled, Outcome: domain.Succeeded, Text: "done at last"})
	t.start(again, h.bash)
	h.say(events.SessionInterrupted{Reason: domain.ByUser, Detail: "Ctrl-C"})
}
