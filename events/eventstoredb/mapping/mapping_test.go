package mapping_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

func record(metadata string) events.Record {
	id, err := parse("evt_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	if err != nil {
		panic(err)
	}
	return events.Record{
		ID: id, Kind: "PromptAdmitted", Version: 3, Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
		Data: []byte(`{"text":"a"}`), Metadata: []byte(metadata),
	}
}

func parse(text string) (id domain.EventID, err error) {
	err = id.UnmarshalText([]byte(text))
	return id, err
}

func same(a, b events.Record) bool {
	return a.ID == b.ID && a.Kind == b.Kind && a.Version == b.Version && a.Time.Equal(b.Time) && a.Time.Location() == b.Time.Location() &&
		string(a.Data) == string(b.Data) && string(a.Metadata) == string(b.Metadata)
}

// roundTrip fails the test unless the event of a record maps back to an equal record,
// and returns the event.
func roundTrip(t *testing.T, r events.Record) mapping.RawEvent {
	t.Helper()
	f, err := mapping.FromRecord(r)
	if err != nil {
		t.Fatalf("Of(%+v): %v", r, err)
	}
	got, own, err := f.Record()
	if err != nil || !own || !same(got, r) {
		t.Fatalf("from the form %q came %+v, %t, %v, want %+v", f.Metadata, got, own, err, r)
	}
	return f
}

// Record metadata of every form map to custom metadata and back without a change.
func TestMetadataRoundTripsExactly(t *testing.T) {
	t.Parallel()
	for _, metadata := range []string{
		"", "{}", "{ }", " {}", `{"a":1}`, `{"a":1} `, `{ "a":1}`, `{"a": 1 }`, `{"a":1,"a":2}`, `{"$ledger":1}`, `{"a":1,"$ledger":{}}`,
		`{"\u0024ledger":1}`, `{"a":{"$ledger":1}}`, `{"a":"\u003c"}`, `{"a":1e400}`, `[]`, `"x"`, "null", "{", "}", `{"a"}`, `{"}`, "\x00\xff", `{"a":"` + "\xff" + `"}`,
		`{"$correlationId":"ses_01ARZ3NDEKTSV4RRFFQ69G5FAV"}`, `{"` + "\xff" + `":1}`, `{"a":` + strings.Repeat("[", 20000),
	} {
		roundTrip(t, record(metadata))
	}
}

// The members of JSON metadata are top-level members of the custom metadata, where
// the tools of EventStoreDB find them.
func TestMetadataMembersStayAtTheTopLevel(t *testing.T) {
	t.Parallel()
	f := roundTrip(t, record(`{"$correlationId":"c","$causationId":"d"}`))
	got := map[string]any{}
	if err := json.Unmarshal(f.Metadata, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"$ledger":        map[string]any{"v": 3.0, "t": "2026-01-02T03:04:05.000006Z"},
		"$correlationId": "c", "$causationId": "d",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got − want +\n%s", diff)
	}
}

// Custom metadata that another program has reformatted give the same record.
func TestReformattedMetadataIsRead(t *testing.T) {
	t.Parallel()
	f := roundTrip(t, record(`{"a":1,"b":[2,"x"]}`))
	for _, metadata := range []string{
		`{ "$ledger" : { "t":"2026-01-02T03:04:05.000006Z", "v":3 }, "a" : 1, "b" : [ 2, "x" ] }`,
		`{"a":1,"b":[2,"x"],"$ledger":{"v":3,"t":"2026-01-02T03:04:05.000006Z"}}`,
		`{"a":1,"\u0024ledger":{"v":3,"t":"2026-01-02T03:04:05.000006Z"},"b":[2,"x"]}`,
	} {
		f.Metadata = []byte(metadata)
		got, own, err := f.Record()
		if want := record(`{"a":1,"b":[2,"x"]}`); err != nil || !own || !same(got, want) {
			t.Errorf("from %s came %+v, %t, %v, want %+v", metadata, got, own, err, want)
		}
	}
}

