package conversation_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// shown returns the messages as a model reads them, one in each line.
func shown(s *conversation.State) string {
	var lines []string
	for _, m := range s.ModelMessages() {
		lines = append(lines, string(m.Role)+" "+m.Text+m.Reading.Text)
	}
	return strings.Join(lines, "\n")
}

// A compaction leaves out the messages up to the one that it names, wherever later replies
// are inserted, and has its summary in their place. A later compaction replaces it.
func TestACompactionLeavesOutTheBeginning(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("first")
	first := d.answer("one", call("a"))
	d.settle(first, "a", "result a")
	second := d.answer("two", call("a"))
	d.settle(second, "a", "result b")
	compacted := d.add(events.ContextCompacted{Trigger: "auto", Through: first, Prompts: 1, Replies: 1, Calls: 1, Summary: "the summary", Model: "m-1"})
	// A prompt that arrives during the turn follows the reply of the turn.
	turn, reply := d.log.Mint.Turn(), d.log.Mint.Message()
	d.add(events.TurnMaterialized{Turn: turn, Message: reply, Compacted: compacted.ID})
	d.prompt("steer")
	d.add(events.ReplyReceived{Turn: turn, Message: reply, Text: "three"})
	want := "assistant two\ntool result b\nassistant three\nuser steer"
	for _, s := range []*conversation.State{d.state(), decoded(t, d.state())} {
		got := shown(s)
		if !strings.HasPrefix(got, "user [") || !strings.Contains(got, "the summary") || !strings.Contains(got, "prompts: 1, replies: 1, tool calls: 1") || !strings.HasSuffix(got, want) {
			t.Errorf("the model reads\n%s\nwant a summary and\n%s", got, want)
		}
		if strings.Contains(got, "first") || strings.Contains(got, "result a") || len(s.Visible()) != 3 || len(s.Messages) != 5 {
			t.Errorf("the model reads\n%s\nof %d visible messages of %d", got, len(s.Visible()), len(s.Messages))
		}
		if last := s.Messages[3].Reply; last.Compacted != compacted.ID {
			t.Errorf("the reply follows the compaction %s, want %s", last.Compacted, compacted.ID)
		}
	}
	d.add(events.ContextCompacted{Trigger: "auto", Through: second, Summary: "another", Detail: "busy"})
	if got := shown(d.state()); strings.Contains(got, "the summary") || !strings.Contains(got, "written by the program") || strings.Contains(got, "two") {
		t.Errorf("after the second compaction the model reads\n%s", got)
	}
}

// A model reads the size of a result that is left out. The same call ID in another reply
// keeps its result.
func TestACompactionLeavesOutResults(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	first := d.answer("one", call("a"), call("b"))
	d.settle(first, "a", "result a")
	d.settle(first, "b", "result b")
	second := d.answer("two", call("a"))
	d.settle(second, "a", "result c")
	d.add(events.ContextCompacted{Trigger: "auto", Shortened: []events.ShortenedResult{{Message: first, Call: "a", Bytes: 12345}}})
	got := shown(d.state())
	if strings.Contains(got, "result a") || !strings.Contains(got, "12345 bytes") || !strings.Contains(got, "result b") || !strings.Contains(got, "result c") || !strings.Contains(got, "user go") {
		t.Errorf("the model reads\n%s", got)
	}
}

// A compaction of another program, which names no message, and one through an unknown
// message leave out nothing.
func TestACompactionWithoutMessagesLeavesOutNothing(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	d.answer("one")
	d.add(events.ContextCompacted{Trigger: "manual", Before: 9, After: 3})
	d.add(events.ContextCompacted{Trigger: "auto", Through: d.log.Mint.Message(), Summary: "no"})
	if s := d.state(); s.Compaction != nil || shown(s) != "user go\nassistant one" {
		t.Errorf("compaction %+v, and the model reads\n%s", s.Compaction, shown(s))
	}
}

