package main

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// An index of one log is not used for another log that replaces it in the same folder.
func TestAnAnswerOfAnotherLogIsNotBelieved(t *testing.T) {
	t.Parallel()
	store := grownStore(t, 3000)
	if got := ledger(t, store, "call", "ls"); got.exit != 0 {
		t.Fatalf("call ls: exit %d, %s", got.exit, got.err)
	}
	kept, err := os.ReadDir(filepath.Join(store, "index"))
	if err != nil || len(kept) == 0 {
		t.Fatalf("no answers are kept beside the log: %v", err)
	}
	other := grownStore(t, 3000)
	want := ledger(t, other, "session", "ls", "-o", "json")
	noError(t, os.RemoveAll(filepath.Join(store, "log")))
	noError(t, os.RemoveAll(filepath.Join(store, "outputs")))
	copyFolder(t, filepath.Join(other, "log"), filepath.Join(store, "log"))
	if got := ledger(t, store, "session", "ls", "-o", "json"); string(got.out) != string(want.out) || !strings.Contains(string(got.out), "ses_") {
		t.Errorf("session ls of the other log: exit %d, %s%s; want %s", got.exit, got.out, got.err, want.out)
	}
}

// A long session is shown whole, in several tables, and its JSON has each event once.
func TestALongSessionIsShownWhole(t *testing.T) {
	t.Parallel()
	const n = 2500
	store := grownStore(t, n)
	shown := ledger(t, store, "session", "show")
	if got := strings.Count(string(shown.out), "  prompt "); shown.exit != 0 || got != n-1 {
		t.Errorf("session show: exit %d, %d prompts, want %d; %s", shown.exit, got, n-1, shown.err)
	}
	if got := strings.Count(string(shown.out), "WHAT"); got != 3 {
		t.Errorf("session show prints %d tables, want 3", got)
	}
	var session struct {
		Revision int
		Timeline []struct{ Event, Kind string }
	}
	shown = ledger(t, store, "session", "show", "-o", "json")
	noError(t, json.Unmarshal(shown.out, &session))
	seen := map[string]bool{}
	for _, e := range session.Timeline {
		seen[e.Event] = true
	}
	if len(seen) != n || len(session.Timeline) != n || session.Revision != n {
		t.Errorf("the JSON has %d entries of %d events, want %d", len(session.Timeline), len(seen), n)
	}
}

// An event that a newer program wrote is shown with its kind and version, and does not keep
// the rest from being shown.
func TestAnEventOfANewerVersionIsShown(t *testing.T) {
	t.Parallel()
	store := grownStore(t, 1)
	w, err := embedded.Open(t.Context(), store, embedded.Config{})
	noError(t, err)
	l := events.NewLedger(w, domain.NewMint(time.Now, rand.Reader), time.Now)
	session := l.Mint().Session()
	_, err = l.Append(t.Context(), events.SessionStream(session), 0,
		l.Draft(events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}, domain.EventID{}),
		l.Draft(events.Unknown{Name: "FromTomorrow", Version: 7, Data: []byte(`{"x":1}`)}, domain.EventID{}),
		l.Draft(events.PromptAdmitted{Message: l.Mint().Message(), Text: "go on"}, domain.EventID{}))
	noError(t, err)
	noError(t, w.Close())
	wantIn(t, "session show", ledger(t, store, "session", "show").out, "FromTomorrow", "not known to this program, version 7", "go on")
	wantIn(t, "session show --full", ledger(t, store, "session", "show", "--full").out, `"x": 1`, "go on")
	wantIn(t, "session show -o jsonl", ledger(t, store, "session", "show", "-o", "jsonl").out, `"kind":"FromTomorrow"`, `"version":7`)
	wantIn(t, "session show --as-model", ledger(t, store, "session", "show", "--as-model").out, "not known to this program  FromTomorrow", "go on")
	wantIn(t, "session diff", ledger(t, store, "session", "diff", "@last", "@last").out, "FromTomorrow version 7", "✓ same")
}

// grownStore returns the folder of a seeded store with one more session of n events.
func grownStore(t *testing.T, n int) string {
	t.Helper()
	store := newSeededStore(t)
	w, err := embedded.Open(t.Context(), store, embedded.Config{})
	noError(t, err)
	ledger := events.NewLedger(w, domain.NewMint(time.Now, rand.Reader), time.Now)
	session := ledger.Mint().Session()
	drafts := []events.Draft{ledger.Draft(events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}, domain.EventID{})}
	for len(drafts) < n {
		drafts = append(drafts, ledger.Draft(events.PromptAdmitted{Message: ledger.Mint().Message(), Text: "more"}, domain.EventID{}))
	}
	_, err = ledger.Append(t.Context(), events.SessionStream(session), 0, drafts...)
	noError(t, err)
	noError(t, w.Close())
	return store
}