// An event without $ledger becomes a record with version 1 and the time of the
// server.
func TestForeignEventBecomesARecord(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 5, 6, 7, 8, 9, 123456700, time.UTC)
	for _, metadata := range []string{"", "{}", `{"a":{"$ledger":1}}`, "\x00", `{"a":"\\"}`, "$ledger"} {
		f := mapping.RawEvent{ID: [16]byte{1}, Type: "Theirs", Data: []byte{0xff}, Metadata: []byte(metadata), Created: created}
		got, own, err := f.Record()
		want := record(metadata)
		want.ID, want.Kind, want.Version, want.Data = got.ID, "Theirs", 1, []byte{0xff}
		want.Time = created.Truncate(time.Microsecond)
		if err != nil || own || got.ID.Bytes() != f.ID || !same(got, want) {
			t.Errorf("the record of %q is %+v, %t, %v, want %+v", metadata, got, own, err, want)
		}
	}
}

// An event with a $ledger that FromRecord does not write is an events.ErrDamaged.
func TestMalformedLedgerKeyIsDamaged(t *testing.T) {
	t.Parallel()
	const at = `"t":"2026-01-02T03:04:05.000006Z"`
	for _, metadata := range []string{
		`{"$ledger":null}`, `{"$ledger":1}`, `{"$ledger":{}}`, `{"$ledger":{"v":1}}`, `{"$ledger":{` + at + `}}`,
		`{"$ledger":{"v":0,` + at + `}}`, `{"$ledger":{"v":65536,` + at + `}}`, `{"$ledger":{"v":1.5,` + at + `}}`,
		`{"$ledger":{"v":1,"t":"2026-01-02T03:04:05Z"}}`, `{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006+01:00"}}`,
		`{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.0000061Z"}}`,
		`{"$ledger":{"v":1,` + at + `,"x":1}}`, `{"$ledger":{"v":1,` + at + `,"m":"?"}}`, `{"$ledger":{"v":1,` + at + `,"m":"YR=="}}`,
		`{"$ledger":{"v":1,` + at + `,"m":"YQ=="},"a":1}`,
	} {
		f := mapping.RawEvent{ID: [16]byte{1}, Type: "Ours", Data: []byte("{}"), Metadata: []byte(metadata), Created: time.Unix(1, 0)}
		if got, own, err := f.Record(); !errors.Is(err, events.ErrDamaged) || !own || got.Kind != "" {
			t.Errorf("the record of %s is %+v, %t, %v, want ErrDamaged", metadata, got, own, err)
		}
	}
	if _, _, err := (mapping.RawEvent{Type: "X", Created: time.Unix(1, 0)}).Record(); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("a form without an ID gives %v, want ErrDamaged", err)
	}
}

// FromRecord returns ErrUnmappable for a year outside 0 to 9999.
func TestTimeOutsideFourDigitYearsIsUnmappable(t *testing.T) {
	t.Parallel()
	for year, want := range map[int]error{-1: mapping.ErrUnmappable, 0: nil, 9999: nil, 10000: mapping.ErrUnmappable} {
		r := record("")
		r.Time = time.Date(year, 12, 31, 23, 59, 59, 999999000, time.UTC)
		if _, err := mapping.FromRecord(r); !errors.Is(err, want) {
			t.Errorf("Of a record of the year %d: %v, want %v", year, err, want)
		}
		if want == nil {
			roundTrip(t, r)
		}
	}
}

// FuzzFromRecord checks that records with any metadata map to an event and back.
func FuzzFromRecord(f *testing.F) {
	f.Add([]byte(`{"a":1}`), int64(1), 1)
	f.Add([]byte(`{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"},"a":1}`), int64(-62135596800000000), 65535)
	f.Fuzz(func(t *testing.T, metadata []byte, micro int64, version int) {
		r := record(string(metadata))
		r.Time, r.Version = time.UnixMicro(micro).UTC(), 1+(version&0x7fff)
		if _, err := mapping.FromRecord(r); errors.Is(err, mapping.ErrUnmappable) {
			return
		}
		roundTrip(t, r)
	})
}

