package main

import (
	"crypto/rand"
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
