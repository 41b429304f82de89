package calls_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// The projection keeps every law of projectionstest over random histories.
func TestCallsKeepTheLawsOfAProjection(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(2, 4)) {
		t.Logf("seed %d", seed)
		projectionstest.Test(t, calls.Projection(), projectionstest.History(seed, 200))
	}
}

// fold returns the state of a sequence of envelopes.
func fold(envelopes []events.Envelope) *calls.State {
	p := calls.Projection()
	s := p.Init()
	for _, v := range envelopes {
		s = p.Apply(s, v)
	}
	return s
}

// A history that keeps the laws has no exception.
func TestAValidHistoryHasNoException(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(8, 25)) {
		for _, e := range fold(projectionstest.History(seed, 250)).Exceptions() {
			t.Errorf("seed %d: %+v", seed, e)
		}
	}
}

// A log that is cut while its process is at work breaks no law, and every open call
// of a session is unfinished.
func TestAPrefixOfAValidHistoryHasOnlyUnfinishedCalls(t *testing.T) {
	t.Parallel()
	open := 0
	for seed := range uint64(repeats(4, 10)) {
		history := projectionstest.History(seed, 200)
		for cut := 0; cut < len(history); cut += 7 {
			s := fold(history[:cut])
			unsettled := 0
			for _, session := range s.Sessions() {
				unsettled += session.Open
			}
			for _, e := range s.Exceptions() {
				t.Errorf("seed %d, %d events: %+v", seed, cut, e)
			}
			for _, e := range s.Unfinished() {
				if e.Law == calls.Open {
					open++
					unsettled--
				}
			}
			if unsettled != 0 {
				t.Errorf("seed %d, %d events: the sessions have %d open calls more than are listed", seed, cut, unsettled)
			}
		}
	}
	if open == 0 {
		t.Error("no beginning of any history has an open call")
	}
}

// counts are the numbers that a scan of a history gives for one session.
type counts struct{ prompts, replies, calls, settled, failed int }

// The State counts the prompts, replies and calls of each session as a scan of the
// history does.
func TestSessionsAreCountedAsTheHistoryHasThem(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(6, 20)) {
		history := projectionstest.History(seed, 250)
		want := map[domain.SessionID]*counts{}
		replies := map[domain.MessageID]bool{}
		for _, v := range history {
			id, ok := v.Stream.Session()
			if !ok {
				continue
			}
			if want[id] == nil {
				want[id] = &counts{}
			}
			switch e := v.Event.(type) {
			case events.PromptAdmitted:
				want[id].prompts++
			case events.ReplyReceived:
				if !replies[e.Message] {
					want[id].replies++
				}
				replies[e.Message] = true
				want[id].calls += len(e.Calls)
			case events.CallsAdded:
				want[id].calls += len(e.Calls)
			case events.CallSettled:
				want[id].settled++
				if e.Outcome != domain.Succeeded {
					want[id].failed++
				}
			}
		}
		s := fold(history)
		listed := map[domain.SessionID]int{}
		for _, c := range s.Calls() {
			listed[c.Session]++
		}
		for _, session := range s.Sessions() {
			got := counts{session.Prompts, session.Replies, session.Calls, session.Calls - session.Open, session.Failed}
			if got != *want[session.ID] || listed[session.ID] != session.Calls {
				t.Errorf("seed %d: %s has %+v and %d calls listed, want %+v", seed, session.ID, got, listed[session.ID], *want[session.ID])
			}
		}
	}
}

// A state that was decoded from a checkpoint returns the same values as before, at
// any length of the history.
func TestADecodedStateAnswersTheSame(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(3, 6)) {
		history := projectionstest.History(seed, 250)
		for cut := 0; cut <= len(history); cut += 40 {
			s := fold(history[:cut])
			data, err := projections.Pack(s)
			if err != nil {
				t.Fatal(err)
			}
			again := calls.New()
			if err := again.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			ask := func(s *calls.State) string {
				answer, err := projections.Encode([]any{s.Calls(), s.Orphans(), s.Sessions(), s.Retained(), s.Exceptions()})
				if err != nil {
					t.Fatal(err)
				}
				return string(answer)
			}
			if ask(s) != ask(again) {
				t.Errorf("seed %d, %d events: a decoded state answers otherwise", seed, cut)
			}
		}
	}
}