// A state that forgets what requests leave out shows the model the same messages, and has the
// same open calls, as one that forgets nothing.
func TestAForgetfulStateShowsTheModelTheSame(t *testing.T) {
	t.Parallel()
	forgot := 0
	for seed := range uint64(repeats(20, 200)) {
		r := rand.New(rand.NewPCG(seed, 0))
		d := newDesk()
		forgetful, p := conversation.Projection().Init(), conversation.Projection()
		var replies []domain.MessageID
		var through domain.MessageID
		fed := 0
		feed := func(t *testing.T) {
			for _, v := range d.log.Envelopes()[fed:] {
				forgetful = p.Apply(forgetful, v)
				if _, ok := v.Event.(events.ContextCompacted); ok {
					forgetful.Forget()
				}
				fed++
			}
			whole := d.state()
			if got, want := shown(forgetful), shown(whole); got != want {
				t.Fatalf("seed %d: after %d events the model reads\n%s\nwant\n%s", seed, fed, got, want)
			}
			if got, want := len(forgetful.Open()), len(whole.Open()); got != want || forgetful.Replies != whole.Replies {
				t.Fatalf("seed %d: after %d events %d open calls and %d replies, want %d and %d", seed, fed, got, forgetful.Replies, want, whole.Replies)
			}
			var counted conversation.MessageCount
			counted.Add(whole.Messages[:len(whole.Messages)-len(forgetful.Messages)])
			if forgetful.Forgotten != counted {
				t.Fatalf("seed %d: forgotten %+v, want %+v", seed, forgetful.Forgotten, counted)
			}
			for _, m := range whole.Messages[:counted.Messages()] {
				if _, found := forgetful.Reply(m.ID); found {
					t.Fatalf("seed %d: after %d events the forgotten reply %s is still held", seed, fed, m.ID)
				}
			}
		}
		most := 0
		for range 60 {
			switch r.IntN(6) {
			case 0:
				d.prompt("prompt")
			case 1, 2:
				replies = append(replies, d.answer("answer", call("a"), call("b")))
			case 3:
				kept := r.IntN(len(replies) + 2) // a reply whose calls stay as they are, if there is one
				for i, reply := range replies[:r.IntN(len(replies)+1)] {
					if i != kept {
						d.settle(reply, "a", "result")
						d.settle(reply, "b", "result")
					}
				}
			case 4:
				d.add(events.ContextCompacted{Trigger: "auto", Through: through, Summary: "again", Shortened: []events.ShortenedResult{{Call: "a"}}})
			case 5:
				if len(replies) > 1 {
					through = replies[len(replies)-2]
					d.add(events.ContextCompacted{Trigger: "auto", Through: through, Summary: "summary"})
				}
			}
			feed(t)
			most = max(most, forgetful.Forgotten.Messages())
		}
		forgot += most
	}
	if forgot < 100 {
		t.Errorf("%d messages were forgotten in all, want 100", forgot)
	}
}

// A request for a summary is no turn of the session: no prompt was read by it, and the last
// turn stays. Only the last turn can exceed the context, until a compaction or the next
// turn.
func TestARequestForASummaryIsNoTurn(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.prompt("go")
	d.answer("one")
	last := d.turn
	d.prompt("more")
	asks := d.log.Mint.Turn()
	d.add(events.TurnMaterialized{Turn: asks, Message: d.log.Mint.Message(), Disabled: true, Summarizes: d.reply})
	d.add(events.ProviderFailed{Turn: asks, Failure: events.FailureContextExceeded})
	if s := d.state(); s.Turn.Turn != last || !s.Replied || s.Unread != 1 || s.Exceeded {
		t.Errorf("after a request for a summary: turn %s, replied %v, %d unread, exceeded %v", s.Turn.Turn, s.Replied, s.Unread, s.Exceeded)
	}
	turn := d.log.Mint.Turn()
	for _, c := range []struct {
		event events.Event
		want  bool
	}{
		{events.TurnMaterialized{Turn: turn, Message: d.log.Mint.Message()}, false},
		{events.ProviderFailed{Turn: last, Failure: events.FailureContextExceeded}, false},
		{events.ProviderFailed{Turn: turn, Failure: "overloaded"}, false},
		{events.ProviderFailed{Turn: turn, Failure: events.FailureContextExceeded}, true},
		{events.ContextCompacted{Through: d.reply}, false},
		{events.ProviderFailed{Turn: turn, Failure: events.FailureContextExceeded}, true},
		{events.TurnMaterialized{Turn: d.log.Mint.Turn(), Message: d.log.Mint.Message()}, false},
	} {
		d.add(c.event)
		if s := d.state(); s.Exceeded != c.want {
			t.Errorf("after %+v Exceeded is %v", c.event, s.Exceeded)
		}
	}
	if m := d.state().ModelMessages(); len(m) != 2 || m[0].Message != (domain.MessageID{}) || m[1].Text != "more" {
		t.Errorf("the model reads %+v", m)
	}
}
