package timeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// entriesOf returns the entries of the events of one stream.
func entriesOf(stream []events.Envelope) (all []Entry) {
	var b Builder
	for _, v := range stream {
		b.Add(v)
		all = slices.AppendSeq(all, iter.Seq[Entry](b.Take))
	}
	return slices.AppendSeq(all, iter.Seq[Entry](b.Rest))
}

// places returns the places of all events in an entry.
func places(e Entry) []Place {
	all := []Place{e.Place}
	for _, c := range e.Calls {
		for _, s := range c.Starts {
			all = append(all, s.Place)
		}
		for _, l := range c.Loops {
			all = append(all, l.Place)
		}
		for _, p := range c.Permissions {
			if all = append(all, p.Place); p.Decision != nil {
				all = append(all, p.Decision.Place)
			}
		}
		for _, q := range c.Questions {
			if all = append(all, q.Place); q.Answer != nil {
				all = append(all, q.Answer.Place)
			}
		}
		if c.End != nil {
			all = append(all, c.End.Place)
		}
		for _, l := range c.Late {
			all = append(all, l.Place)
		}
	}
	return all
}

// sessions returns the events of each session of a history.
func sessions(history []events.Envelope) map[events.Stream][]events.Envelope {
	all := map[events.Stream][]events.Envelope{}
	for _, v := range history {
		if !v.Correlation.IsZero() {
			all[v.Stream] = append(all[v.Stream], v)
		}
	}
	return all
}

func TestEachEventIsInOneEntry(t *testing.T) {
	t.Parallel()
	calls, decided, answered, late := 0, 0, 0, 0
	for seed := range uint64(20) {
		for name, stream := range sessions(projectionstest.History(seed, 400)) {
			var got []events.Revision
			last := events.Revision(0)
			for _, e := range entriesOf(stream) {
				if e.Revision <= last {
					t.Fatalf("seed %d, %s: entry %d comes after %d", seed, name, e.Revision, last)
				}
				last = e.Revision
				for _, p := range places(e) {
					got = append(got, p.Revision)
				}
				for _, c := range e.Calls {
					calls++
					if c.AskedAt != e.Place {
						t.Errorf("seed %d, %s: call %s is asked at %v, in the entry %v", seed, name, c.Asked.ID, c.AskedAt, e.Place)
					}
					for _, p := range c.Permissions {
						if p.Decision != nil {
							decided++
						}
					}
					for _, q := range c.Questions {
						if q.Answer != nil {
							answered++
						}
					}
					late += len(c.Late)
				}
			}
			slices.Sort(got)
			var want []events.Revision
			for _, v := range stream {
				want = append(want, v.Revision)
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d, %s: the entries have the events %v, want %v", seed, name, got, want)
			}
		}
	}
	if calls == 0 || decided == 0 || answered == 0 {
		t.Errorf("the histories have %d calls, %d decisions and %d answers, want some of each", calls, decided, answered)
	}
}

// session is a stream with chosen events.
type session struct {
	log    *projectionstest.Log
	stream events.Stream
}

func newSession() *session {
	l := projectionstest.NewLog(1)
	return &session{l, events.SessionStream(l.Mint.Session())}
}

func (s *session) reply(ids ...domain.CallID) domain.MessageID {
	e := events.ReplyReceived{Turn: s.log.Mint.Turn(), Message: s.log.Mint.Message()}
	for _, id := range ids {
		e.Calls = append(e.Calls, domain.Call{ID: id, Name: "read", Input: []byte("{}")})
	}
	s.log.Add(s.stream, e)
	return e.Message
}

func (s *session) settle(m domain.MessageID, id domain.CallID, text string) {
	s.log.Add(s.stream, events.CallSettled{Message: m, Call: id, Tool: "read", Outcome: domain.Succeeded, Began: true, Text: text})
}

func TestAnEntryIsTakenWhenItsCallsAreSettled(t *testing.T) {
	t.Parallel()
	s := newSession()
	m := s.reply("a", "b")
	s.log.Add(s.stream, events.CallStarted{Message: m, Call: "a", Tool: "read"})
	s.settle(m, "a", "one")
	s.log.Add(s.stream, events.PromptAdmitted{Message: s.log.Mint.Message(), Text: "and now?"})
	s.settle(m, "b", "two")
	s.log.Add(s.stream, events.LateResultObserved{Message: m, Call: "b", Tool: "read", Text: "late"})
	var b Builder
	taken := []int{}
	for _, v := range s.log.Envelopes() {
		b.Add(v)
		n := 0
		for e := range b.Take {
			n++
			if _, is := e.Event.(events.ReplyReceived); is && (e.Calls[0].End.Text != "one" || e.Calls[1].End.Text != "two" || len(e.Calls[0].Starts) != 1) {
				t.Errorf("the reply has the calls %+v and %+v", *e.Calls[0], *e.Calls[1])
			}
		}
		taken = append(taken, n)
	}
	// The reply and the prompt behind it wait for b. The late result comes after.
	if want := []int{0, 0, 0, 0, 2, 1}; !slices.Equal(taken, want) {
		t.Errorf("entries taken after each event: %v, want %v", taken, want)
	}
}

