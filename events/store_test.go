package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

func TestStreamNamesItsOwner(t *testing.T) {
	t.Parallel()
	m := newLedger(nil).Mint()
	session, layer, process := m.Session(), m.Layer(), m.Process()
	for _, row := range []struct {
		stream                    events.Stream
		category                  string
		session, layer, ofProcess bool
	}{
		{events.SessionStream(session), "session", true, false, false},
		{events.LayerStream(layer), "layer", false, true, false},
		{events.ProcessStream(process), "process", false, false, true},
		{events.Stream("session-" + layer.String()), "session", false, false, false},
		{"session-", "session", false, false, false},
		{"session", "session", false, false, false},
		{"$ce-session", "$ce", false, false, false},
		{"", "", false, false, false},
	} {
		if got := row.stream.Category(); got != row.category {
			t.Errorf("%q.Category() = %q, want %q", row.stream, got, row.category)
		}
		if id, ok := row.stream.Session(); ok != row.session || ok && id != session || !ok && !id.IsZero() {
			t.Errorf("%q.Session() = %s, %t", row.stream, id, ok)
		}
		if id, ok := row.stream.Layer(); ok != row.layer || ok && id != layer || !ok && !id.IsZero() {
			t.Errorf("%q.Layer() = %s, %t", row.stream, id, ok)
		}
		if id, ok := row.stream.Process(); ok != row.ofProcess || ok && id != process || !ok && !id.IsZero() {
			t.Errorf("%q.Process() = %s, %t", row.stream, id, ok)
		}
	}
	if got, want := string(events.SessionStream(session)), "session-"+session.String(); got != want {
		t.Errorf("SessionStream = %s, want %s", got, want)
	}
}

// positions are some, in their order.
func positions() []events.Position {
	var all []events.Position
	parts := []uint64{0, 1, 2, 10, math.MaxUint64}
	for _, commit := range parts {
		for _, prepare := range parts {
			all = append(all, events.NewPosition(commit, prepare))
		}
	}
	return all
}

func TestPositionsOrderByCommitThenPrepare(t *testing.T) {
	t.Parallel()
	for i, p := range positions() {
		for j, q := range positions() {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := p.Compare(q); got != want {
				t.Errorf("%s.Compare(%s) = %d, want %d", p, q, got, want)
			}
		}
		if p.IsZero() != (i == 0) {
			t.Errorf("%s.IsZero() = %t", p, p.IsZero())
		}
	}
}

func TestPositionReadsBack(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, want := range positions() {
		text := want.String()
		if seen[text] {
			t.Errorf("two positions print as %s", text)
		}
		seen[text] = true
		if got, err := events.ParsePosition(text); err != nil || got != want {
			t.Errorf("ParsePosition(%s) = %s, %v", text, got, err)
		}
		if got := events.NewPosition(want.Parts()); got != want {
			t.Errorf("NewPosition of the parts of %s = %s", want, got)
		}
		data, err := json.Marshal(want)
		var got events.Position
		if err == nil {
			err = json.Unmarshal(data, &got)
		}
		if err != nil || got != want || string(data) != `"`+text+`"` {
			t.Errorf("%s through JSON %s becomes %s, %v", want, data, got, err)
		}
	}
	if got := events.NewPosition(7, 7).String(); got != "7" {
		t.Errorf("a single sequence prints as %s", got)
	}
}

func TestBadPositionsAreRefused(t *testing.T) {
	t.Parallel()
	want := events.NewPosition(3, 4)
	for _, text := range []string{"", "/", "1/", "/1", "1/2/3", "-1", "+1", "a", "1 ", "0x1", "18446744073709551616", "1.5"} {
		if got, err := events.ParsePosition(text); err == nil || !got.IsZero() {
			t.Errorf("ParsePosition(%q) = %s, %v, want an error", text, got, err)
		}
		got := want
		if err := got.UnmarshalText([]byte(text)); err == nil || got != want {
			t.Errorf("UnmarshalText(%q) = %v and leaves %s", text, err, got)
		}
	}
}

func TestConflictNamesStreamAndRevision(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("wrapped: %w", &events.Conflict{Stream: "session-x", After: 3})
	if !errors.Is(err, events.ErrConflict) || errors.Is(err, events.ErrBadRecord) {
		t.Errorf("%v is no ErrConflict, or more than that", err)
	}
	if want := "wrapped: append to session-x after revision 3: stream has another length"; err.Error() != want {
		t.Errorf("reads %q, want %q", err, want)
	}
}

func TestValidRecordHasAllThatItNeeds(t *testing.T) {
	t.Parallel()
	good := entry("SessionClosed", 1, `{}`, ``).Record
	for name, change := range map[string]func(*events.Record){
		"as it is":           func(*events.Record) {},
		"the last version":   func(r *events.Record) { r.Version = 65535 },
		"the zero time":      func(r *events.Record) { r.Time = time.Time{} },
		"without any bytes":  func(r *events.Record) { r.Data, r.Metadata = nil, nil },
		"a kind not known":   func(r *events.Record) { r.Kind = "WeatherChanged" },
		"a time before 1970": func(r *events.Record) { r.Time = time.Date(1969, 1, 1, 0, 0, 0, 1000, time.UTC) },
	} {
		r := good
		change(&r)
		if err := r.Valid(); err != nil {
			t.Errorf("%s: Valid() = %v", name, err)
		}
	}
	for name, change := range map[string]func(*events.Record){
		"no ID":            func(r *events.Record) { r.ID = domain.EventID{} },
		"no kind":          func(r *events.Record) { r.Kind = "" },
		"version 0":        func(r *events.Record) { r.Version = 0 },
		"version -1":       func(r *events.Record) { r.Version = -1 },
		"version 65536":    func(r *events.Record) { r.Version = 65536 },
		"nanoseconds":      func(r *events.Record) { r.Time = r.Time.Add(1) },
		"another zone":     func(r *events.Record) { r.Time = r.Time.In(time.FixedZone("CET", 3600)) },
		"UTC by its clock": func(r *events.Record) { r.Time = r.Time.In(time.FixedZone("UTC", 0)) },
	} {
		r := good
		change(&r)
		if err := r.Valid(); !errors.Is(err, events.ErrBadRecord) {
			t.Errorf("%s: Valid() = %v, want ErrBadRecord", name, err)
		}
	}
}