// FuzzRecord checks that an event with any custom metadata is an error or a record
// that maps to an event and back.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"},"a":1}`))
	f.Add([]byte(`{"a":1,"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z","m":""}}`))
	f.Fuzz(func(t *testing.T, metadata []byte) {
		read := mapping.RawEvent{ID: [16]byte{1}, Type: "X", Metadata: metadata, Created: time.Unix(1, 0)}
		r, _, err := read.Record()
		if err != nil {
			if !errors.Is(err, events.ErrDamaged) {
				t.Fatalf("Record() = %v, want ErrDamaged", err)
			}
			return
		}
		roundTrip(t, r)
	})
}

// The record of a foreign event restores the content type that its client declared.
func TestDeclaredContentTypeIsRestored(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"42", "{}", "", "\x00", "not json"} {
		for _, declared := range []string{"", mapping.JSON, mapping.Octets, "text/plain", "application/json; charset=utf-8"} {
			for _, metadata := range []string{"", "{}", `{"a":1}`, `{ "a":1}`, "[]", "\xff", `{"$other":{}}`, `{"c":"application/octet-stream"}`} {
				f := mapping.RawEvent{ID: [16]byte{1}, Type: "Theirs", Data: []byte(data), Metadata: []byte(metadata), Created: time.Unix(1, 0), ContentType: declared}
				roundTripForeign(t, f)
			}
		}
	}
}

// roundTripForeign fails the test unless the record of a foreign event gives the same
// event again.
func roundTripForeign(t *testing.T, f mapping.RawEvent) {
	t.Helper()
	r, own, err := f.Record()
	if err != nil || own {
		t.Fatalf("the record of %+v: own %t, %v", f, own, err)
	}
	want := map[string]string{"": mapping.ContentType(f.Data), mapping.JSON: mapping.JSON}[f.ContentType]
	if want == "" {
		want = mapping.Octets
	}
	got, ok := mapping.ForeignEvent(r)
	if !ok || got.ContentType != want || string(got.Metadata) != string(f.Metadata) || string(got.Data) != string(f.Data) || got.ID != f.ID || got.Type != f.Type {
		t.Fatalf("of %+v came %+v, and back %+v, %t", f, r, got, ok)
	}
	if declares := string(r.Metadata) != string(f.Metadata); declares != (want != mapping.ContentType(f.Data)) {
		t.Errorf("the metadata of %+v are %q", f, r.Metadata)
	}
	// The ledger copies it as any record, and knows the type.
	if whole := roundTrip(t, r); whole.ContentType != want {
		t.Errorf("of %+v came %+v, of the type %s", f, whole, whole.ContentType)
	}
}

// Metadata of a ledger record that resemble a content type tag are returned
// unchanged.
func TestMetadataThatResembleAContentTypeTagAreKept(t *testing.T) {
	t.Parallel()
	for _, metadata := range []string{
		`{"$ledger":{"c":"application/json"}}`, // the type of its data
		`{"$ledger":{"c":"text/plain"}}`, `{"$ledger":{"c":"application/octet-stream"} }`, `{"$ledger":{"c":"application/octet-stream","m":"?"}}`,
		`{"$ledger":{"c":"application/octet-stream","m":"e30="}}`,
		`{"$ledger":{"c":"application/octet-stream"},"$ledger":1}`, `{"$ledger":{"v":1}}`,
	} {
		r := record(metadata)
		r.Version = 1
		if f, ok := mapping.ForeignEvent(r); ok {
			t.Errorf("the metadata %s are taken for a declaration: %+v", metadata, f)
		}
		roundTrip(t, r)
	}
	if f, ok := mapping.ForeignEvent(record("{}")); ok {
		t.Errorf("a record of version 3 has the plain form %+v, which does not say so", f)
	}
}

// FuzzForeignEvent checks that the record of any foreign event gives the same event
// again.
func FuzzForeignEvent(f *testing.F) {
	f.Add([]byte("42"), []byte(`{"a":1}`), mapping.Octets)
	f.Add([]byte("\x00"), []byte(``), mapping.JSON)
	f.Fuzz(func(t *testing.T, data, metadata []byte, declared string) {
		theirs := mapping.RawEvent{ID: [16]byte{1}, Type: "Theirs", Data: data, Metadata: metadata, Created: time.Unix(1, 0), ContentType: declared}
		if theirs.HasLedgerKey() {
			return
		}
		roundTripForeign(t, theirs)
	})
}