// A desk builds one session event by event. It begins with a layer with the tools
// read and write, a prompt, and a turn that offers both.
type desk struct {
	log     *projectionstest.Log
	session domain.SessionID
	layer   domain.LayerID
	offers  []domain.Offered
	// turn is the last turn, and message the message of its reply.
	turn     domain.TurnID
	message  domain.MessageID
	imported bool
}

// newDesk returns a desk of a session that ran here.
func newDesk() *desk {
	d := &desk{log: projectionstest.NewLog(1)}
	d.begin(events.Origin{Kind: events.RunHere})
	return d
}

// newImport returns a desk of an imported session, whose tools are observed and have
// no fingerprints.
func newImport() *desk {
	d := &desk{log: projectionstest.NewLog(1), imported: true}
	d.begin(events.Origin{Kind: events.Imported, Format: "claude-code"})
	return d
}

// begin opens a further session with its own layer and makes it the desk's.
func (d *desk) begin(origin events.Origin) {
	d.session, d.layer = d.log.Mint.Session(), d.log.Mint.Layer()
	d.log.Add(events.LayerStream(d.layer), events.LayerOpened{Layer: d.layer, Placement: domain.PerSession, Session: d.session, Observed: d.imported})
	tools := []events.RegisteredTool{projectionstest.Tool("read", "reads"), projectionstest.Tool("write", "writes")}
	if d.imported {
		tools = []events.RegisteredTool{{Name: "read"}, {Name: "write"}}
	}
	r := d.log.Add(events.LayerStream(d.layer), events.ToolsRegistered{Scope: d.log.Mint.Scope(), Tools: tools})
	for _, tool := range tools {
		d.offers = append(d.offers, domain.Offered{Name: tool.Name, Registration: domain.RegistrationOf(r.ID), Layer: d.layer, Fingerprint: tool.Fingerprint})
	}
	d.add(events.SessionOpened{Session: d.session, Agent: "build", Location: "/w", Model: "m-1", Origin: origin})
	d.add(events.PromptAdmitted{Message: d.log.Mint.Message(), Text: "go"})
	d.materialize()
}

// add appends an event to the session's stream.
func (d *desk) add(e events.Event) events.Envelope {
	return d.log.Add(events.SessionStream(d.session), e)
}

// materialize begins a turn with the desk's offers.
func (d *desk) materialize() {
	d.turn, d.message = d.log.Mint.Turn(), d.log.Mint.Message()
	d.add(events.TurnMaterialized{Turn: d.turn, Message: d.message, Tools: d.offers, Observed: d.imported})
}

// ask appends a reply with calls of the tool read.
func (d *desk) ask(ids ...domain.CallID) {
	r := events.ReplyReceived{Turn: d.turn, Message: d.message}
	for _, id := range ids {
		r.Calls = append(r.Calls, domain.Call{ID: id, Name: "read", Input: json.RawMessage(`{"path":"a"}`)})
	}
	d.add(r)
}

// started returns the start of a call under the registration that the turn offers.
func (d *desk) started(id domain.CallID) events.CallStarted {
	return events.CallStarted{Turn: d.turn, Message: d.message, Call: id, Tool: "read", Offered: d.offers[0], Effective: d.offers[0]}
}

// settled returns the successful settlement of a call under the registration that the
// turn offers.
func (d *desk) settled(id domain.CallID) events.CallSettled {
	return events.CallSettled{
		Turn: d.turn, Message: d.message, Call: id, Tool: "read", Outcome: domain.Succeeded, Began: true,
		Content: domain.Contents{domain.Text("ok")}, Offered: d.offers[0], Effective: d.offers[0], Agrees: true,
	}
}

