package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// verdict reads and checks a document, and returns what was found, or "" if it verifies.
func verdict(t *testing.T, w *world, data []byte) string {
	t.Helper()
	r, err := Read(bytes.NewReader(data))
	if err != nil {
		if !errors.Is(err, ErrNotAReceipt) && !errors.Is(err, ErrNewerReceipt) {
			t.Fatalf("Read = %v, want ErrNotAReceipt or ErrNewerReceipt", err)
		}
		return err.Error()
	}
	report, err := Check(t.Context(), w.Store, r, Options{Bytes: true})
	if errors.Is(err, ErrOtherStore) {
		return err.Error()
	}
	if err != nil {
		t.Fatalf("Check = %v", err)
	}
	if len(report.Differences) == 0 {
		return ""
	}
	return fmt.Sprint(report.Differences)
}

// resealed returns a document with the digests of its events and its own computed again, or
// false if it cannot be read.
func resealed(t *testing.T, data []byte) ([]byte, bool) {
	t.Helper()
	r, err := Read(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	for i, e := range r.Events {
		entry, err := e.entry()
		if err != nil {
			t.Fatal(err)
		}
		r.Events[i].SHA256 = digestOf(entry)
	}
	again, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return again, true
}

// A change is a document that differs from a receipt, and the place of the change.
type change struct {
	place string
	data  any
}

// changes returns documents that differ from a JSON value in one place each: another value, a
// missing, further or repeated member or element, or two elements that changed places.
func changes(v any) (all []change) {
	put := func(place string, changed any) { all = append(all, change{place, changed}) }
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			without := maps.Clone(v)
			delete(without, name)
			put(name+" removed", without)
			for _, c := range changes(v[name]) {
				changed := maps.Clone(v)
				changed[name] = c.data
				put(name+"."+c.place, changed)
			}
		}
		more := maps.Clone(v)
		more["another"] = 1
		put("a further member", more)
	case []any:
		for i := range v {
			put(fmt.Sprintf("%d removed", i), slices.Delete(slices.Clone(v), i, i+1))
			put(fmt.Sprintf("%d repeated", i), slices.Insert(slices.Clone(v), i, v[i]))
			if i > 0 {
				swapped := slices.Clone(v)
				swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
				put(fmt.Sprintf("%d swapped", i), swapped)
			}
			for _, c := range changes(v[i]) {
				changed := slices.Clone(v)
				changed[i] = c.data
				put(fmt.Sprintf("%d.%s", i, c.place), changed)
			}
		}
	case string:
		for _, text := range otherTexts(v) {
			put(fmt.Sprintf("text %.60q", text), text)
		}
	case json.Number:
		put("number", json.Number(v.String()+"1"))
		put("zero", json.Number("0"))
	default:
		put("value", map[string]any{})
	}
	return all
}

// otherTexts returns texts that differ from a text in a few ways.
func otherTexts(text string) []string {
	other := []string{text + " ", ""}
	if text != "" {
		last := []byte(text)
		last[len(last)-1] ^= 1
		other = append(other, string(last), text[:len(text)-1])
	}
	for _, swap := range [][2]string{{"allow", "deny"}, {"succeeded", "failed"}, {"kept", "missing"}, {"kept", "pruned"}, {"user", "rule"}, {"end", "late"}, {"true", "false"}} {
		if strings.Contains(text, swap[0]) {
			other = append(other, strings.Replace(text, swap[0], swap[1], 1))
		}
	}
	return other
}

// unverifiable matches the places of the values that the store does not have.
var unverifiable = regexp.MustCompile(`^(program\.|made\.|head\.position\.|events\.[0-9]+\.position\.|outputs\.[0-9]+\.state\.text "(missing|unreachable)")`)

// Each changed value of a receipt is found, also if the digests fit the change, except those
// that the store does not have.
func TestEachChangedValueOfAReceiptIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 33, 120, unpruned)
	_, data := prove(t, w.Store, w.richCall(t))
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	found, sealed, free := 0, 0, 0
	for _, c := range changes(tree) {
		changed, err := json.Marshal(c.data)
		if err != nil {
			t.Fatal(err)
		}
		if verdict(t, w, changed) == "" {
			t.Errorf("%s: the changed receipt verifies", c.place)
		}
		found++
		again, ok := resealed(t, changed)
		if !ok || bytes.Equal(again, data) { // such as another receipt_sha256
			continue
		}
		switch verdict := verdict(t, w, again); {
		case unverifiable.MatchString(c.place):
			free++
		case verdict == "":
			t.Errorf("%s: the changed receipt with digests that fit verifies", c.place)
		default:
			sealed++
		}
	}
	if found < 300 || sealed < 100 || free < 10 {
		t.Errorf("%d changes, %d of them with digests that fit, and %d that the store does not have", found, sealed, free)
	}
}

