package conversation_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// sessions returns the events of each session stream of a history.
func sessions(history []events.Envelope) map[events.Stream][]events.Envelope {
	apart := map[events.Stream][]events.Envelope{}
	for _, v := range history {
		if _, ok := v.Stream.Session(); ok {
			apart[v.Stream] = append(apart[v.Stream], v)
		}
	}
	return apart
}

// The projection keeps every law of projectionstest, over single streams and over
// whole histories, of which it folds the first session.
func TestConversationKeepsTheLawsOfAProjection(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(1, 3)) {
		t.Logf("seed %d", seed)
		history := projectionstest.History(seed, 250)
		projectionstest.Test(t, conversation.Projection(), history)
		for _, stream := range sessions(history) {
			projectionstest.Test(t, conversation.Projection(), stream)
		}
	}
}

// everything makes cmp compare unexported fields too.
var everything = cmp.Exporter(func(reflect.Type) bool { return true })

// fold returns the state of a sequence of envelopes.
func fold(envelopes []events.Envelope) *conversation.State {
	p := conversation.Projection()
	s := p.Init()
	for _, v := range envelopes {
		s = p.Apply(s, v)
	}
	return s
}

// decoded returns a state encoded as a checkpoint and decoded.
func decoded(t *testing.T, s *conversation.State) *conversation.State {
	t.Helper()
	data, err := projections.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	again := conversation.Projection().Init()
	if err := json.Unmarshal(data, again); err != nil {
		t.Fatal(err)
	}
	return again
}

// A state from a checkpoint has the same model messages, at any length of the stream.
func TestADecodedConversationIsShownTheSame(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(2, 4)) {
		for _, stream := range sessions(projectionstest.History(seed, 200)) {
			for cut := 0; cut <= len(stream); cut += 5 {
				s := fold(stream[:cut])
				before, after := s.ModelMessages(), decoded(t, s).ModelMessages()
				if reflect.DeepEqual(before, after) {
					continue
				}
				if diff := cmp.Diff(before, after, everything, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d, %d events: Shown (-before +after decoding):\n%s", seed, cut, diff)
				}
			}
		}
	}
}

// A desk builds one session event by event. turn and reply are the last ones.
type desk struct {
	log     *projectionstest.Log
	session domain.SessionID
	turn    domain.TurnID
	reply   domain.MessageID
}

// newDesk returns a desk with the opening of a session that ran here.
func newDesk() *desk {
	log := projectionstest.NewLog(1)
	d := &desk{log: log, session: log.Mint.Session()}
	d.add(events.SessionOpened{Session: d.session, Agent: "build", Location: "/w", Model: "m-1", Origin: events.Origin{Kind: events.RunHere}})
	return d
}

// add appends an event to the session's stream.
func (d *desk) add(e events.Event) events.Envelope {
	return d.log.Add(events.SessionStream(d.session), e)
}

// state returns the state of the events so far.
func (d *desk) state() *conversation.State { return fold(d.log.Envelopes()) }

// prompt appends a prompt.
func (d *desk) prompt(text string) {
	d.add(events.PromptAdmitted{Message: d.log.Mint.Message(), Text: text})
}

// answer appends a turn and a reply to it, and returns the message of the reply.
func (d *desk) answer(text string, calls ...domain.Call) domain.MessageID {
	d.turn, d.reply = d.log.Mint.Turn(), d.log.Mint.Message()
	d.add(events.TurnMaterialized{Turn: d.turn, Message: d.reply, Tools: []domain.Offered{{Name: "read"}}})
	d.add(events.ReplyReceived{Turn: d.turn, Message: d.reply, Text: text, Calls: calls})
	return d.reply
}

// call returns a call of the tool read.
func call(id domain.CallID) domain.Call {
	return domain.Call{ID: id, Name: "read", Input: json.RawMessage(`{"path":"a"}`)}
}

// start appends the start of a call of the last turn.
func (d *desk) start(message domain.MessageID, id domain.CallID) {
	d.add(events.CallStarted{Turn: d.turn, Message: message, Call: id, Tool: "read"})
}

// settle appends the successful settlement of a call of the last turn.
func (d *desk) settle(message domain.MessageID, id domain.CallID, text string) {
	d.add(events.CallSettled{Turn: d.turn, Message: message, Call: id, Tool: "read", Outcome: domain.Succeeded, Began: true, Content: domain.Contents{domain.Text(text)}})
}

// A call ID that a later reply repeats names another call, with its own start and
// settlement (Scenario 97).
func TestTheSameCallIDInAnotherReplyIsAnotherCall(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	first := d.answer("", call("tool_0"))
	d.start(first, "tool_0")
	d.settle(first, "tool_0", "one")
	second := d.answer("", call("tool_0"))
	d.start(second, "tool_0")
	for _, s := range []*conversation.State{d.state(), decoded(t, d.state())} {
		one, _ := s.Call(first, "tool_0")
		two, ok := s.Call(second, "tool_0")
		if !ok || one.Settlement == nil || two.Settlement != nil || two.Started == nil {
			t.Errorf("the calls are %+v and %+v, want only the first settled", one, two)
		}
		if got := s.Open(); len(got) != 1 || got[0].Message != second {
			t.Errorf("Open = %v, want the call of the second reply", got)
		}
	}
	d.settle(second, "tool_0", "two")
	if two, _ := d.state().Call(second, "tool_0"); two.Settlement == nil || two.ToolResult().Text != "two" {
		t.Errorf("the second call is %+v", two)
	}
}

