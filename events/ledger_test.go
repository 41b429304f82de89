package events_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

func TestDraftFixesIDAndTimeAndKeepsItsCause(t *testing.T) {
	t.Parallel()
	l := newLedger(eventstest.NewSlice())
	cause := l.Mint().Event()
	first, second := l.Draft(events.SessionClosed{Reason: "done"}, cause), l.Draft(events.SessionClosed{Reason: "done"}, cause)
	if first.ID.IsZero() || first.ID == second.ID || first.Causation != cause {
		t.Errorf("drafts %+v and %+v, want an ID each and the cause %s", first, second, cause)
	}
	want := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	if !reflect.DeepEqual(first.Time, want) || !reflect.DeepEqual(l.Now(), want) {
		t.Errorf("time %v, Now() = %v, want %v", first.Time, l.Now(), want)
	}
}

func TestAppendedEventsReadBackAsTheyWereReturned(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(store)
	session, process, elsewhere := l.Mint().Session(), l.Mint().Process(), l.Mint().Session()
	for _, row := range []struct {
		stream      events.Stream
		correlation domain.SessionID // of the draft
		want        domain.SessionID
	}{
		{events.SessionStream(session), domain.SessionID{}, session},
		{events.SessionStream(session), elsewhere, elsewhere},
		{events.ProcessStream(process), domain.SessionID{}, domain.SessionID{}},
		{events.ProcessStream(process), session, session},
	} {
		after := events.Revision(len(storedIDs(t, store, row.stream)))
		draft := l.Draft(events.SessionClosed{Reason: "done"}, l.Mint().Event())
		draft.Correlation = row.correlation
		draft.Time = noon()
		got, err := l.Append(t.Context(), row.stream, after, draft)
		if err != nil || len(got) != 1 {
			t.Fatalf("Append = %v, %v", got, err)
		}
		if got[0].Correlation != row.want || got[0].Causation != draft.Causation || got[0].ID != draft.ID || got[0].Time != l.Now() || got[0].Revision != after+1 {
			t.Errorf("Append(%s) = %+v, want correlation %q", row.stream, got[0], row.want)
		}
		for read, err := range l.Read(t.Context(), row.stream, after) {
			read.Position = events.Position{}
			if err != nil || !reflect.DeepEqual(read, got[0]) {
				t.Errorf("reads back as %+v, %v, want %+v", read, err, got[0])
			}
		}
	}
}

func TestDraftAppendedAgainIsTheSameRecord(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(store)
	s := events.SessionStream(l.Mint().Session())
	drafts := prompts(l, 3)
	for range 2 {
		if _, err := l.Append(t.Context(), s, 0, drafts...); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := storedIDs(t, store, s), idsOf(drafts); !slices.Equal(got, want) {
		t.Errorf("on record %v, want %v", got, want)
	}
	if _, err := l.Append(t.Context(), s, 0, prompts(l, 3)...); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append of others at the same place = %v, want ErrConflict", err)
	}
}

func TestEventThatCannotBeWrittenIsABadRecordAndChangesNothing(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(store)
	s := events.SessionStream(l.Mint().Session())
	for name, e := range map[string]events.Event{
		"input that is not JSON":  events.CallStarted{Input: json.RawMessage(`{`)},
		"outcome that is none":    events.CallSettled{Outcome: 200},
		"content that is none":    events.CallSettled{Content: domain.Contents{nil}},
		"no event":                nil,
		"unknown without data":    events.Unknown{Name: "WeatherChanged", Version: 1},
		"unknown without version": events.Unknown{Name: "WeatherChanged", Data: json.RawMessage(`{}`)},
		"unknown without kind":    events.Unknown{Version: 1, Data: json.RawMessage(`{}`)},
	} {
		good := prompts(l, 1)[0]
		if got, err := l.Append(t.Context(), s, 0, good, l.Draft(e, domain.EventID{})); !errors.Is(err, events.ErrBadRecord) || got != nil {
			t.Errorf("%s: Append = %v, %v, want ErrBadRecord", name, got, err)
		}
	}
	if got := storedIDs(t, store, s); len(got) != 0 {
		t.Errorf("on record: %v, want nothing", got)
	}
}