// Each changed byte of a receipt is found, unless the JSON value stays the same.
func TestEachChangedByteOfAReceiptIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 33, 120, unpruned)
	_, data := prove(t, w.Store, w.richCall(t))
	canonical := func(data []byte) string {
		v := jsontext.Value(bytes.Clone(data))
		if v.Canonicalize() != nil {
			return ""
		}
		return string(v)
	}
	same, step := 0, 13
	if length(1) > 1 {
		step = 1
	}
	for i := 0; i < len(data); i += step {
		for _, flip := range []byte{1, 0x20, 0x80} {
			changed := bytes.Clone(data)
			changed[i] ^= flip
			if verdict(t, w, changed) != "" {
				continue
			}
			if canonical(changed) != canonical(data) {
				t.Errorf("byte %d from %q to %q: the changed receipt verifies", i, data[i], changed[i])
			}
			same++
		}
	}
	if same > len(data)/step {
		t.Errorf("%d changes of %d bytes are changes of spaces", same, len(data))
	}
}

// Each change of the store in the events of a call up to the head of its receipt is found, with
// its place: a changed, removed, replaced or added record, and two that changed places.
func TestEachChangeOfTheStoreIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 33, 120, unpruned)
	key := w.richCall(t)
	r, _ := prove(t, w.Store, key)
	stream, records := events.SessionStream(key.Session), recordsOf(t, w.history)
	places := []int{} // of the records of the session
	for i, p := range records {
		if p.Stream == stream {
			places = append(places, i)
		}
	}
	alter := func(at int, do func(*events.Record)) []placed {
		changed := slices.Clone(records)
		changed[at].Data, changed[at].Metadata = bytes.Clone(changed[at].Data), bytes.Clone(changed[at].Metadata)
		do(&changed[at].Record)
		return changed
	}
	type altered struct {
		name    string
		records []placed
		says    string // a finding at the revision of the event says so
	}
	for i, e := range r.Events {
		at := places[e.Revision-1]
		all := []altered{
			{"another ID", alter(at, func(r *events.Record) { r.ID = w.Ledger.Mint().Event() }), `event is "`},
			{"another kind", alter(at, func(r *events.Record) { r.Kind = "PromptAdmitted" }), `kind is "`},
			{"an unknown kind", alter(at, func(r *events.Record) { r.Kind = "Unheard" }), `no event of the call`},
			{"another version", alter(at, func(r *events.Record) { r.Version = 77 }), `version is "`},
			{"another time", alter(at, func(r *events.Record) { r.Time = r.Time.Add(1000) }), `time is "`},
			{"other data", alter(at, func(r *events.Record) { r.Data = bytes.Replace(r.Data, []byte(`":"`), []byte(`": "`), 1) }), `data differ from byte`},
			{"data that do not decode", alter(at, func(r *events.Record) { r.Data[0] = '[' }), `does not decode`},
			{"other metadata", alter(at, func(r *events.Record) { r.Metadata = append(r.Metadata, ' ') }), `metadata differ from byte`},
			{"no record", slices.Delete(slices.Clone(records), at, at+1), ""},
			{"the record twice", slices.Insert(slices.Clone(records), at, placed{stream, events.Record{
				ID: w.Ledger.Mint().Event(), Kind: e.Kind, Version: e.Version, Time: records[at].Time, Data: records[at].Data, Metadata: records[at].Metadata,
			}}), `event is "`},
		}
		if i > 0 {
			swapped := slices.Clone(records)
			before := places[r.Events[i-1].Revision-1]
			swapped[before].Record, swapped[at].Record = swapped[at].Record, swapped[before].Record
			all = append(all, altered{"the record before", swapped, `event is "`})
		}
		for _, a := range all {
			report, err := Check(t.Context(), newStore(t, a.records, w.outs), r, Options{Bytes: true})
			if err != nil || len(report.Differences) == 0 {
				t.Errorf("%s in place of %s: Check = %+v, %v, want a difference", a.name, e.Kind, report, err)
				continue
			}
			place := fmt.Sprintf("revision %d of %s", e.Revision, stream)
			if !slices.ContainsFunc(report.Differences, func(f Discrepancy) bool {
				return strings.Contains(f.Place, place) && strings.Contains(f.Detail, a.says)
			}) {
				t.Errorf("%s in place of %s: no difference at %s says %q: %+v", a.name, e.Kind, place, a.says, report.Differences)
			}
		}
	}
	for name, changed := range map[string][]placed{
		"the last event of the session": alter(places[r.Head.Revision-1], func(r *events.Record) { r.ID = w.Ledger.Mint().Event() }),
		"the end of the session":        slices.Delete(slices.Clone(records), places[r.Head.Revision-1], places[r.Head.Revision-1]+1),
		"the first record":              alter(0, func(r *events.Record) { r.Metadata = append(r.Metadata, ' ') }),
	} {
		report, err := Check(t.Context(), newStore(t, changed, w.outs), r, Options{Bytes: true})
		if err != nil || len(report.Differences) == 0 {
			t.Errorf("without %s: Check = %+v, %v, want a difference", name, report, err)
		}
	}
	for name, changed := range map[string][]placed{
		"an empty store":        nil,
		"another store":         alter(0, func(r *events.Record) { r.ID = w.Ledger.Mint().Event() }),
		"a store of other work": slices.DeleteFunc(slices.Clone(records), func(p placed) bool { return p.Stream == stream }),
	} {
		if _, err := Check(t.Context(), newStore(t, changed, w.outs), r, Options{Bytes: true}); !errors.Is(err, ErrOtherStore) {
			t.Errorf("%s: Check = %v, want ErrOtherStore", name, err)
		}
	}
}