// added returns calls of the tool read that the call parent makes.
func (d *desk) added(parent domain.CallID, ids ...domain.CallID) events.CallsAdded {
	e := events.CallsAdded{Message: d.message, Parent: parent}
	for _, id := range ids {
		e.Calls = append(e.Calls, domain.Call{ID: id, Name: "read", Input: json.RawMessage(`{"path":"a"}`)})
	}
	return e
}

// run appends the start and the successful settlement of a call.
func (d *desk) run(id domain.CallID) {
	d.add(d.started(id))
	d.add(d.settled(id))
}

// key returns the key of a call in the last reply.
func (d *desk) key(id domain.CallID) calls.Key {
	return calls.Key{Session: d.session, Message: d.message, Call: id}
}

// state returns the state of the events so far.
func (d *desk) state() *calls.State { return fold(d.log.Envelopes()) }

// A breach is a history that breaks one law at one event.
type breach struct {
	name string
	law  calls.Law
	// make appends the history and returns the event that breaks the law.
	make func(*desk) events.Envelope
}

// breaches returns a breach for every law, and for several ways to break one.
func breaches() []breach {
	return []breach{
		{"settled twice", calls.EndedTwice, func(d *desk) events.Envelope {
			d.ask("a")
			d.run("a")
			return d.add(d.settled("a"))
		}},
		{"started twice", calls.StartedTwice, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			again := d.add(d.started("a"))
			d.add(d.settled("a"))
			return again
		}},
		{"started after its end", calls.StartedAfterEnd, func(d *desk) events.Envelope {
			d.ask("a")
			d.run("a")
			return d.add(d.started("a"))
		}},
		{"asked again with another input", calls.AskedAsAnother, func(d *desk) events.Envelope {
			d.ask("a")
			call := domain.Call{ID: "a", Name: "read", Input: json.RawMessage(`{"path":"b"}`)}
			again := d.add(events.ReplyReceived{Turn: d.turn, Message: d.message, Calls: []domain.Call{call}})
			d.run("a")
			return again
		}},
		{"settled and never asked", calls.NeverAsked, func(d *desk) events.Envelope {
			return d.add(d.settled("ghost"))
		}},
		{"started and never asked", calls.NeverAsked, func(d *desk) events.Envelope {
			return d.add(d.started("ghost"))
		}},
		{"late and never asked", calls.NeverAsked, func(d *desk) events.Envelope {
			return d.add(events.LateResultObserved{Message: d.message, Call: "ghost", Tool: "read"})
		}},
		{"asked without an end", calls.Open, func(d *desk) events.Envelope {
			d.ask("a")
			return d.log.Envelopes()[len(d.log.Envelopes())-1]
		}},
		{"begun without an end", calls.Open, func(d *desk) events.Envelope {
			d.ask("a")
			return d.add(d.started("a"))
		}},
		{"began and denied it", calls.StartDenied, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			e := d.settled("a")
			e.Outcome, e.Began = domain.Interrupted, false
			return d.add(e)
		}},
		{"began and ended as if it had not", calls.StartDenied, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			e := d.settled("a")
			e.Outcome = domain.Stale
			return d.add(e)
		}},
		{"ran without a start", calls.StartMissing, func(d *desk) events.Envelope {
			d.ask("a")
			return d.add(d.settled("a"))
		}},
		{"lost without a start", calls.StartMissing, func(d *desk) events.Envelope {
			d.ask("a")
			e := d.settled("a")
			e.Outcome, e.Began = domain.Lost, false
			return d.add(e)
		}},
		{"ran under another registration", calls.NotOffered, func(d *desk) events.Envelope {
			d.ask("a")
			e := d.started("a")
			other := d.log.Add(events.LayerStream(d.layer), events.ToolsRegistered{Tools: []events.RegisteredTool{projectionstest.Tool("read", "other")}})
			e.Effective = domain.Offered{Name: "read", Registration: domain.RegistrationOf(other.ID), Layer: d.layer}
			start := d.add(e)
			d.add(d.settled("a"))
			return start
		}},
		{"settled under what its turn did not offer", calls.NotOffered, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			e := d.settled("a")
			e.Offered.Registration = domain.RegistrationOf(d.log.Mint.Event())
			return d.add(e)
		}},
		{"settled for a turn that is not there", calls.NoMaterialization, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			e := d.settled("a")
			e.Turn = d.log.Mint.Turn()
			return d.add(e)
		}},
		{"settled for another turn", calls.NoMaterialization, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			e := d.settled("a")
			d.materialize()
			e.Turn = d.turn
			return d.add(e)
		}},
		{"offers what was never registered", calls.NoRegistration, func(d *desk) events.Envelope {
			ghost := domain.Offered{Name: "read", Registration: domain.RegistrationOf(d.log.Mint.Event()), Layer: d.layer}
			return d.add(events.TurnMaterialized{Turn: d.log.Mint.Turn(), Tools: []domain.Offered{ghost}})
		}},
		{"offers a name that its registration lacks", calls.NoRegistration, func(d *desk) events.Envelope {
			o := d.offers[0]
			o.Name = "grep"
			return d.add(events.TurnMaterialized{Turn: d.log.Mint.Turn(), Tools: []domain.Offered{o}})
		}},
		{"in effect and never registered", calls.NoRegistration, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			e := d.settled("a")
			e.Effective.Registration = domain.RegistrationOf(d.log.Mint.Event())
			return d.add(e)
		}},
		{"offers what was closed", calls.NotLive, func(d *desk) events.Envelope {
			d.log.Add(events.LayerStream(d.layer), events.RegistrationClosed{Registration: d.offers[0].Registration})
			d.add(events.PromptAdmitted{Message: d.log.Mint.Message(), Text: "go on"})
			return d.add(events.TurnMaterialized{Turn: d.log.Mint.Turn(), Tools: d.offers[:1]})
		}},
		{"offers what a closed layer has", calls.NotLive, func(d *desk) events.Envelope {
			d.log.Add(events.LayerStream(d.layer), events.LayerClosed{Layer: d.layer})
			d.add(events.PromptAdmitted{Message: d.log.Mint.Message(), Text: "go on"})
			return d.add(events.TurnMaterialized{Turn: d.log.Mint.Turn(), Tools: d.offers[:1]})
		}},
		{"keeps an output in another's name", calls.ForeignReference, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			e := d.settled("a")
			e.Retained = []domain.Retained{{Ref: domain.NewRef(d.log.Mint.Event(), domain.TextChannel)}}
			return d.add(e)
		}},
		{"prunes what was never kept", calls.PrunedUnkept, func(d *desk) events.Envelope {
			return d.add(events.OutputPruned{Retained: domain.Retained{Ref: domain.NewRef(d.log.Mint.Event(), domain.TextChannel)}})
		}},
		{"waits for a decision", calls.WaitsForDecision, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			asks := d.add(events.PermissionRequested{Permission: d.log.Mint.Permission(), Message: d.message, Call: "a", Action: "read", Resources: []string{"a"}})
			d.add(d.settled("a"))
			return asks
		}},
		{"decides what nobody asked", calls.DecidedUnrequested, func(d *desk) events.Envelope {
			return d.add(events.PermissionDecided{Permission: d.log.Mint.Permission(), Effect: domain.Allow})
		}},
		{"adds calls before it began", calls.AddedOutside, func(d *desk) events.Envelope {
			d.ask("a")
			added := d.add(d.added("a", "a/1"))
			d.run("a")
			d.run("a/1")
			return added
		}},
		{"adds calls after its end", calls.AddedOutside, func(d *desk) events.Envelope {
			d.ask("a")
			d.run("a")
			added := d.add(d.added("a", "a/1"))
			d.run("a/1")
			return added
		}},
		{"adds calls and was never asked for", calls.AddedOutside, func(d *desk) events.Envelope {
			return d.add(d.added("ghost"))
		}},
		{"added without an end", calls.Open, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			added := d.add(d.added("a", "a/1"))
			d.add(d.settled("a"))
			return added
		}},
		{"adds a call with the ID of another", calls.AskedAsAnother, func(d *desk) events.Envelope {
			d.ask("a", "a/1")
			d.add(d.started("a"))
			e := d.added("a", "a/1")
			e.Calls[0].Name = "write"
			added := d.add(e)
			d.run("a/1")
			d.add(d.settled("a"))
			return added
		}},
		{"waits for an answer", calls.WaitsForDecision, func(d *desk) events.Envelope {
			d.ask("a")
			d.add(d.started("a"))
			asks := d.add(events.QuestionAsked{Question: d.log.Mint.Permission(), Message: d.message, Call: "a"})
			d.add(d.settled("a"))
			return asks
		}},
		{"answers what nobody asked", calls.DecidedUnrequested, func(d *desk) events.Envelope {
			return d.add(events.QuestionAnswered{Question: d.log.Mint.Permission()})
		}},
		{"goes on without an opening", calls.NeverOpened, func(d *desk) events.Envelope {
			return d.log.Add(events.SessionStream(d.log.Mint.Session()), events.PromptAdmitted{Message: d.log.Mint.Message(), Text: "go"})
		}},
	}
}

