package projectionstest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

func TestEveryLawRefusesItsSaboteurAndNotTheHonest(t *testing.T) {
	t.Parallel()
	history := History(1, 300)
	laws := Laws[*tally]()
	if got, want := len(saboteurs()), len(laws); got != want {
		t.Errorf("there are %d saboteurs and %d laws", got, want)
	}
	for _, law := range laws {
		if err := law.Check(honest(), history); err != nil {
			t.Errorf("the honest projection is refused: %v", err)
		}
		sabotage, ok := saboteurs()[law.Name]
		if !ok {
			t.Errorf("law %q has no saboteur", law.Name)
			continue
		}
		err := law.Check(sabotage(), history)
		if err == nil || !strings.Contains(err.Error(), law.Sentence) {
			t.Errorf("law %q: Check of its saboteur = %v, want an error with the sentence", law.Name, err)
			continue
		}
		t.Logf("law %s: %s — saboteur caught", law.Name, law.Sentence)
	}
}

func TestReportNamesEveryLaw(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Report(&b); err != nil {
		t.Error(err)
	}
	if got, want := strings.Count(b.String(), "— saboteur caught\n"), len(Laws[*tally]()); got != want {
		t.Errorf("Report writes %d lines, want %d:\n%s", got, want, &b)
	}
}

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

// A projection is checked over a history: by hand, or a random one.
func ExampleLaw_Check() {
	broken := projections.Projection[*tally]{Name: "broken", Version: 1, Init: newTally, Apply: amendsTools().Apply}
	for _, law := range Laws[*tally]() {
		if err := law.Check(broken, History(1, 100)); err != nil {
			os.Stdout.WriteString(law.Name + "\n")
		}
	}
	// Output: the history stays
}
