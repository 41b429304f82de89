package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// childVariable is an environment variable. If it is set, the test binary runs main,
// so that a benchmark can start the binary as the child process of a task.
const childVariable = "LEDGER_TEST_BENCH_CHILD"

// TestMain runs main in a child process. In the test process it sets childVariable
// for the children and runs the tests.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
	}
	os.Setenv(childVariable, "1")
	os.Exit(m.Run())
}

// Each row of a peer is measured for one short round. The tests of the parent module
// cannot do this, because it does not depend on the peers. The ratios are not
// checked.
func TestEveryRowWithAPeerRuns(t *testing.T) {
	t.Parallel()
	only := regexp.MustCompile(`^(append-64-|cpu-|scan-)`)
	config := bench.Config{Dir: t.TempDir(), Child: []string{os.Args[0], "child"}, Only: only}.Quick()
	config.Rounds = 1
	report, err := bench.Run(t.Context(), table(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range report.Unmeasured() {
		t.Error(err)
	}
	measured := map[string]bool{}
	for _, r := range report.Results {
		measured[r.ID] = true
	}
	for id := range goals {
		if !measured[id] {
			t.Errorf("%s was not measured", id)
		}
	}
}

// goals maps the ID of each row of a peer to the text of its goal.
var goals = map[string]string{
	"append-64-sqlite": "≥ 10", "append-64-sqlite-grouped": "≥ 1.3",
	"append-64-nats": "≥ 10", "append-64-bbolt": "≥ 1.3", "append-64-bbolt-floor": "floor", "append-64-bbolt-default": "≥ 10", "append-64-badger": "≥ 10",
	"cpu-64": "≤ 2", "scan-headers": "≥ 0.7", "scan-owned-copied": "≥ 0.8", "scan-owned-floor": "floor", "scan-lent": "≥ 0.6", "scan-sqlite": "≥ 2.5", "scan-nats": "≥ 5", "scan-nats-floor": "floor",
}

// The table is valid, and its rows of peers have exactly the IDs and goals of goals.
func TestTheWholeTableHasTheGoals(t *testing.T) {
	t.Parallel()
	if err := table().Valid(); err != nil {
		t.Fatal(err)
	}
	added := peers().Rows
	for _, r := range added {
		if want, ok := goals[r.ID]; !ok || r.Goal.String() != want {
			t.Errorf("the goal of %s is %s, want %q", r.ID, r.Goal, want)
		}
	}
	if len(added) != len(goals) {
		t.Errorf("the peers add %d rows, want %d", len(added), len(goals))
	}
}