// A receipt that contradicts itself is found without the store, and the finding names the member.
func TestAReceiptThatContradictsItselfIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 33, 120, unpruned)
	key := w.richCall(t)
	for _, row := range []struct {
		change      func(*Receipt)
		place, says string
	}{
		{func(r *Receipt) { r.Events[1].SHA256 = strings.Repeat("0", 64) }, "events[1]", "the record has the SHA-256"},
		{func(r *Receipt) { r.Events[0].Role = calls.LateRole }, "events[0]", `it is the offer of the call, and the receipt says "late"`},
		{func(r *Receipt) { r.Events[0].Stream = "session-x" }, "events[0]", "it is of the stream session-x"},
		{func(r *Receipt) { r.Head.Revision = 1 }, "events[0]", "is after the head 1"},
		{func(r *Receipt) { r.Outputs[0].Bytes++ }, "outputs[0]", "the settlement in events["},
		{func(r *Receipt) { r.Outputs = []NamedOutput{} }, "outputs[0]", "is missing, which the settlement"},
		{func(r *Receipt) { r.Outputs = append(r.Outputs, r.Outputs[0]) }, "outputs[1]", "is no output that the settlement"},
		{func(r *Receipt) { r.Program.Version = "v2" }, "receipt_sha256", "it was changed after it was made"},
	} {
		r, data := prove(t, w.Store, key)
		row.change(r)
		changed, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if row.place == "receipt_sha256" {
			changed = bytes.Replace(data, []byte(`"v1"`), []byte(`"v2"`), 1)
		}
		if r, err = Read(bytes.NewReader(changed)); err != nil {
			t.Fatal(err)
		}
		c := &storeComparison{Report: &Report{}, receipt: r}
		c.checkSeal()
		c.checkEvents()
		c.checkRetained()
		if !slices.ContainsFunc(c.Differences, func(f Discrepancy) bool {
			return strings.HasPrefix(f.Place, row.place) && strings.Contains(f.Detail, row.says)
		}) {
			t.Errorf("no difference at %s says %q: %+v", row.place, row.says, c.Differences)
		}
	}
}

// An output with other bytes, and one that no event prunes and the store lacks, are differences.
// Make refuses an output whose bytes are not those of its settlement.
func TestEachChangeOfAnOutputIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 33, 120, unpruned)
	key := w.richCall(t)
	r, _ := prove(t, w.Store, key)
	for text, want := range map[string]string{"": "does not have it", "other bytes": "the store has output://"} {
		outs, err := outputs.Open(t.TempDir(), outputs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if _, err := outs.Keep(t.Context(), r.Outputs[0].Ref, r.Outputs[0].MIME, strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
		changed := newStore(t, recordsOf(t, w.history), outs)
		report := check(t, changed, r)
		if len(report.Differences) != 1 || !strings.HasPrefix(report.Differences[0].Place, "outputs[0]") || !strings.Contains(report.Differences[0].Detail, want) {
			t.Errorf("with the output %q: differences %+v, want that %q", text, report.Differences, want)
		}
		made, err := Make(t.Context(), changed, key, Program{"ledger", "v1"}, w.Ledger.Now())
		if text != "" && !errors.Is(err, outputs.ErrDamaged) || text == "" && (err != nil || made.Outputs[0].State != Missing) {
			t.Errorf("with the output %q: Make = %+v, %v", text, made, err)
		}
		if err := outs.Close(); err != nil {
			t.Error(err)
		}
	}
	none := key
	none.Call = "call_of_nobody"
	none.Message = w.Ledger.Mint().Message()
	if _, err := Make(t.Context(), w.Store, none, Program{"ledger", "v1"}, w.Ledger.Now()); !errors.Is(err, ErrNoCall) {
		t.Errorf("Make of a call without an event = %v, want ErrNoCall", err)
	}
	if _, err := Make(t.Context(), w.Store, calls.Key{Session: domain.SessionID{}}, Program{}, w.Ledger.Now()); !errors.Is(err, ErrNoCall) {
		t.Errorf("Make of no session = %v, want ErrNoCall", err)
	}
}