// Each breach is one exception, at its event and under its law.
func TestEachBreachIsListedOnceAndAlone(t *testing.T) {
	t.Parallel()
	for _, b := range breaches() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk()
			at := b.make(d)
			found := d.state().Exceptions()
			if len(found) != 1 {
				t.Fatalf("Exceptions = %+v, want one of %q", found, b.law)
			}
			e := found[0]
			if e.Law != b.law || e.Event != at.ID || e.Stream != at.Stream || e.Revision != at.Revision || e.Position != at.Position || e.Detail == "" {
				t.Errorf("Exceptions = %+v, want %q at %s", e, b.law, at.ID)
			}
		})
	}
}

// Exceptions of many sessions are in the order of their events in the log.
func TestExceptionsAreInTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	d := newDesk()
	var want []domain.EventID
	for _, b := range breaches() {
		if b.law == calls.NeverOpened {
			continue
		}
		d.offers = nil
		d.begin(events.Origin{Kind: events.RunHere})
		want = append(want, b.make(d).ID)
	}
	var got []domain.EventID
	for _, e := range d.state().Exceptions() {
		got = append(got, e.Event)
	}
	if !slices.Equal(got, want) {
		t.Errorf("exceptions are at %v, want %v", got, want)
	}
}

// In an import, a call without an end and a result without a call break no law, as
// the file may begin and end anywhere.
func TestOrphansAndOpenCallsOfAnImportAreNoExceptions(t *testing.T) {
	t.Parallel()
	d := newImport()
	d.ask("open", "begun", "done", "denied")
	d.add(events.CallStarted{Turn: d.turn, Message: d.message, Call: "begun", Tool: "read", Offered: d.offers[0]})
	d.add(events.CallSettled{Turn: d.turn, Message: d.message, Call: "done", Tool: "read", Outcome: domain.Succeeded, Began: true, Offered: d.offers[0]})
	d.add(events.LateResultObserved{Message: d.message, Call: "done", Tool: "read", Outcome: domain.Succeeded})
	d.add(events.CallSettled{Message: d.message, Call: "denied", Tool: "read", Outcome: domain.DeclinedByUser})
	elsewhere := d.log.Mint.Message()
	d.add(events.CallSettled{Message: elsewhere, Call: "orphan", Tool: "unknown", Outcome: domain.Failed, Began: true})
	d.add(events.LateResultObserved{Message: elsewhere, Call: "orphan", Tool: "unknown", Outcome: domain.Failed})
	s := d.state()
	if got := s.Exceptions(); len(got) != 0 {
		t.Errorf("Exceptions = %+v, want none", got)
	}
	if open := s.Unfinished(); len(open) != 2 || open[0].Law != calls.Open || open[0].Call != "open" || open[1].Call != "begun" {
		t.Errorf("Unfinished = %+v, want the two open calls", open)
	}
	if got := len(s.Calls()); got != 4 {
		t.Errorf("%d calls are listed, want the four that were asked for", got)
	}
	if got := s.Orphans(); len(got) != 1 || got[0].ID != "orphan" || !got[0].Imported {
		t.Errorf("Orphans = %+v", got)
	}
}

