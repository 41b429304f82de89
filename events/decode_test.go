package events_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

// entry returns a record of a kind in its place.
func entry(kind string, version int, data, metadata string) events.Entry {
	l := newLedger(eventstest.NewSlice())
	return events.Entry{
		Record: events.Record{ID: l.Mint().Event(), Kind: kind, Version: version, Time: l.Now(), Data: []byte(data), Metadata: []byte(metadata)},
		Stream: "session-x", Revision: 4, Position: events.NewPosition(9, 7),
	}
}

// draftAgain returns the draft that an envelope came of.
func draftAgain(v events.Envelope) events.Draft {
	return events.Draft{ID: v.ID, Time: v.Time, Correlation: v.Correlation, Causation: v.Causation, Event: v.Event}
}

func TestUnknownEventsPassThroughByteForByte(t *testing.T) {
	t.Parallel()
	m := newLedger(nil).Mint()
	metadata := `{"$correlationId":"` + m.Session().String() + `","$causationId":"` + m.Event().String() + `"}`
	for name, e := range map[string]events.Entry{
		"unknown kind":     entry("WeatherChanged", 1, `{ "rain" : [1.50, "\u003c"], "rain":null }`, metadata),
		"later version":    entry("CallSettled", 3, `{"outcome":"delegated"}`, metadata),
		"without metadata": entry("WeatherChanged", 65535, `7`, `{}`),
	} {
		v, err := events.Decode(e)
		want := events.Unknown{Name: e.Kind, Version: e.Version, Data: e.Data}
		if err != nil || !reflect.DeepEqual(v.Event, want) {
			t.Errorf("%s: Decode = %+v, %v, want %+v", name, v.Event, err, want)
			continue
		}
		if got, err := events.Encode(draftAgain(v)); err != nil || !reflect.DeepEqual(got, e.Record) {
			t.Errorf("%s: encoded again %+v, %v, want %+v", name, got, err, e.Record)
		}
	}
}

// Other programs may write any metadata for kinds of their own. In these,
// $correlationId may be any JSON value.
func TestForeignMetadataOfUnknownKindsAreIgnored(t *testing.T) {
	t.Parallel()
	for _, metadata := range []string{"\xff", "[1]", `{"$correlationId":"3f2504e0-4f89-11d3-9a0c-0305e82c3301"}`, `{"$correlationId":7}`} {
		v, err := events.Decode(entry("WeatherChanged", 1, `{}`, metadata))
		if _, unknown := v.Event.(events.Unknown); err != nil || !unknown || !v.Correlation.IsZero() || !v.Causation.IsZero() {
			t.Errorf("Decode of one with the metadata %q = %+v, %v, want an Unknown alone", metadata, v, err)
		}
		if _, err := events.Decode(entry("SessionClosed", 1, `{}`, metadata)); !errors.Is(err, events.ErrDamaged) {
			t.Errorf("Decode of ours with the metadata %q = %v, want ErrDamaged", metadata, err)
		}
	}
}

func TestVersionsBelowOneAreRejected(t *testing.T) {
	t.Parallel()
	for _, version := range []int{0, -1} {
		e := entry("CallSettled", version, `{}`, ``)
		v, err := events.Decode(e)
		if want := (events.Unknown{Name: "CallSettled", Version: version, Data: e.Data}); err != nil || !reflect.DeepEqual(v.Event, want) {
			t.Errorf("Decode of version %d = %+v, %v, want %+v", version, v.Event, err, want)
		}
		r, err := events.Encode(draftAgain(v))
		if err == nil {
			err = r.Valid()
		}
		if !errors.Is(err, events.ErrBadRecord) {
			t.Errorf("version %d encodes to a record that is valid: %v", version, err)
		}
	}
}

func TestMetadataMayBeEmpty(t *testing.T) {
	t.Parallel()
	v, err := events.Decode(entry("SessionClosed", 1, `{"reason":"done"}`, ``))
	if err != nil || v.Event != (events.SessionClosed{Reason: "done"}) || !v.Correlation.IsZero() || !v.Causation.IsZero() {
		t.Errorf("Decode = %+v, %v", v, err)
	}
}

