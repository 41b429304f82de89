package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// newStoreWithCalls returns the folder of a store with one session, whose one reply calls a tool
// with each of the inputs.
func newStoreWithCalls(t *testing.T, tool string, inputs ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now)
	session, turn, message := l.Mint().Session(), l.Mint().Turn(), l.Mint().Message()
	reply := events.ReplyReceived{Turn: turn, Message: message}
	for i, input := range inputs {
		reply.Calls = append(reply.Calls, domain.Call{ID: domain.CallID(fmt.Sprint("call_", i)), Name: tool, Input: json.RawMessage(input)})
	}
	var drafts []events.Draft
	for _, e := range []events.Event{
		events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}},
		events.TurnMaterialized{Turn: turn, Message: message}, reply,
	} {
		drafts = append(drafts, l.Draft(e, domain.EventID{}))
	}
	if _, err := l.Append(t.Context(), events.SessionStream(session), 0, drafts...); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// jsonString returns a text as a JSON string.
func jsonString(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Tables, pages and their JSON show the input of each call, also if it is too long for
// the fold of the calls to hold it. JSON marks a shortened input, and --full prints it
// whole.
func TestListsShowWhatWasCalled(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("much ", 2000)
	store := newStoreWithCalls(t, "write",
		`{"command":"ls -la /etc"}`,
		`{"content":`+jsonString(content)+`,"path":"deep/file.go"}`,
		`"no JSON at all"`,
		`{"list":[`+strings.TrimSuffix(strings.Repeat("123456789,", 1000), ",")+`]}`,
	)
	for _, args := range [][]string{{"call", "ls"}, {"session", "show"}, {"turn", "show"}} {
		shown := string(ledger(t, store, args...).out)
		for _, want := range []string{"ls -la /etc", "deep/file.go", "no JSON at all", `{"list":[123456789`} {
			if !strings.Contains(shown, want) {
				t.Errorf("ledger %v does not show %s:\n%s", args, want, shown)
			}
		}
		if full := string(ledger(t, store, append(args, "--full")...).out); !strings.Contains(full, content) {
			t.Errorf("ledger %v --full does not show the whole content", args)
		}
	}
	type row struct {
		Input     json.RawMessage
		Shortened bool `json:"input_shortened"`
	}
	rows := decodeJSON[[]row](t, ledger(t, store, "call", "ls", "-o", "json").out)
	if len(rows) != 4 {
		t.Fatalf("call ls has %d rows, want 4", len(rows))
	}
	whole := decodeJSON[[]row](t, ledger(t, store, "call", "ls", "--full", "-o", "json").out)
	for i, long := range []bool{false, true, false, true} {
		if rows[i].Shortened != long || len(rows[i].Input) > 2*4096 || !json.Valid(rows[i].Input) {
			t.Errorf("the input of call %d is shortened: %v, %d bytes, want %v", i, rows[i].Shortened, len(rows[i].Input), long)
		}
		if whole[i].Shortened || long && len(whole[i].Input) < 10_000 {
			t.Errorf("with --full the input of call %d has %d bytes and is shortened: %v", i, len(whole[i].Input), whole[i].Shortened)
		}
	}
	shaped := decodeJSON[struct{ Path, Content string }](t, rows[1].Input)
	if shaped.Path != "deep/file.go" || !strings.HasPrefix(shaped.Content, "much much") || !strings.HasSuffix(shaped.Content, "…") {
		t.Errorf("the shortened input is %.300s, want its fields", rows[1].Input)
	}
	timeline := decodeJSON[struct{ Timeline []struct{ Call *row } }](t, ledger(t, store, "session", "show", "-o", "json").out).Timeline
	if last := timeline[len(timeline)-1].Call; last == nil || !last.Shortened {
		t.Errorf("the timeline does not say that an input is shortened")
	}
	if found := ledger(t, store, "event", "ls", "--kind", "ReplyReceived"); !strings.Contains(string(found.out), "[write ls -la /etc]") {
		t.Errorf("event ls shows %s, want what was called", found.out)
	}
}

// No command prints a control sequence, a line break or a bidirectional control
// character that a model wrote.
func TestHostileTextsReachNoTerminal(t *testing.T) {
	t.Parallel()
	evil := "\x1b]0;owned\x07\x1b[2J\u009b31m\r\n\u202egnp.exe\u2066\x00\x7f"
	store := newStoreWithCalls(t, "tool"+evil, `{"command":`+jsonString(evil)+`}`, jsonString(evil), `{`+jsonString(evil)+`:`+jsonString(evil)+`}`)
	for _, args := range [][]string{
		{"call", "ls"}, {"call", "ls", "--tool", strings.ReplaceAll(evil, "\x00", "")}, {"session", "show", "--full"}, {"turn", "show"}, {"event", "ls"},
		{"call", "show", "call_2"}, {"call", "show", "call_"}, {"__complete", "call", "ls", "--tool", ""},
	} {
		shown := ledger(t, store, args...)
		for _, r := range string(shown.out) + string(shown.err) {
			if strings.ContainsRune("\x1b\x07\r\x00\x7f\u009b\u202e\u2066", r) {
				t.Errorf("ledger %q shows %q", args, r)
			}
		}
	}
}
