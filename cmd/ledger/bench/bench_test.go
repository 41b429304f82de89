package bench_test

import (
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

func TestEveryRowOfTheTableRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := bench.Config{Dir: dir, Child: []string{os.Args[0]}}.Quick()
	config.Rounds = 1
	report, err := bench.Run(t.Context(), bench.Own(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range report.Unmeasured() {
		t.Error(err)
	}
	if got, want := len(report.Results), len(bench.Own().Rows); got != want {
		t.Errorf("the report has %d rows, want the %d of the table", got, want)
	}
	for _, r := range report.Results {
		if len(r.Rounds) != 1 || r.Rounds[0].Ours <= 0 && r.ID != "memory-caches" {
			t.Errorf("%s has rounds %v, want one in which ours did something", r.ID, r.Rounds)
		}
	}
	if got := len(report.Limits()); got != 4 {
		t.Errorf("Limits() = %q, want a sentence each for the disk, one writer, many, and a rebuild", report.Limits())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("a run leaves %v behind, %v", left, err)
	}
}

// goals are those of the issue that the table answers, less the peers'.
var goals = map[string]string{
	"append-1": "≥ 0.9", "append-64": "≥ 0.8", "append-256": "≥ 0.5", "append-64-p99": "≤ 2",
	"append-64-flat": "≥ 0.4", "append-256-flat": "≥ 0.33", "append-64-flat-p99": "≤ 4.5",
	"append-64-flat-floor": "floor", "append-256-flat-floor": "floor", "append-64-flat-p99-floor": "floor",
	"settle-1": "≤ 2.3", "settle-64": "≤ 2.6", "settle-64-floor": "floor",
	"bytes-written": "≤ 2.5", "bytes-resting": "≤ 2.5",
	"rebuild-1": "≥ 0.25", "rebuild-all": "≥ 0.35", "rebuild-no-text": "≥ 0.7",
	"follow-1": "≤ 1.2", "follow-1000": "≤ 10",
	"open-closed": "≤ 2", "open-killed": "≤ 2",
	"output-64KiB": "≥ 1.6", "output-1MiB": "≥ 0.8", "output-16MiB": "≥ 0.45", "output-256MiB": "≥ 0.4",
	"append-beside-output": "≤ 3",
	"memory-append":        "≤ 256", "memory-follow": "≤ 256", "memory-rebuild": "≤ 256", "memory-output": "≤ 256", "memory-caches": "≤ 64",
}

func TestTheTableHasTheGoals(t *testing.T) {
	t.Parallel()
	table := bench.Own()
	if err := table.Valid(); err != nil {
		t.Fatal(err)
	}
	for _, r := range table.Rows {
		if want, ok := goals[r.ID]; !ok || r.Goal.String() != want {
			t.Errorf("the goal of %s is %s, want %q", r.ID, r.Goal, want)
		}
	}
	if len(table.Rows) != len(goals) {
		t.Errorf("the table has %d rows, want %d", len(table.Rows), len(goals))
	}
}

// given returns what opens a contestant that gives these rates, one a round,
// and fails behind them.
func given(rates ...float64) func(context.Context, *bench.Ground) (bench.Rig, error) {
	return func(context.Context, *bench.Ground) (bench.Rig, error) {
		return bench.NewRig(func(context.Context) (bench.Sample, error) {
			if len(rates) == 0 {
				return nil, errTired
			}
			rate := rates[0]
			rates = rates[1:]
			return bench.Sample{bench.Rate: rate}, nil
		}, nil), nil
	}
}

var errTired = errors.New("tired")

// race returns a table of one row, with the rates of ours and of theirs.
func race(goal bench.Goal, ours, theirs []float64) bench.Suite {
	return bench.Suite{
		Trials: []bench.Trial{{Name: "race", Contestants: []bench.Contestant{
			{Name: "us", Open: given(ours...)}, {Name: "them", Open: given(theirs...)},
		}}},
		Rows: []bench.Row{{
			ID: "race", Measure: "speed", Against: "them", Trial: "race",
			Ours: bench.Score{Contestant: "us", Reading: bench.Rate}, Theirs: bench.Score{Contestant: "them", Reading: bench.Rate}, Goal: goal,
		}},
	}
}

func run(t *testing.T, table bench.Suite, rounds int) bench.Result {
	t.Helper()
	report, err := bench.Run(t.Context(), table, bench.Config{Dir: t.TempDir(), Rounds: rounds, Scale: 0.001})
	if err != nil || len(report.Results) != 1 {
		t.Fatalf("Run = %v, %v, want one result", report.Results, err)
	}
	return report.Results[0]
}

func TestAVerdictIsOfTheMedianOfTheRatiosOfEachRound(t *testing.T) {
	t.Parallel()
	ours, theirs := []float64{10, 90, 20, 40, 50}, []float64{10, 30, 40, 10, 10} // ratios 1, 3, 0.5, 4, 5
	for _, c := range []struct {
		goal    bench.Goal
		rounds  int
		median  float64
		verdict string
	}{
		{bench.AtLeast(3), 5, 3, "✓"}, {bench.AtLeast(3.1), 5, 3, "✗"},
		{bench.AtMost(3), 5, 3, "✓"}, {bench.AtMost(2.9), 5, 3, "✗"},
		{bench.AtLeast(2), 4, 2, "✓"}, // between 1 and 3
	} {
		r := run(t, race(c.goal, ours, theirs), c.rounds)
		least, greatest := r.Spread()
		if r.Measured() != c.median || r.Verdict() != c.verdict || least != 0.5 || greatest != []float64{4: 4, 5: 5}[c.rounds] {
			t.Errorf("%d rounds against %s: median %v, spread %v to %v, verdict %s, want median %v, spread from 0.5, verdict %s",
				c.rounds, c.goal, r.Measured(), least, greatest, r.Verdict(), c.median, c.verdict)
		}
	}
}

func TestAContestantThatFailsHasNoVerdict(t *testing.T) {
	t.Parallel()
	for _, table := range []bench.Suite{
		race(bench.AtLeast(1), []float64{1, 1}, []float64{1}),
		race(bench.AtLeast(1), []float64{1}, []float64{1, 1}),
	} {
		if r := run(t, table, 2); r.Verdict() != "–" || !errors.Is(r.Err, errTired) {
			t.Errorf("verdict %s, error %v, want none for the reason that one was tired", r.Verdict(), r.Err)
		}
	}
	if r := run(t, race(bench.AtMost(9), []float64{1}, []float64{0}), 1); r.Verdict() != "–" || r.Err == nil {
		t.Errorf("against nothing: verdict %s, error %v, want no verdict", r.Verdict(), r.Err)
	}
}

func TestContestantsTakeTurnsAtGoingFirst(t *testing.T) {
	t.Parallel()
	var order []string
	noted := func(name string) bench.Contestant {
		return bench.Contestant{Name: name, Open: func(context.Context, *bench.Ground) (bench.Rig, error) {
			return bench.NewRig(func(context.Context) (bench.Sample, error) {
				order = append(order, name)
				return bench.Sample{bench.Rate: 1}, nil
			}, func() error { order = append(order, "close "+name); return nil }), nil
		}}
	}
	table := race(bench.AtLeast(1), nil, nil)
	table.Trials[0].Contestants = []bench.Contestant{noted("us"), noted("idle"), noted("them")}
	run(t, table, 3)
	if got, want := strings.Join(order, " "), "us them them us us them close us close them"; got != want {
		t.Errorf("they ran as %q, want %q, and who is in no row not at all", got, want)
	}
}

func TestATrialThatIsOverItsTimeHasOneRound(t *testing.T) {
	t.Parallel()
	report, err := bench.Run(t.Context(), race(bench.AtLeast(1), []float64{1, 1}, []float64{1, 1}),
		bench.Config{Dir: t.TempDir(), Rounds: 2, Scale: 0.001, Time: time.Nanosecond})
	if err != nil || len(report.Results[0].Rounds) != 1 {
		t.Errorf("Run = %v, %v, want one round", report.Results, err)
	}
}

func TestATableThatCannotBeMeasuredIsRefused(t *testing.T) {
	t.Parallel()
	good := race(bench.AtLeast(1), nil, nil)
	for name, spoil := range map[string]func(*bench.Suite){
		"an ID twice":         func(b *bench.Suite) { b.Rows = append(b.Rows, b.Rows[0]) },
		"no ID":               func(b *bench.Suite) { b.Rows[0].ID = "" },
		"no words":            func(b *bench.Suite) { b.Rows[0].Against = "" },
		"no goal":             func(b *bench.Suite) { b.Rows[0].Goal = bench.Goal{} },
		"no such trial":       func(b *bench.Suite) { b.Rows[0].Trial = "walk" },
		"no such contestant":  func(b *bench.Suite) { b.Rows[0].Ours.Contestant = "he" },
		"theirs is not there": func(b *bench.Suite) { b.Rows[0].Theirs.Contestant = "he" },
		"nothing is read":     func(b *bench.Suite) { b.Rows[0].Ours.Reading = 0 },
	} {
		bad := bench.Suite{Trials: good.Trials, Rows: slices.Clone(good.Rows)}
		spoil(&bad)
		if _, err := bench.Run(t.Context(), bad, bench.Config{Dir: t.TempDir()}); !errors.Is(err, bench.ErrBadTable) {
			t.Errorf("%s: Run = %v, want ErrBadTable", name, err)
		}
	}
	if _, err := bench.Run(t.Context(), good, bench.Config{Dir: t.TempDir(), Only: regexp.MustCompile("none")}); !errors.Is(err, bench.ErrBadTable) {
		t.Errorf("no row: Run = %v, want ErrBadTable", err)
	}
}

func TestNothingIsMeasuredWhereItCouldHarm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := race(bench.AtLeast(1), nil, nil)
	if _, err := bench.Run(t.Context(), table, bench.Config{Dir: dir, Scale: 1e9}); !errors.Is(err, bench.ErrNoSpace) {
		t.Errorf("on a disk that is too small: Run = %v, want ErrNoSpace", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "FORMAT"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Run(t.Context(), table, bench.Config{Dir: dir}); !errors.Is(err, bench.ErrOccupied) {
		t.Errorf("in a store: Run = %v, want ErrOccupied", err)
	}
}

func TestAnInterruptedRunReportsHowFarItCame(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	table := race(bench.AtLeast(1), []float64{1, 1}, []float64{1, 1})
	first := table.Trials[0].Contestants[0].Open
	table.Trials[0].Contestants[0].Open = func(ctx context.Context, g *bench.Ground) (bench.Rig, error) {
		cancel(stop)
		return first(ctx, g)
	}
	dir := t.TempDir()
	report, err := bench.Run(ctx, table, bench.Config{Dir: dir})
	if !errors.Is(err, stop) || len(report.Results) != 1 {
		t.Errorf("Run = %v, %v, want the row and the cause", report.Results, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("an interrupted run leaves %v behind, %v", left, err)
	}
}

func TestAReportIsWrittenAsTableAndCSV(t *testing.T) {
	t.Parallel()
	report, err := bench.Run(t.Context(), race(bench.AtLeast(0.9), []float64{95, 250}, []float64{100, 1000}),
		bench.Config{Dir: t.TempDir(), Rounds: 2, Scale: 0.001})
	if err != nil {
		t.Fatal(err)
	}
	var table, lines strings.Builder
	if err := errors.Join(report.WriteTable(&table), report.WriteCSV(&lines)); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^race +speed +them +172 /s +550 /s +≥ 0\.9 +0\.60 +0\.25–0\.95 +✗$`)
	if !want.MatchString(table.String()) || !strings.Contains(table.String(), "1 rows, 1 measured, 0 goals met") {
		t.Errorf("the table is\n%swant a line like %s", table.String(), want)
	}
	got, err := csv.NewReader(strings.NewReader(lines.String())).ReadAll()
	if err != nil || !slices.EqualFunc(got, [][]string{
		{"row", "round", "ours", "theirs", "unit", "ratio", "goal"},
		{"race", "1", "95", "100", "/s", "0.95", ">=0.9"},
		{"race", "2", "250", "1000", "/s", "0.25", ">=0.9"},
	}, slices.Equal) {
		t.Errorf("the CSV is %v, %v", got, err)
	}
}

func TestACommandListsItsRows(t *testing.T) {
	t.Parallel()
	var out, told strings.Builder
	if code := bench.Command(t.Context(), bench.Own(), []string{"bench", "-list"}, &out, &told); code != 0 {
		t.Fatalf("Command(-list) = %d: %s", code, told.String())
	}
	for id, goal := range goals {
		if !regexp.MustCompile(`(?m)^` + id + ` +` + goal + ` `).MatchString(out.String()) {
			t.Errorf("-list has no line for %s with %s", id, goal)
		}
	}
	for _, bad := range [][]string{{"-only", "("}, {"-rounds", "many"}, {"stray"}} {
		if code := bench.Command(t.Context(), bench.Own(), append([]string{"bench"}, bad...), &out, &told); code != 2 {
			t.Errorf("Command(%q) = %d, want 2", bad, code)
		}
	}
}

func TestNothingIsSetUpThatNoRowAskedForNeeds(t *testing.T) {
	t.Parallel()
	suite := race(bench.AtLeast(1), []float64{1}, []float64{1})
	other := race(bench.AtLeast(1), nil, nil)
	other.Trials[0].Name, other.Rows[0].ID, other.Rows[0].Trial = "walk", "walk", "walk"
	for i := range other.Trials[0].Contestants {
		other.Trials[0].Contestants[i].Open = func(context.Context, *bench.Ground) (bench.Rig, error) {
			t.Error("a contestant of another trial is set up")
			return nil, errTired
		}
	}
	report, err := bench.Run(t.Context(), suite.With(other), bench.Config{Dir: t.TempDir(), Rounds: 1, Scale: 0.001, Only: regexp.MustCompile("race")})
	if err != nil || len(report.Results) != 1 {
		t.Errorf("Run = %v, %v, want the row that Only selects", report.Results, err)
	}
}

func TestReadingNothingIsNoRate(t *testing.T) {
	t.Parallel()
	if s, err := bench.RateOf(0, time.Second); err == nil {
		t.Errorf("RateOf(0) = %v, want an error", s)
	}
}
