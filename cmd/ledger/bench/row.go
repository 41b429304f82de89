package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// A Reading is a quantity in a sample. The zero Reading means no reading.
type Reading uint8

// The readings.
const (
	Rate    Reading = iota + 1 // events per second
	Each                       // elapsed microseconds per event or call
	Middle                     // median latency in microseconds
	Tail                       // 99th percentile of the latencies in microseconds
	CPU                        // microseconds of processor time per event
	Flow                       // megabytes (10^6 bytes) per second
	Took                       // milliseconds of one operation
	Peak                       // mebibytes of memory
	Written                    // bytes per event given to the file system
	Resting                    // bytes per event in the files at the end
	Payload                    // bytes of JSON per event
	Busy                       // average number of busy processors
	Syncing                    // share of the elapsed time spent in syncs, 0 to 1
)

// units maps each Reading to its unit.
var units = [...]string{
	Rate: "/s", Each: "µs", Middle: "µs", Tail: "µs", CPU: "µs", Flow: "MB/s", Took: "ms", Peak: "MiB",
	Written: "B", Resting: "B", Payload: "B", Busy: "cores", Syncing: "of 1",
}

// unit returns the unit of r, as tables and CSV files print it.
func (r Reading) unit() string { return units[r] }

// A Sample holds the readings of a contestant in one round.
type Sample map[Reading]float64

// A Goal is a bound on a ratio, or Floor. The zero Goal is not valid.
type Goal struct {
	bound float64
	most  bool // the bound is an upper bound
	floor bool // there is no bound
}

// Floor returns the goal of a row without a verdict. Such a row compares two floors, and
// shows how much of the goal of another row can be reached.
func Floor() Goal { return Goal{floor: true} }

// AtLeast returns a goal with a lower bound.
func AtLeast(bound float64) Goal { return Goal{bound: bound} }

// AtMost returns a goal with an upper bound.
func AtMost(bound float64) Goal { return Goal{bound: bound, most: true} }

// met reports whether a ratio reaches the goal.
func (g Goal) met(ratio float64) bool {
	if g.most {
		return ratio <= g.bound
	}
	return ratio >= g.bound
}

// String returns the goal for a table, such as ≥ 0.9, or floor.
func (g Goal) String() string {
	if g.floor {
		return "floor"
	}
	sign := "≥ "
	if g.most {
		sign = "≤ "
	}
	return sign + g.number()
}

// plain returns the goal in ASCII, such as >=0.9, or floor.
func (g Goal) plain() string {
	if g.floor {
		return "floor"
	}
	sign := ">="
	if g.most {
		sign = "<="
	}
	return sign + g.number()
}

// number returns the bound in decimal notation.
func (g Goal) number() string { return strconv.FormatFloat(g.bound, 'f', -1, 64) }

// A Score selects a reading of a contestant. The zero Score selects no reading.
type Score struct {
	Contestant string
	Reading    Reading
}

// A Row is one row of the table.
type Row struct {
	ID      string // unique and permanent, as it identifies the row in CSV files of all versions
	Measure string // description of our side
	Against string // description of the other side
	Trial   string // name of the trial that measures the row
	Ours    Score
	Theirs  Score // zero: the row compares no contestants; the goal bounds our reading
	Goal    Goal
}

// A Suite is the trials and the rows of a benchmark.
type Suite struct {
	Trials []Trial
	Rows   []Row
}

// With returns a suite with the trials and the rows of both suites, t and the parameter
// more. If both suites have a trial of the same name, the result has one trial with the
// contestants of both trials.
func (t Suite) With(more Suite) Suite {
	sum := Suite{Trials: slices.Clone(t.Trials), Rows: slices.Concat(t.Rows, more.Rows)}
	for _, trial := range more.Trials {
		at := slices.IndexFunc(sum.Trials, func(have Trial) bool { return have.Name == trial.Name })
		if at < 0 {
			sum.Trials = append(sum.Trials, trial)
			continue
		}
		sum.Trials[at].Contestants = slices.Concat(sum.Trials[at].Contestants, trial.Contestants)
	}
	return sum
}

// ErrBadTable means that a Suite is not valid, or that Config.Only selects no row of it.
var ErrBadTable = errors.New("table is not valid")

// Valid checks that every row has a unique ID, descriptions, a goal and existing
// contestants. It returns nil, or an ErrBadTable that names the first violation.
func (t Suite) Valid() error {
	seen := map[string]bool{}
	for _, r := range t.Rows {
		switch {
		case r.ID == "" || seen[r.ID]:
			return fmt.Errorf("%w: the ID %q is empty or there twice", ErrBadTable, r.ID)
		case r.Measure == "" || r.Against == "":
			return fmt.Errorf("%w: %s does not say what it measures against what", ErrBadTable, r.ID)
		case r.Goal.bound <= 0 && !r.Goal.floor:
			return fmt.Errorf("%w: %s has no goal", ErrBadTable, r.ID)
		case !t.has(r.Trial, r.Ours) || r.Theirs != Score{} && !t.has(r.Trial, r.Theirs):
			return fmt.Errorf("%w: %s compares contestants that trial %q does not have", ErrBadTable, r.ID, r.Trial)
		}
		seen[r.ID] = true
	}
	return nil
}

// has reports whether t has the trial with this name, that trial has the contestant of
// s, and s selects a reading.
func (t Suite) has(trial string, s Score) bool {
	return s.Reading != 0 && slices.ContainsFunc(t.Trials, func(have Trial) bool {
		return have.Name == trial && slices.ContainsFunc(have.Contestants, func(c Contestant) bool { return c.Name == s.Contestant })
	})
}