// In an import, a result may come before its call. In a session that ran here this is
// a breach.
func TestAResultBeforeItsCallIsNoExceptionInAnImport(t *testing.T) {
	t.Parallel()
	d := newImport()
	d.add(events.CallSettled{Message: d.message, Call: "a", Tool: "read", Outcome: domain.Succeeded, Began: true})
	d.add(events.LateResultObserved{Message: d.message, Call: "a", Tool: "read"})
	d.ask("a")
	s := d.state()
	if got := s.Exceptions(); len(got) != 0 {
		t.Errorf("Exceptions = %+v", got)
	}
	if c, ok := s.Call(d.key("a")); !ok || c.State != calls.Settled || c.Asked.IsZero() || c.Late != 1 {
		t.Errorf("the call is %+v", c)
	}
	run := newDesk()
	run.add(run.settled("a"))
	run.ask("a")
	found := run.state().Exceptions()
	if len(found) != 1 || found[0].Law != calls.NeverAsked {
		t.Errorf("in a session that ran here, Exceptions = %+v", found)
	}
}

// A call whose two starts declare it idempotent may start twice.
func TestAnIdempotentCallMayBeginAgain(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask("a")
	e := d.started("a")
	e.Idempotent = true
	d.add(e)
	d.add(e)
	d.add(d.settled("a"))
	if got := d.state().Exceptions(); len(got) != 0 {
		t.Errorf("Exceptions = %+v", got)
	}
}