// ledgerWithDamage is a store that holds one record that does not decode between others
// that do.
func ledgerWithDamage(t *testing.T) (*events.Ledger, events.Stream) {
	t.Helper()
	store := eventstest.NewSlice()
	l := newLedger(store)
	s := events.SessionStream(l.Mint().Session())
	var records []events.Record
	for _, d := range prompts(l, 3) {
		r, err := events.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	records[1].Data = []byte(`{"message":`)
	if err := store.Append(t.Context(), s, 0, records...); err != nil {
		t.Fatal(err)
	}
	return l, s
}

func TestDamagedRecordEndsALoopOnceAndLast(t *testing.T) {
	t.Parallel()
	l, s := ledgerWithDamage(t)
	for name, loop := range map[string]func(func(events.Envelope, error) bool){
		"Read":    l.Read(t.Context(), s, 0),
		"ReadAll": l.ReadAll(t.Context(), events.Position{}),
		"Follow":  l.Follow(t.Context(), events.Position{}),
	} {
		var seen, failed int
		for v, err := range loop {
			if err == nil {
				seen++
				continue
			}
			if failed++; !errors.Is(err, events.ErrDamaged) || !reflect.DeepEqual(v, events.Envelope{}) {
				t.Errorf("%s yields %+v, %v, want a zero Envelope and ErrDamaged", name, v, err)
			}
		}
		if seen != 1 || failed != 1 {
			t.Errorf("%s yields %d events and %d errors, want 1 and 1", name, seen, failed)
		}
	}
}

func TestEntriesAreTheRecordsAsKept(t *testing.T) {
	t.Parallel()
	l, _ := ledgerWithDamage(t)
	var data [][]byte
	for e, err := range l.Entries(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, e.Data)
	}
	if len(data) != 3 || !bytes.Equal(data[1], []byte(`{"message":`)) {
		t.Errorf("entries hold %q, want the damaged one as it is kept", data)
	}
}

func TestCancelledReadYieldsTheCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(domain.ByUser)
	l := newLedger(eventstest.NewSlice())
	errs := 0
	for _, err := range l.ReadAll(ctx, events.Position{}) {
		if errs++; !errors.Is(err, domain.ByUser) {
			t.Errorf("yields %v, want the cause", err)
		}
	}
	if errs != 1 {
		t.Errorf("yields %d errors, want one", errs)
	}
}

// Concurrent appends reuse encode buffers. The stored events must not share bytes
// with them.
func TestEventsAppendedAtOnceAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	l := newLedger(store)
	const writers, appends = 8, 40
	var writing sync.WaitGroup
	for w := range writers {
		stream := events.SessionStream(l.Mint().Session())
		texts := []string{}
		writing.Go(func() {
			for n := range appends {
				drafts := make([]events.Draft, 1+n%3)
				for i := range drafts {
					texts = append(texts, strings.Repeat(fmt.Sprintf("writer %d append %d draft %d ", w, n, i), 1+n*n*i/2))
					drafts[i] = l.Draft(events.PromptAdmitted{Message: l.Mint().Message(), Text: texts[len(texts)-1]}, domain.EventID{})
				}
				if _, err := l.Append(context.Background(), stream, events.Revision(len(texts)-len(drafts)), drafts...); err != nil {
					t.Error(err)
					return
				}
			}
			kept := 0
			for v, err := range l.Read(context.Background(), stream, 0) {
				if err != nil || kept == len(texts) || v.Event.(events.PromptAdmitted).Text != texts[kept] {
					t.Errorf("event %d of writer %d is %.60v with %v, want the text that it was appended with", kept, w, v.Event, err)
					return
				}
				kept++
			}
			if kept != len(texts) {
				t.Errorf("writer %d has %d events, want %d", w, kept, len(texts))
			}
		})
	}
	writing.Wait()
}
