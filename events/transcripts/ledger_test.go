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

// A tester is the part of testing.T that a trial of rapid has as well.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
	Context() context.Context
}

// newLedger returns an empty ledger in memory.
func newLedger() *events.Ledger {
	return events.NewLedger(eventstest.NewSlice(), domain.NewMint(time.Now, rand.Reader), time.Now)
}

// readFile reads a file named garden.jsonl, which must be of the format.
func readFile(t tester, data []byte) *transcripts.Transcript {
	t.Helper()
	return readAs(t, "claude-code", data)
}

// readAs reads a file of the format.
func readAs(t tester, format string, data []byte) *transcripts.Transcript {
	t.Helper()
	read, err := transcripts.Read(format, "garden.jsonl", bytes.NewReader(data))
	if err != nil {
		t.Fatalf("Read(%s) = %v", format, err)
	}
	return read
}

// importAs reads and imports a file of the format and returns the number of events
// that it added.
func importAs(t tester, l *events.Ledger, format string, data []byte) int {
	t.Helper()
	added, err := readAs(t, format, data).Import(t.Context(), l)
	if err != nil {
		t.Fatalf("Import = %v", err)
	}
	return added
}

// importAll reads and imports a file and returns the number of events that it added.
func importAll(t tester, l *events.Ledger, data []byte) int {
	t.Helper()
	return importAs(t, l, "claude-code", data)
}

// fixture returns a file of testdata.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A facts is the content of a ledger, independent of the number and order of the
// events that record it. Two imports of one file, whole or in parts, must give equal
// facts.
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
	// Around has the contexts, commands, errors and later settings, each as text.
	Around map[string]bool
}

// key identifies a call in all streams.
func key(s events.Stream, m domain.MessageID, c domain.CallID) string { return fmt.Sprint(s, m, c) }

// factsOf returns the content of a ledger. It fails the test if a call starts or ends
// twice, or a start and an end contradict each other.
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

// take adds one event.
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

// grow imports every prefix of a file, a number of lines longer each time, into one
// ledger; and each prefix, followed by the whole file, into a new one. It checks that
// both ledgers have the facts of one import of the whole file, and that a repeated
// import adds no event.
func grow(t tester, data []byte, stride int) {
	t.Helper()
	growAs(t, "claude-code", data, stride)
}

// growAs is grow for a file of the format.
func growAs(t tester, format string, data []byte, stride int) {
	t.Helper()
	whole := newLedger()
	importAs(t, whole, format, data)
	want := factsOf(t, whole)
	rows := bytes.SplitAfter(data, []byte("\n"))
	steady := newLedger()
	for n := 0; n < len(rows); n += stride {
		prefix := bytes.Join(rows[:n], nil)
		importAs(t, steady, format, prefix)
		if added := importAs(t, steady, format, prefix); added != 0 {
			t.Fatalf("importing %d lines again adds %d events, want 0", n, added)
		}
		once := newLedger()
		importAs(t, once, format, prefix)
		importAs(t, once, format, data)
		sameFacts(t, fmt.Sprintf("after %d lines and then all", n), want, factsOf(t, once))
		if added := importAs(t, once, format, prefix); added != 0 {
			t.Fatalf("importing %d lines after all of them adds %d events, want 0", n, added)
		}
	}
	importAs(t, steady, format, data)
	sameFacts(t, "after growing", want, factsOf(t, steady))
	if added := importAs(t, steady, format, data); added != 0 {
		t.Fatalf("importing the whole again adds %d events, want 0", added)
	}
}

// sameFacts checks that two ledgers have equal facts. The order of prompts does not
// matter.
func sameFacts(t tester, when string, want, got facts) {
	t.Helper()
	everything := cmp.Exporter(func(reflect.Type) bool { return true })
	slices.Sort(want.Prompts)
	slices.Sort(got.Prompts)
	if reflect.DeepEqual(want, got) {
		// cmp is slow; it only describes a difference.
		return
	}
	if diff := cmp.Diff(want, got, everything); diff != "" {
		t.Fatalf("%s (-whole +grown):\n%s", when, diff)
	}
}