// A registration may close between the materialization of a turn and the event that
// records it.
func TestAClosingBesideAMaterializationIsNoException(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.log.Add(events.LayerStream(d.layer), events.RegistrationClosed{Registration: d.offers[0].Registration})
	d.materialize()
	if got := d.state().Exceptions(); len(got) != 0 {
		t.Errorf("Exceptions = %+v", got)
	}
}

// A reply that contains one call twice, with the same input, has one call.
func TestTheSameCallAskedForAgainIsOneCall(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask("a", "a")
	d.run("a")
	s := d.state()
	if got := s.Exceptions(); len(got) != 0 || len(s.Calls()) != 1 {
		t.Errorf("%d calls with exceptions %+v, want one with none", len(s.Calls()), got)
	}
}

// A call ID that a later reply repeats names another call (Scenario 97).
func TestTheSameCallIDInAnotherReplyIsAnotherCall(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask("tool_0")
	d.run("tool_0")
	first := d.key("tool_0")
	d.materialize()
	d.ask("tool_0")
	s := d.state()
	one, _ := s.Call(first)
	two, ok := s.Call(d.key("tool_0"))
	if !ok || one.State != calls.Settled || two.State != calls.Asked || len(s.Calls()) != 2 {
		t.Errorf("the calls are %+v and %+v", one, two)
	}
}

// A call that started is open until its settlement, and one that is settled as lost
// counts as failed (Scenario 122).
func TestACallThatBeganIsOpenUntilItIsSettled(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask("a")
	begun := d.add(d.started("a"))
	c, _ := d.state().Call(d.key("a"))
	if c.State != calls.Begun || !c.Started.Equal(begun.Time) || c.StartedAt.Event != begun.ID || c.Registration() != d.offers[0].Registration {
		t.Errorf("the call is %+v, want it begun", c)
	}
	e := d.settled("a")
	e.Outcome, e.Text, e.Content = domain.Lost, "The outcome is unknown.", nil
	lost := d.add(e)
	s := d.state()
	c, _ = s.Call(d.key("a"))
	if c.State != calls.Settled || c.Settlement.Outcome != domain.Lost || c.SettledBy != lost.ID || c.Preview != e.Text || len(s.Exceptions()) != 0 {
		t.Errorf("the call is %+v with exceptions %v", c, s.Exceptions())
	}
	if session, _ := s.Session(d.session); session.Open != 0 || session.Failed != 1 || session.Calls != 1 || session.Title != "go" {
		t.Errorf("the session is %+v", session)
	}
}