// The model reads OutcomeUnknown as the answer to a call without a settlement
// (Scenario 122).
func TestACallWithoutASettlementIsShownAsUnknown(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	message := d.answer("I look.", call("a"), call("b"))
	d.start(message, "a")
	d.settle(message, "b", "text of b")
	var roles []conversation.MessageRole
	var readings []domain.ToolResult
	for _, m := range d.state().ModelMessages() {
		roles = append(roles, m.Role)
		if m.Role == conversation.ToolRole {
			readings = append(readings, m.Reading)
		}
	}
	if want := []conversation.MessageRole{conversation.User, conversation.Assistant, conversation.ToolRole, conversation.ToolRole}; !slices.Equal(roles, want) {
		t.Errorf("roles are %v, want %v", roles, want)
	}
	want := []domain.ToolResult{{Error: conversation.OutcomeUnknown}, {Text: "text of b"}}
	if diff := cmp.Diff(want, readings); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	if open := d.state().Open(); len(open) != 1 || open[0].ID != "a" || open[0].Started == nil {
		t.Errorf("Open = %v, want a, which began", open)
	}
}

// A reply and a turn that several events record are one message and one turn, and the
// calls of the first part keep their settlements.
func TestAReplyInSeveralEventsIsOne(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	message := d.answer("Let ", call("a"))
	d.settle(message, "a", "x")
	more := domain.Offered{Name: "write", Registration: domain.RegistrationOf(d.log.Mint.Event())}
	d.add(events.TurnMaterialized{Turn: d.turn, Message: message, Tools: []domain.Offered{more}})
	d.add(events.ReplyReceived{Turn: d.turn, Message: message, Text: "me see.", Calls: []domain.Call{call("b")}, Finish: "stop", Tokens: events.Tokens{Output: 3}})
	s := d.state()
	reply := s.Messages[1].Reply
	if len(s.Messages) != 2 || reply.Text != "Let me see." || len(reply.Calls) != 2 || reply.Finish != "stop" || reply.Tokens.Output != 3 {
		t.Errorf("messages are %+v with reply %+v", s.Messages, reply)
	}
	if len(reply.Offer.Tools) != 2 || reply.Offer.Turn != d.turn || s.Steps != 1 || !s.Replied {
		t.Errorf("offer %+v, %d steps, replied %v", reply.Offer, s.Steps, s.Replied)
	}
	if a, _ := s.Call(message, "a"); a.Settlement == nil {
		t.Error("the first part's call lost its settlement")
	}
}

// Two calls of one reply with the same ID share the first settlement and have one
// answer.
func TestOneIDTwiceInOneReplyHasOneSettlement(t *testing.T) {
	t.Parallel()
	d := newDesk()
	message := d.answer("", call("a"), call("a"))
	d.start(message, "a")
	d.settle(message, "a", "x")
	d.settle(message, "a", "y")
	s := d.state()
	calls := s.Messages[0].Reply.Calls
	if len(calls) != 2 || len(s.Open()) != 0 {
		t.Fatalf("calls are %+v, open %v", calls, s.Open())
	}
	for _, c := range calls {
		if c.Started == nil || c.ToolResult().Text != "x" {
			t.Errorf("call %+v, want it started and settled with the first settlement", c)
		}
	}
	if got := len(s.ModelMessages()); got != 2 {
		t.Errorf("%d messages are shown, want the reply and one answer", got)
	}
}

// A prompt resets the steps and the interruption.
func TestAPromptBeginsTheStepsAnew(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	d.answer("one")
	d.answer("two")
	if got := d.state().Steps; got != 2 {
		t.Errorf("Steps = %d, want 2", got)
	}
	d.add(events.SessionInterrupted{Reason: domain.ByUser})
	if s := d.state(); s.Interrupted == nil {
		t.Error("the session is not interrupted")
	}
	d.prompt("go on")
	if s := d.state(); s.Steps != 0 || s.Interrupted != nil {
		t.Errorf("after a prompt: %d steps, interrupted %v", s.Steps, s.Interrupted)
	}
}

// A new turn is not replied to, and ends an interruption.
func TestATurnWithoutAReplyIsNotReplied(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	d.answer("one")
	if s := d.state(); !s.Replied {
		t.Error("a turn with a reply is not replied to")
	}
	d.add(events.SessionInterrupted{Reason: domain.ByShutdown})
	v := d.add(events.TurnMaterialized{Turn: d.log.Mint.Turn(), Message: d.log.Mint.Message()})
	if s := d.state(); s.Replied || s.TurnEvent != v.ID || s.Last != v.ID || s.Revision != v.Revision || s.Interrupted != nil {
		t.Errorf("replied %v, turn event %s, last %s, revision %d, interrupted %v", s.Replied, s.TurnEvent, s.Last, s.Revision, s.Interrupted)
	}
}