// Open calls hold a bounded number of entries and bytes. Their later ends are entries.
func TestOpenCallsHoldABoundedNumberOfEntries(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"entries": "", "bytes": strings.Repeat("x", 1<<20)} {
		s := newSession()
		m := s.reply("open")
		most := 0
		var b Builder
		add := func(e events.Event) (all []Entry) {
			b.Add(s.log.Add(s.stream, e))
			all = slices.Collect(iter.Seq[Entry](b.Take))
			most = max(most, len(b.held))
			return all
		}
		b.Add(s.log.Envelopes()[0])
		for range maxHeld + 10 {
			add(events.PromptAdmitted{Message: s.log.Mint.Message(), Text: text})
		}
		ends := add(events.CallSettled{Message: m, Call: "open", Outcome: domain.Lost})
		if len(ends) != 1 || ends[0].Event.Kind() != "CallSettled" || len(ends[0].Calls) != 0 {
			t.Errorf("%s: the late end gives the entries %v, want one CallSettled", name, ends)
		}
		if limit := map[string]int{"entries": maxHeld, "bytes": 65}[name]; most > limit || most < limit/2 {
			t.Errorf("%s: at most %d entries were held, want about %d", name, most, limit)
		}
		if len(b.calls) != 0 || b.bytes != 0 {
			t.Errorf("%s: %d calls and %d bytes are held at the end", name, len(b.calls), b.bytes)
		}
	}
}

// A second settlement, a second request for a call, and events about calls that nothing
// asks for are entries of their own.
func TestWhatBreaksALawStaysVisible(t *testing.T) {
	t.Parallel()
	s := newSession()
	m := s.reply("a", "b")
	s.settle(m, "a", "one")
	s.settle(m, "a", "two")
	s.settle(m, "never asked", "three")
	s.log.Add(s.stream, events.PermissionDecided{Permission: s.log.Mint.Permission(), Effect: domain.Allow})
	s.log.Add(s.stream, events.ReplyReceived{Message: m, Calls: []domain.Call{{ID: "a", Name: "read"}, {ID: "c", Name: "read"}}})
	var got []string
	for _, e := range entriesOf(s.log.Envelopes()) {
		line := e.Event.Kind()
		for _, c := range e.Calls {
			line += " " + string(c.Asked.ID)
			if c.End != nil {
				line += "=" + c.End.Text
			}
		}
		got = append(got, line)
	}
	want := []string{"ReplyReceived a=one b", "CallSettled", "CallSettled", "PermissionDecided", "ReplyReceived c"}
	if !slices.Equal(got, want) {
		t.Errorf("the entries are %q, want %q", got, want)
	}
}

// Read gives the entries of the stream, up to a revision, and the error of the store.
func TestReadEndsAtARevision(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(3, 300)
	store := eventstest.NewSlice()
	l := events.NewLedger(store, projectionstest.NewLog(3).Mint, time.Now)
	if err := projectionstest.Append(t.Context(), store, history); err != nil {
		t.Fatal(err)
	}
	for name, stream := range sessions(history) {
		for until := range events.Revision(len(stream) + 1) {
			var got []Entry
			for e, err := range Read(t.Context(), l, stream[0].Correlation, until) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e)
			}
			want := entriesOf(stream)
			if until > 0 {
				want = entriesOf(stream[:until])
			}
			if a, b := summaries(got), summaries(want); !slices.Equal(a, b) {
				t.Fatalf("%s until %d: %v, want %v", name, until, a, b)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs []error
	for _, err := range Read(ctx, l, sessionOf(history), 0) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("Read with a cancelled context yields %v, want one error", errs)
	}
}

// sessionOf returns a session of a history.
func sessionOf(history []events.Envelope) domain.SessionID {
	i := slices.IndexFunc(history, func(v events.Envelope) bool { return !v.Correlation.IsZero() })
	return history[i].Correlation
}

func summaries(entries []Entry) (all []string) {
	for _, e := range entries {
		revisions := []events.Revision{}
		for _, p := range places(e) {
			revisions = append(revisions, p.Revision)
		}
		all = append(all, fmt.Sprint(e.Event.Kind(), revisions))
	}
	return all
}