// The state holds at most 256 bytes of each text and input, in whole runes.
func TestLongTextsAreHeldAsAPreview(t *testing.T) {
	t.Parallel()
	d := newDesk()
	long := strings.Repeat("é", 5000)
	input, err := json.Marshal(map[string]string{"path": long})
	if err != nil {
		t.Fatal(err)
	}
	d.add(events.PromptAdmitted{Message: d.log.Mint.Message(), Text: long})
	d.materialize()
	d.add(events.ReplyReceived{Turn: d.turn, Message: d.message, Calls: []domain.Call{{ID: "a", Name: "read", Input: input}}})
	d.add(d.started("a"))
	e := d.settled("a")
	e.Content, e.Structured, e.Detail = domain.Contents{domain.Text(long)}, input, long
	e.Progress = &domain.Progress{Structured: input}
	d.add(e)
	s := d.state()
	data, err := projections.Pack(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 8000 {
		t.Errorf("one call of 50,000 bytes is held in %d bytes", len(data))
	}
	c, _ := s.Call(d.key("a"))
	for _, text := range []string{c.Preview, c.InputPreview, c.Settlement.Detail} {
		if len(text) < 250 || len(text) > 256 || !utf8.ValidString(text) {
			t.Errorf("a preview of %d bytes: %q", len(text), text)
		}
	}
	if c.Input != nil || !reflect.DeepEqual(c.Settlement.Content, domain.Contents(nil)) {
		t.Errorf("the call holds input %d bytes, content %v", len(c.Input), c.Settlement.Content)
	}
}

// A managed output is listed from its settlement on; its removal adds the policy and
// the time.
func TestRetainedOutputsAreListedUntilAndAfterTheyArePruned(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask("a")
	d.add(d.started("a"))
	id := d.log.Mint.Event()
	e := d.settled("a")
	kept := domain.Retained{Ref: domain.NewRef(id, domain.TextChannel), Bytes: 99, SHA256: "ab"}
	e.Retained = []domain.Retained{kept}
	d.log.AddAs(id, events.SessionStream(d.session), e)
	got := d.state().Retained()
	if len(got) != 1 || got[0].Retained != kept || got[0].Pruned || got[0].Settlement != id || got[0].Call != d.key("a") {
		t.Errorf("Retained = %+v", got)
	}
	when := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	d.add(events.OutputPruned{Retained: kept, Policy: "7 days", Pruned: when})
	s := d.state()
	got = s.Retained()
	if len(got) != 1 || !got[0].Pruned || got[0].Policy != "7 days" || !got[0].PrunedAt.Equal(when) || len(s.Exceptions()) != 0 {
		t.Errorf("Retained = %+v, exceptions %v", got, s.Exceptions())
	}
}

// An interruption ends with the next turn.
func TestASessionIsInterruptedUntilItGoesOn(t *testing.T) {
	t.Parallel()
	d := newDesk()
	interrupted := func() bool {
		session, _ := d.state().Session(d.session)
		return session.Interrupted
	}
	d.add(events.SessionInterrupted{Reason: domain.ByUser})
	if !interrupted() {
		t.Error("the session is not interrupted")
	}
	d.materialize()
	if interrupted() {
		t.Error("the session is interrupted after it went on")
	}
	d.add(events.SessionClosed{Reason: "done"})
	if session, _ := d.state().Session(d.session); !session.Closed {
		t.Error("the session is not closed")
	}
}

// Late results of many settled calls are counted and leave all other fields as they
// are.
func TestLateResultsOfManyCallsAreCounted(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(5)
	session, message := log.Mint.Session(), log.Mint.Message()
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Session: session, Agent: "a", Origin: events.Origin{Kind: events.RunHere}})
	const many = 40
	id := func(i int) domain.CallID { return domain.CallID(fmt.Sprint("call_", i)) }
	var asked []domain.Call
	for i := range many {
		asked = append(asked, domain.Call{ID: id(i), Name: "read", Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
	}
	log.Add(stream, events.ReplyReceived{Message: message, Calls: asked})
	var ends []events.Envelope
	for i := range many {
		ends = append(ends, log.Add(stream, events.CallSettled{
			Message: message, Call: id(i), Tool: "read", Outcome: domain.Failed, Text: strings.Repeat(fmt.Sprint(i, " "), 60), Detail: "why",
			Rule: domain.Rule{Action: "read", Resource: "*", Effect: domain.Deny}, ChangedBy: log.Mint.Event(),
		}))
	}
	rounds := repeats(100, 300)
	for round := range rounds {
		for i := range many {
			log.Add(stream, events.LateResultObserved{Message: message, Call: id(i), Tool: "read", Settlement: ends[i].ID, Text: fmt.Sprint(round)})
		}
	}
	s := fold(log.Envelopes())
	data, err := projections.Pack(s)
	if err != nil {
		t.Fatal(err)
	}
	again := calls.New()
	if err := again.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*calls.State{"folded": s, "from a checkpoint": again} {
		listed := s.Calls()
		if len(listed) != many {
			t.Fatalf("%s: %d calls are listed, want %d", name, len(listed), many)
		}
		for i, c := range listed {
			end := ends[i].Event.(events.CallSettled)
			end.Text = end.Text[:min(len(end.Text), 256)]
			if c.Late != rounds || !reflect.DeepEqual(c.Settlement, end) || string(c.Input) != string(asked[i].Input) || !c.Settled.Equal(ends[i].Time) {
				t.Errorf("%s: call %d is %+v, want its end %+v and %d late results", name, i, c, end, rounds)
			}
			if one, ok := s.Call(c.Key()); !ok || !reflect.DeepEqual(one, c) {
				t.Errorf("%s: Call(%v) = %+v, %v, want what is listed", name, c.Key(), one, ok)
			}
		}
		if _, ok := s.Call(calls.Key{Session: session, Message: message, Call: "call_x"}); ok {
			t.Errorf("%s: there is a call that nobody asked for", name)
		}
	}
}

// A truncated checkpoint does not decode, wherever it is cut.
func TestATruncatedCheckpointIsAnError(t *testing.T) {
	t.Parallel()
	whole, err := projections.Pack(fold(projectionstest.History(3, 250)))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(whole); cut += 1 + len(whole)/400 {
		if err := calls.New().UnmarshalJSON(whole[:cut]); err == nil {
			t.Fatalf("%d of %d bytes are a state", cut, len(whole))
		}
	}
}

// A rebuild of the view gives the state, byte for byte, of folding the log in order.
func TestARebuildOfCallsIsTheFold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(1, 3)) {
		store := eventstest.NewSlice()
		if err := projectionstest.Append(t.Context(), store, projectionstest.History(seed, 1200)); err != nil {
			t.Fatal(err)
		}
		l := events.NewLedger(store, projectionstest.NewLog(seed).Mint, time.Now)
		p := calls.Projection()
		state, err := projections.Fold(p, p.Init(), l.ReadAll(t.Context(), events.Position{}))
		if err != nil {
			t.Fatal(err)
		}
		want, err := projections.Pack(state)
		if err != nil {
			t.Fatal(err)
		}
		v := projections.NewView(p, l, nil)
		if err := v.Rebuild(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		v.Read(func(s *calls.State) {
			if got, err := projections.Pack(s); err != nil || string(got) != string(want) {
				t.Errorf("seed %d: a rebuild gives %d bytes, %v, want the %d of the fold", seed, len(got), err, len(want))
			}
		})
	}
}

// repeats returns how often a test repeats: short, or long if the environment
// sets LEDGER_TEST_LONG.
func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}
