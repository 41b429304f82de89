package transcripts_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// A tester is a test, or one trial of a property.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
	Context() context.Context
}

func newLedger() *events.Ledger {
	return events.NewLedger(eventstest.NewSlice(), domain.NewMint(time.Now, rand.Reader), time.Now)
}

func readFile(t tester, data []byte) *transcripts.Transcript {
	t.Helper()
	read, err := transcripts.ReadClaudeCode("garden.jsonl", bytes.NewReader(data))
	if err != nil {
		t.Fatalf("ReadClaudeCode = %v", err)
	}
	return read
}

// importAll imports a file and returns how many events that added.
func importAll(t tester, l *events.Ledger, data []byte) int {
	t.Helper()
	added, err := readFile(t, data).Import(t.Context(), l)
	if err != nil {
		t.Fatalf("Import = %v", err)
	}
	return added
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// facts are what a ledger says, however many events say it.
type facts struct {
	Sessions map[domain.SessionID]events.SessionOpened
	Prompts  []string
	Replies  map[domain.MessageID]events.ReplyReceived
	Tools    map[domain.TurnID]map[domain.Offered]bool
	Layers   map[events.Stream][]events.Event
	Asked    map[string]bool
	Started  map[string]events.CallStarted
	Settled  map[string]events.CallSettled
	Late     int
	Stops    int
	Around   map[string]bool // what surrounds the calls
}

func key(s events.Stream, m domain.MessageID, c domain.CallID) string { return fmt.Sprint(s, m, c) }

func factsOf(t tester, l *events.Ledger) facts {
	t.Helper()
	f := facts{
		Sessions: map[domain.SessionID]events.SessionOpened{}, Replies: map[domain.MessageID]events.ReplyReceived{},
		Tools: map[domain.TurnID]map[domain.Offered]bool{}, Layers: map[events.Stream][]events.Event{},
		Around: map[string]bool{}, Asked: map[string]bool{}, Started: map[string]events.CallStarted{}, Settled: map[string]events.CallSettled{},
	}
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		f.take(t, v)
	}
	return f
}

func (f *facts) take(t tester, v events.Envelope) {
	t.Helper()
	switch e := v.Event.(type) {
	case events.SessionOpened:
		f.Sessions[e.Session] = e
	case events.PromptAdmitted:
		f.Prompts = append(f.Prompts, e.Text)
	case events.SessionInterrupted:
		f.Stops++
	case events.TurnMaterialized:
		if f.Tools[e.Turn] == nil {
			f.Tools[e.Turn] = map[domain.Offered]bool{}
		}
		for _, o := range e.Tools {
			f.Tools[e.Turn][o] = true
		}
	case events.ReplyReceived:
		r := f.Replies[e.Message]
		e.Text, e.Calls, e.Thinking = r.Text+e.Text, append(r.Calls, e.Calls...), r.Thinking+e.Thinking
		e.Tokens.Input += r.Tokens.Input
		e.Tokens.Output += r.Tokens.Output
		e.Tokens.CacheRead += r.Tokens.CacheRead
		e.Tokens.CacheWrite += r.Tokens.CacheWrite
		f.Replies[e.Message] = e
		for _, c := range e.Calls {
			f.Asked[key(v.Stream, e.Message, c.ID)] = true
		}
	case events.CallStarted:
		k := key(v.Stream, e.Message, e.Call)
		if _, twice := f.Started[k]; twice || !f.Asked[k] || !f.Tools[e.Turn][e.Offered] && !e.Offered.IsZero() {
			t.Errorf("revision %d of %s starts %s twice, unasked or not offered", v.Revision, v.Stream, e.Call)
		}
		f.Started[k] = e
	case events.CallSettled:
		k := key(v.Stream, e.Message, e.Call)
		if _, twice := f.Settled[k]; twice {
			t.Errorf("revision %d of %s settles %s twice", v.Revision, v.Stream, e.Call)
		}
		if _, started := f.Started[k]; started != e.Began {
			t.Errorf("revision %d of %s settles %s with began %v, and it started: %v", v.Revision, v.Stream, e.Call, e.Began, started)
		}
		f.Settled[k] = e
	case events.LateResultObserved:
		f.Late++
	case events.SessionSpawned:
		id, _ := v.Stream.Session()
		s := f.Sessions[id]
		s.Parent = e.Parent
		f.Sessions[id] = s
	case events.SettingChanged:
		id, _ := v.Stream.Session()
		s := f.Sessions[id]
		switch {
		case e.Setting == events.SettingModel && s.Model == "":
			s.Model = e.Value
		case e.Setting == events.SettingLocation && s.Location == "":
			s.Location = e.Value
		default:
			f.Around[fmt.Sprintf("%s %T %+v", v.Stream, e, e)] = true
		}
		f.Sessions[id] = s
	case events.ContextAdded, events.ContextCompacted, events.CommandRan, events.ProviderFailed:
		f.Around[fmt.Sprintf("%s %s %T %+v", v.Stream, v.ID, e, e)] = true
	default:
		f.Layers[v.Stream] = append(f.Layers[v.Stream], e)
	}
}

// grow imports data as it grows by so many lines at a time, and each of these
// prefixes before the whole, and checks that the ledger says the same as after
// one import.
func grow(t tester, data []byte, stride int) {
	t.Helper()
	whole := newLedger()
	importAll(t, whole, data)
	want := factsOf(t, whole)
	rows := bytes.SplitAfter(data, []byte("\n"))
	steady := newLedger()
	for n := 0; n < len(rows); n += stride {
		prefix := bytes.Join(rows[:n], nil)
		importAll(t, steady, prefix)
		if added := importAll(t, steady, prefix); added != 0 {
			t.Fatalf("importing %d lines again adds %d events, want 0", n, added)
		}
		once := newLedger()
		importAll(t, once, prefix)
		importAll(t, once, data)
		sameFacts(t, fmt.Sprintf("after %d lines and then all", n), want, factsOf(t, once))
		if added := importAll(t, once, prefix); added != 0 {
			t.Fatalf("importing %d lines after all of them adds %d events, want 0", n, added)
		}
	}
	importAll(t, steady, data)
	sameFacts(t, "after growing", want, factsOf(t, steady))
	if added := importAll(t, steady, data); added != 0 {
		t.Fatalf("importing the whole again adds %d events, want 0", added)
	}
}

func sameFacts(t tester, when string, want, got facts) {
	t.Helper()
	everything := cmp.Exporter(func(reflect.Type) bool { return true })
	slices.Sort(want.Prompts)
	slices.Sort(got.Prompts)
	if reflect.DeepEqual(want, got) {
		return // cmp is slow
	}
	if diff := cmp.Diff(want, got, everything); diff != "" {
		t.Fatalf("%s (-whole +grown):\n%s", when, diff)
	}
}