func TestDamageErrorNamesStreamRevisionAndPosition(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]events.Entry{
		"cut data":           entry("SessionClosed", 1, `{"reason":"do`, ``),
		"no data":            entry("SessionClosed", 1, ``, ``),
		"data of a type":     entry("SessionClosed", 1, `{"reason":7}`, ``),
		"an unknown word":    entry("CallSettled", 1, `{"outcome":"gone"}`, ``),
		"an ID of a kind":    entry("CallSettled", 1, `{"message":"ses_01KJMMA2G0HPXWXZG9EP8N1RCZ"}`, ``),
		"cut metadata":       entry("SessionClosed", 1, `{"reason":"done"}`, `{"$corr`),
		"metadata of a kind": entry("SessionClosed", 1, `{"reason":"done"}`, `{"$causationId":"ses_01KJMMA2G0HPXWXZG9EP8N1RCZ"}`),
	} {
		v, err := events.Decode(e)
		if !errors.Is(err, events.ErrDamaged) || !reflect.DeepEqual(v, events.Envelope{}) {
			t.Errorf("%s: Decode = %+v, %v, want ErrDamaged", name, v, err)
			continue
		}
		for _, part := range []string{e.Kind, "revision 4", "session-x", "position 9/7"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error %q does not say %s", name, err, part)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("CallSettled", 1, []byte(`{"outcome":"failed","content":[{"type":"text","text":"a"}],"input":{"a": 1}}`), []byte(`{}`))
	f.Add("OutputPruned", 1, []byte(`{"retained":{"ref":""},"pruned":"2026-03-01T12:00:00+01:00"}`), []byte(``))
	f.Add("WeatherChanged", 3, []byte(`7`), []byte(`{"$correlationId":""}`))
	f.Fuzz(func(t *testing.T, kind string, version int, data, metadata []byte) {
		v, err := events.Decode(entry(kind, version, string(data), string(metadata)))
		if err != nil {
			if !errors.Is(err, events.ErrDamaged) {
				t.Fatalf("Decode = %v", err)
			}
			return
		}
		r, err := events.Encode(draftAgain(v))
		if err != nil {
			if _, unknown := v.Event.(events.Unknown); !unknown || json.Valid(data) {
				t.Fatalf("what decodes does not encode: %+v: %v", v.Event, err)
			}
			return
		}
		again, err := events.Decode(events.Entry{Record: r, Stream: v.Stream, Revision: v.Revision, Position: v.Position})
		if err != nil {
			t.Fatalf("what was encoded does not decode: %s: %v", r.Data, err)
		}
		twice, err := events.Encode(draftAgain(again))
		if err != nil || !reflect.DeepEqual(r, twice) {
			t.Fatalf("written %s, read and written again %s, %v", r.Data, twice.Data, err)
		}
	})
}

func FuzzSettlementReadsBack(f *testing.F) {
	f.Add("text", "detail", "image/png", []byte("png"), uint8(1), int64(0))
	f.Add("<&>\u2028\x00", "\xff", "a;b,c\"", []byte{}, uint8(10), int64(-1))
	f.Fuzz(func(t *testing.T, text, detail, mime string, media []byte, outcome uint8, nanos int64) {
		l := newLedger(eventstest.NewSlice())
		all := domain.Outcomes()
		valid := func(s string) string { return strings.ToValidUTF8(s, "?") }
		structured, err := json.Marshal(valid(detail))
		if err != nil {
			t.Fatal(err)
		}
		want := events.CallSettled{
			Message: l.Mint().Message(), Call: domain.CallID(valid(text)), Tool: valid(mime), Outcome: all[int(outcome)%len(all)], Text: valid(text),
			Detail: valid(detail), Structured: structured,
			Content: domain.Contents{domain.Text(valid(text)), domain.Media{MIME: valid(mime), Name: valid(detail), Data: media}},
		}
		d := l.Draft(want, domain.EventID{})
		d.Time = time.Unix(0, nanos)
		r, err := events.Encode(d)
		if err != nil || r.Valid() != nil {
			t.Fatalf("Encode = %v, valid: %v", err, r.Valid())
		}
		v, err := events.Decode(events.Entry{Record: r})
		if err != nil || !reflect.DeepEqual(v.Event, want) || v.Time.Sub(d.Time).Abs() >= time.Microsecond {
			t.Fatalf("%s reads back as %+v, %v, want %+v", r.Data, v.Event, err, want)
		}
	})
}
