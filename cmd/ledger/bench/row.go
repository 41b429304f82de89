package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// A Reading is what a sample is read by. The zero Reading is none.
type Reading uint8

// The readings.
const (
	Rate    Reading = iota + 1 // events a second
	Each                       // microseconds of the clock for one of them
	Middle                     // the median of their latencies, in microseconds
	Tail                       // the 99th percentile of their latencies, in microseconds
	CPU                        // microseconds of processor time for one of them
	Flow                       // megabytes a second
	Took                       // milliseconds in all
	Peak                       // mebibytes of memory
	Written                    // bytes for each event that went to the file system
	Resting                    // bytes for each event that the files hold at the end
	Payload                    // bytes of JSON in each event
	Busy                       // processors that were at work, on average
	Syncing                    // share of the clock that was spent in syncs
)

var units = [...]string{
	Rate: "/s", Each: "µs", Middle: "µs", Tail: "µs", CPU: "µs", Flow: "MB/s", Took: "ms", Peak: "MiB",
	Written: "B", Resting: "B", Payload: "B", Busy: "cores", Syncing: "of 1",
}

// Unit returns what the numbers of r count.
func (r Reading) Unit() string { return units[r] }

// A Sample is what a contestant did in one round.
type Sample map[Reading]float64

// A Goal bounds a ratio. The zero Goal is not valid.
type Goal struct {
	bound float64
	most  bool
}

// AtLeast is the goal of a ratio that is the better the greater it is.
func AtLeast(bound float64) Goal { return Goal{bound, false} }

// AtMost is the goal of a ratio that is the better the smaller it is.
func AtMost(bound float64) Goal { return Goal{bound, true} }

// Met reports whether a ratio reaches the goal.
func (g Goal) Met(ratio float64) bool {
	if g.most {
		return ratio <= g.bound
	}
	return ratio >= g.bound
}

// String returns the goal as a person writes it: ≥ 0.9.
func (g Goal) String() string {
	sign := "≥ "
	if g.most {
		sign = "≤ "
	}
	return sign + g.number()
}

// plain returns the goal in ASCII: >=0.9.
func (g Goal) plain() string {
	sign := ">="
	if g.most {
		sign = "<="
	}
	return sign + g.number()
}

func (g Goal) number() string { return strconv.FormatFloat(g.bound, 'f', -1, 64) }

// A Score is a reading of a contestant. The zero Score is none.
type Score struct {
	Contestant string
	Reading    Reading
}

// A Row is one line of the table.
type Row struct {
	ID      string // unique, for ever: CSV files of different days are compared by it
	Measure string
	Against string
	Trial   string // where it is measured
	Ours    Score
	Theirs  Score // zero: the measure is that of ours, and no ratio
	Goal    Goal
}

// A Table is what Run measures.
type Table struct {
	Trials []Trial
	Rows   []Row
}

// With returns a table of both. A trial that both have gets the contestants of
// both.
func (t Table) With(more Table) Table {
	sum := Table{Trials: slices.Clone(t.Trials), Rows: slices.Concat(t.Rows, more.Rows)}
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

// ErrBadTable says that a table cannot be measured as it is.
var ErrBadTable = errors.New("table is not valid")

// Valid returns an ErrBadTable that says what is wrong with t, or nil: a row
// has an ID that no other has, words, a goal, and contestants that there are.
func (t Table) Valid() error {
	seen := map[string]bool{}
	for _, r := range t.Rows {
		switch {
		case r.ID == "" || seen[r.ID]:
			return fmt.Errorf("%w: the ID %q is empty or there twice", ErrBadTable, r.ID)
		case r.Measure == "" || r.Against == "":
			return fmt.Errorf("%w: %s does not say what it measures against what", ErrBadTable, r.ID)
		case r.Goal.bound <= 0:
			return fmt.Errorf("%w: %s has no goal", ErrBadTable, r.ID)
		case !t.has(r.Trial, r.Ours) || r.Theirs != Score{} && !t.has(r.Trial, r.Theirs):
			return fmt.Errorf("%w: %s compares contestants that trial %q does not have", ErrBadTable, r.ID, r.Trial)
		}
		seen[r.ID] = true
	}
	return nil
}

func (t Table) has(trial string, s Score) bool {
	return s.Reading != 0 && slices.ContainsFunc(t.Trials, func(have Trial) bool {
		return have.Name == trial && slices.ContainsFunc(have.Contestants, func(c Contestant) bool { return c.Name == s.Contestant })
	})
}
