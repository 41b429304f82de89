package mapping_test

import (
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

// compareFastPath fails the test if readFast accepts custom metadata and gives
// another record than the parser. It reports whether readFast accepts them.
func compareFastPath(t *testing.T, metadata string) bool {
	t.Helper()
	f := mapping.RawEvent{ID: [16]byte{1}, Type: "X", Metadata: []byte(metadata), Created: time.Unix(1, 0)}
	var read, parsed events.Record
	if !mapping.ReadFast(&read, f) {
		return false
	}
	if own, err := mapping.Parse(&parsed, f); err != nil || !own || !same(read, parsed) {
		t.Fatalf("%q is read as %+v and parsed as %+v, %t, %v", metadata, read, parsed, own, err)
	}
	if string(f.Metadata) != metadata {
		t.Fatalf("reading %q made it %q", metadata, f.Metadata)
	}
	return true
}

// readFast accepts the form that FromRecord writes, and gives the same record as the
// parser for all metadata that it accepts.
func TestFastPathAgreesWithTheParser(t *testing.T) {
	t.Parallel()
	const head = `{"$ledger":{"v":3,"t":"2026-01-02T03:04:05.000006Z"}`
	for _, tail := range []string{`}`, `,"a":1}`, `,"$correlationId":"ses_1","b":{"c":[1]}}`, `,"a":1,"a":2}`} {
		if !compareFastPath(t, head+tail) {
			t.Errorf("%s is parsed, and could be read", head+tail)
		}
	}
	for _, odd := range []string{
		head, head + `,}`, head + ` }`, head + `, "a":1}`, head + `,"a":1} `, head + `,"a":1}}`, head + `,"a"}`, head + `,"$ledger":1}`,
		head + `,"\u0024ledger":1}`, head + `,"m":"a$ledger"}`, head + `]`, ` ` + head + `}`,
		`{"$ledger":{"v":03,"t":"2026-01-02T03:04:05.000006Z"}}`, `{"$ledger":{"v":,"t":"2026-01-02T03:04:05.000006Z"}}`,
		`{"$ledger":{"v":65536,"t":"2026-01-02T03:04:05.000006Z"}}`, `{"$ledger":{"v":3,"t":"2026-01-02T03:04:05.000006Z","m":""}}`,
		`{"$ledger":{"v":3,"t":"2026-13-02T03:04:05.000006Z"}}`, `{"$ledger":{"v":3,"t":"`, truncatedTime(head),
	} {
		compareFastPath(t, odd)
	}
}

// truncatedTime is a text that ends within its time.
func truncatedTime(head string) string { return strings.TrimSuffix(head, `Z"}`) }

// FuzzFastPath checks that any custom metadata that readFast accepts give the same
// record as the parser.
func FuzzFastPath(f *testing.F) {
	f.Add(`{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"},"a":1}`)
	f.Add(`{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"}}`)
	f.Fuzz(func(t *testing.T, metadata string) { compareFastPath(t, metadata) })
}
