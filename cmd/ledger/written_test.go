package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// A scribe writes events into a store without the checks of the runner, as another
// program could.
type scribe struct {
	t       *testing.T
	ledger  *events.Ledger
	lengths map[events.Stream]events.Revision // of the streams written so far
}

// written returns the folder of a new store after write has added events to it.
func written(t *testing.T, write func(*scribe)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	write(&scribe{t, events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now), map[events.Stream]events.Revision{}})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// add appends an event at the end of a stream and returns its ID.
func (s *scribe) add(stream events.Stream, e events.Event) domain.EventID {
	s.t.Helper()
	d := s.ledger.Draft(e, domain.EventID{})
	if _, err := s.ledger.Append(context.Background(), stream, s.lengths[stream], d); err != nil {
		s.t.Fatal(err)
	}
	s.lengths[stream]++
	return d.ID
}

// process records a process and a layer with the tool read. It returns the process and
// the tool as a turn offers it.
func (s *scribe) process() (domain.ProcessID, domain.Offered) {
	process, layer := s.ledger.Mint().Process(), s.ledger.Mint().Layer()
	s.add(events.ProcessStream(process), events.ProcessStarted{Process: process, Host: "h", PID: 1, Program: "ledger", Version: "v"})
	s.add(events.LayerStream(layer), events.LayerOpened{Layer: layer, Placement: domain.Location, Location: "/w", Process: process})
	tools := []events.RegisteredTool{{Name: "read", Description: "reads", Action: "read", Fingerprint: domain.Fingerprint{1}}}
	r := s.add(events.LayerStream(layer), events.ToolsRegistered{Scope: s.ledger.Mint().Scope(), Tools: tools})
	return process, domain.Offered{Name: "read", Registration: domain.RegistrationOf(r), Layer: layer, Fingerprint: domain.Fingerprint{1}}
}

// turn records a session with a prompt and a turn that offers the given tools. It
// returns the session and the turn.
func (s *scribe) turn(offered ...domain.Offered) (domain.SessionID, events.TurnMaterialized) {
	mint := s.ledger.Mint()
	session := mint.Session()
	turn := events.TurnMaterialized{Turn: mint.Turn(), Message: mint.Message(), Agent: "build", Tools: offered}
	s.add(events.SessionStream(session), events.SessionOpened{Session: session, Agent: "build", Location: "/w", Origin: events.Origin{Kind: events.RunHere}})
	s.add(events.SessionStream(session), events.PromptAdmitted{Message: mint.Message(), Text: "go"})
	s.add(events.SessionStream(session), turn)
	return session, turn
}

// wantIn fails the test for each text that out does not contain. what names the output.
func wantIn(t *testing.T, what string, out []byte, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			t.Errorf("%s does not hold %q:\n%s", what, text, out)
		}
	}
}

// A refused reply is shown with its reason and its calls, opens no call, and breaks no
// law.
func TestARefusedReplyIsShownAndVerified(t *testing.T) {
	t.Parallel()
	store := written(t, func(s *scribe) {
		_, read := s.process()
		session, turn := s.turn(read)
		call := domain.Call{ID: "c1", Name: "read", Input: json.RawMessage(`{"path":"a"}`)}
		s.add(events.SessionStream(session), events.ReplyRefused{
			Turn: turn.Turn, Message: turn.Message, Reason: `call 2, of "read", has the ID "c1" of a call before it`, Text: "I look.",
			Calls: []domain.Call{call, call},
		})
	})
	wantIn(t, "session show", ledger(t, store, "session", "show").out, "reply refused", `has the ID "c1" of a call before it; I look.`)
	wantIn(t, "session show -o json", ledger(t, store, "session", "show", "-o", "json").out, `"reason": "call 2, of`)
	wantIn(t, "event ls", ledger(t, store, "event", "ls", "--kind", "ReplyRefused", "-o", "jsonl").out, `"calls":[{"call":"c1","tool":"read"`)
	wantIn(t, "call ls", ledger(t, store, "call", "ls").out, "No calls")
	checked := ledger(t, store, "verify")
	wantIn(t, "verify", checked.out, "1 reply refused, and kept", "every law holds")
	if checked.exit != 0 {
		t.Errorf("verify: exit %d, %s", checked.exit, checked.err)
	}
}

// recover skips a session that holds an event of an unknown kind, reports it, and
// recovers all other sessions.
func TestRecoverLeavesASessionOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	call := domain.Call{ID: "c1", Name: "read", Input: json.RawMessage(`{"path":"a"}`)}
	store := written(t, func(s *scribe) {
		_, read := s.process()
		for i := range 3 {
			session, turn := s.turn(read)
			s.add(events.SessionStream(session), events.ReplyReceived{Turn: turn.Turn, Message: turn.Message, Calls: []domain.Call{call}})
			if i == 1 {
				s.add(events.SessionStream(session), events.Unknown{Name: "BudgetSpent", Version: 1, Data: json.RawMessage(`{}`)})
			}
		}
	})
	done := ledger(t, store, "recover")
	if done.exit != 0 {
		t.Fatalf("recover: exit %d, %s", done.exit, done.err)
	}
	wantIn(t, "recover", done.out, "Ended 1 dead process, 1 layer and what was open in 2 sessions.", "Left ses_…", "kind of event is not known: BudgetSpent")
	again := ledger(t, store, "recover", "-o", "json")
	wantIn(t, "recover again", again.out, `"left": [`, `"error": "plan session`)
}
