package projectionstest

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/settlement-ledger/ledger/domain/lawtest"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// Every law has one saboteur, rejects it, and accepts the honest tally.
func TestEveryLawRejectsItsSaboteur(t *testing.T) {
	t.Parallel()
	if got, want := len(saboteurs()), len(Laws[*tally]()); got != want {
		t.Errorf("there are %d saboteurs and %d laws", got, want)
	}
	lawtest.TestSuite(t, suite())
}

// Two histories of one seed and length are equal, IDs and times included.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	t.Parallel()
	one, err := json.Marshal(History(7, 200))
	if err != nil {
		t.Fatal(err)
	}
	two, err := json.Marshal(History(7, 200))
	if err != nil {
		t.Fatal(err)
	}
	if string(one) != string(two) {
		t.Error(differ(two, one))
	}
}

// Eight histories of at least 300 events together contain every kind of event that processes,
// layers, turns, calls and permissions record, and an unknown kind.
func TestHistoriesHoldEveryKindOfEvent(t *testing.T) {
	t.Parallel()
	missing := map[string]bool{}
	for _, e := range []events.Event{
		events.ProcessStarted{}, events.ProcessStopped{}, events.LayerOpened{}, events.ToolsRegistered{},
		events.RegistrationClosed{}, events.LayerClosed{}, events.SessionOpened{}, events.PromptAdmitted{},
		events.TurnMaterialized{}, events.ReplyReceived{}, events.CallStarted{}, events.CallSettled{},
		events.LateResultObserved{}, events.PermissionRequested{}, events.PermissionDecided{}, events.ApprovalSaved{},
		events.ApprovalRevoked{}, events.LoopDetected{}, events.OutputPruned{}, events.SessionInterrupted{}, events.SessionClosed{},
		events.Unknown{Name: "WeatherChanged"},
	} {
		missing[e.Kind()] = true
	}
	for seed := range uint64(8) {
		for _, v := range History(seed, 300) {
			delete(missing, v.Event.Kind())
		}
	}
	if len(missing) > 0 {
		t.Errorf("no history holds %v", missing)
	}
}

// A caller checks a law on a projection and a history, which is random or built by hand. This
// projection changes the events that it folds.
func ExampleLaws() {
	broken := projections.Projection[*tally]{Name: "broken", Version: 1, Init: newTally, Apply: amendsTools().Apply}
	for _, law := range Laws[*tally]() {
		if err := law.Check(context.Background(), Subject[*tally]{broken, History(1, 100)}); err != nil {
			os.Stdout.WriteString(law.Name + "\n")
		}
	}
	// Output: the history stays
}
