package main

import (
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/verify"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// verify distinguishes the records of other clients in a database: it counts records of
// unknown kinds, reports damaged records of known kinds as exceptions with their
// positions, and continues after each.
func TestVerifyTellsWhatOthersWroteIntoADatabase(t *testing.T) {
	t.Parallel()
	at, store := serveStore(t, server.Config{Writable: []string{""}})
	config, err := esdb.ParseConnectionString(at)
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = esdb.NoopLogging()
	theirs, err := esdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	const (
		session = "session-ses_01HQWY5DF89BEGSP3JEKB7116A"
		asOurs  = `{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"},"who":"they"}` // without it the server refuses the append
	)
	write := func(stream, kind, data, metadata string) {
		t.Helper()
		e := esdb.EventData{EventType: kind, ContentType: esdb.ContentTypeBinary, Data: []byte(data), Metadata: []byte(metadata)}
		if _, err := theirs.AppendToStream(t.Context(), stream, esdb.AppendToStreamOptions{}, e); err != nil {
			t.Fatalf("append %s to %s: %v", kind, stream, err)
		}
	}
	write("shop-1", "OrderPlaced", `{"order":1}`, "")
	write(session, "SessionOpened", `{"agent":`, asOurs)
	write(session, "CallSettled", `{"call":7}`, asOurs)
	write(session, "Unheard", "\xff\xfe", asOurs)
	write("shop-1", "Unheard", "\xff\xfe", "\xff")
	write("noise-1", "PromptAdmitted", ``, "")
	node := []string{"LEDGER_NODE=" + t.TempDir()}
	got := ledgerWithEnv(t, node, "verify", "--store", at, "-o", "json")
	v := decodeJSON[verify.Report](t, got.out)
	if got.exit != fault.ExitUnverified || v.Events != 6 || v.UnknownKinds["OrderPlaced v1"] != 1 || v.UnknownKinds["Unheard v1"] != 2 || len(v.UnknownKinds) != 2 {
		t.Fatalf("verify = %d %s%s, want 6 events, 3 of kinds that are not known", got.exit, got.out, got.err)
	}
	places := map[string]string{}
	for _, x := range v.Exceptions {
		if x.Stream == nil || x.Position == nil || x.Revision == nil || x.Event == nil {
			t.Fatalf("%+v, want its place", x)
		}
		if x.Law != verify.RecordDecodes {
			continue // for example a session without a SessionOpened
		}
		places[x.Position.String()] = string(*x.Stream)
	}
	want := map[string]string{}
	for e, err := range store.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != "OrderPlaced" && e.Kind != "Unheard" {
			want[e.Position.String()] = string(e.Stream)
		}
	}
	if len(want) != 3 || len(places) != 3 {
		t.Fatalf("exceptions at %v, want %v", places, want)
	}
	for position, stream := range want {
		if places[position] != stream {
			t.Errorf("exceptions at %v, want %v", places, want)
		}
	}
	if page := ledgerWithEnv(t, node, "verify", "--store", at); page.exit != fault.ExitUnverified || !strings.Contains(string(page.out), "a record reads back as it was written") || !strings.Contains(string(page.out), "2 events of kind Unheard v1, which this program does not know.") {
		t.Errorf("verify = %d %s", page.exit, page.out)
	}
	// Commands on calls report the damage too.
	if got := ledgerWithEnv(t, node, "call", "ls", "--store", at); got.exit == 0 || !strings.Contains(string(got.err), "damaged") {
		t.Errorf("call ls = %d %s%s, want it to speak of the damage", got.exit, got.out, got.err)
	}
}