// A decision removes its request.
func TestOnlyUndecidedRequestsRemain(t *testing.T) {
	t.Parallel()
	d := newDesk()
	one, two := d.log.Mint.Permission(), d.log.Mint.Permission()
	for _, p := range []domain.PermissionID{one, two} {
		d.add(events.PermissionRequested{Permission: p, Call: "a", Action: "bash", Resources: []string{"ls"}})
	}
	d.add(events.PermissionDecided{Permission: one, Effect: domain.Allow, By: events.ByPerson, Scope: "always"})
	s := d.state()
	if len(s.Asks) != 1 || s.Asks[0].Permission != two {
		t.Errorf("Asks = %v, want the second", s.Asks)
	}
}

// A late result is counted, and the model still reads the settlement.
func TestLateResultsAreCountedAndNeverApplied(t *testing.T) {
	t.Parallel()
	d := newDesk()
	message := d.answer("", call("a"))
	d.settle(message, "a", "x")
	d.add(events.LateResultObserved{Message: message, Call: "a", Outcome: domain.Failed, Text: "late"})
	if c, _ := d.state().Call(message, "a"); c.Late != 1 || c.ToolResult().Text != "x" {
		t.Errorf("the call is %+v", c)
	}
}

// An unknown kind is listed once, however often it occurs.
func TestUnknownKindsAreListedOnce(t *testing.T) {
	t.Parallel()
	d := newDesk()
	for range 2 {
		d.add(events.Unknown{Name: "WeatherChanged", Version: 1, Data: json.RawMessage(`{}`)})
	}
	d.add(events.SessionClosed{Reason: "done"})
	if s := d.state(); !slices.Equal(s.Unknown, []string{"WeatherChanged"}) || !s.Closed {
		t.Errorf("unknown %v, closed %v", s.Unknown, s.Closed)
	}
}

// The JSON of a call keeps an absent input absent and a null input null.
func TestAnInputIsKeptAsItWasAsked(t *testing.T) {
	t.Parallel()
	for _, input := range []json.RawMessage{nil, json.RawMessage(`null`), json.RawMessage(`{}`), json.RawMessage(`"x"`)} {
		c := conversation.ReplyCall{Call: domain.Call{ID: "a", Name: "read", Input: input}, Settlement: &domain.Settlement{Outcome: domain.Succeeded}}
		data, err := projections.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		var again conversation.ReplyCall
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, again, everything, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("input %q (-before +after decoding):\n%s", input, diff)
		}
		if got, want := again.ToolResult().Type(), c.ToolResult().Type(); got != want {
			t.Errorf("decoded it reads as %s, want %s", got, want)
		}
	}
}

// The projection folds the first session of a sequence and ignores the events of
// others.
func TestOtherSessionsArePassedOver(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("mine")
	other := d.log.Mint.Session()
	d.log.Add(events.SessionStream(other), events.PromptAdmitted{Message: d.log.Mint.Message(), Text: "theirs"})
	if s := d.state(); s.Session != d.session || len(s.Messages) != 1 || s.Revision != 2 {
		t.Errorf("session %s has %d messages at revision %d", s.Session, len(s.Messages), s.Revision)
	}
}

// The model has not read a prompt that came after its turn. The reply to the turn
// therefore precedes that prompt, and is no step after it.
func TestPromptAdmittedDuringATurnFollowsTheReply(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("first")
	turn, reply := d.log.Mint.Turn(), d.log.Mint.Message()
	d.add(events.TurnMaterialized{Turn: turn, Message: reply})
	d.prompt("second")
	d.prompt("third")
	if s := d.state(); s.Unread != 2 || s.Replied {
		t.Errorf("%d prompts are unread, replied %t; want 2 and no reply", s.Unread, s.Replied)
	}
	d.add(events.ReplyReceived{Turn: turn, Message: reply, Text: "to the first"})
	d.add(events.ReplyReceived{Turn: turn, Message: reply, Text: ", all of it"})
	s := d.state()
	var got []string
	for _, shown := range s.ModelMessages() {
		got = append(got, shown.Text)
	}
	if want := []string{"first", "to the first, all of it", "second", "third"}; !slices.Equal(got, want) {
		t.Errorf("shown %q, want %q", got, want)
	}
	if s.Unread != 2 || s.Steps != 0 {
		t.Errorf("%d prompts are unread after %d steps, want 2 after 0", s.Unread, s.Steps)
	}
	d.answer("to the others")
	if s := d.state(); s.Unread != 0 || s.Steps != 1 {
		t.Errorf("%d prompts are unread after %d steps, want 0 after 1", s.Unread, s.Steps)
	}
}

// repeats returns how often a test repeats: short, or long if the environment sets
// LEDGER_TEST_LONG.
func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}
