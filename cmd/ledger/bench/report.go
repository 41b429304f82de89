package bench

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A pair holds the readings of both sides of a row in one round: Ours, that of the
// contestant in Row.Ours; Theirs, that of the contestant in Row.Theirs; and Ratio, which
// is Ours/Theirs. For a row without Theirs, Ratio is Ours.
type pair struct{ Ours, Theirs, Ratio float64 }

// A Result is a row with its measurements.
type Result struct {
	Row
	Rounds []pair // empty if Err is not nil
	Err    error  // the error of a contestant; nil: measured
}

// Measured returns the median of the ratios, or 0 if the row has no rounds.
func (r Result) Measured() float64 { return median(r.column(func(p pair) float64 { return p.Ratio })) }

// medians returns the median of Ours and the median of Theirs over all rounds. theirs is
// 0 for a row that compares no contestants.
func (r Result) medians() (ours, theirs float64) {
	return median(r.column(func(p pair) float64 { return p.Ours })), median(r.column(func(p pair) float64 { return p.Theirs }))
}

// Spread returns the smallest and the greatest ratio. It panics without rounds.
func (r Result) Spread() (least, greatest float64) {
	ratios := r.column(func(p pair) float64 { return p.Ratio })
	return slices.Min(ratios), slices.Max(ratios)
}

// Verdict returns ✓ if the median reaches the goal, ✗ if it does not, – if the row was
// not measured, and nothing for a measured floor.
func (r Result) Verdict() string {
	switch {
	case r.Err != nil || len(r.Rounds) == 0:
		return "–"
	case r.Goal.floor:
		return ""
	case r.Goal.met(r.Measured()):
		return "✓"
	}
	return "✗"
}

// column returns the value of the function of for each round.
func (r Result) column(of func(pair) float64) []float64 {
	values := make([]float64, len(r.Rounds))
	for i, p := range r.Rounds {
		values[i] = of(p)
	}
	return values
}

// median returns the median of values, the mean of the two middle ones for an even
// number, and 0 for an empty slice. It does not modify values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	switch n := len(sorted); {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	default:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
}

// percentile returns the smallest latency that at least percent of all latencies do
// not exceed, and 0 for an empty slice. It sorts latencies.
func percentile(latencies []time.Duration, percent int) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	return latencies[max(0, (len(latencies)*percent+99)/100-1)]
}

// A Report is the result of a run. Run writes it; a returned Report is read-only.
type Report struct {
	Results []Result
	Began   time.Time
	Took    time.Duration
	Cores   int               // GOMAXPROCS of the run
	Scale   float64           // of counts, sizes and times; 1: the size of the goals
	medians map[Score]float64 // the Contestant of a key is TRIAL/CONTESTANT
}

// note adds to r the results of the rows of a trial, and the medians of all readings of
// the trial.
func (r *Report) note(trial string, entrants []*entrant, rows []Row) {
	for _, row := range rows {
		if row.Trial == trial {
			pairs, err := scores(entrants, row)
			r.Results = append(r.Results, Result{row, pairs, err})
		}
	}
	if r.medians == nil {
		r.medians = map[Score]float64{}
	}
	for _, e := range entrants {
		values := map[Reading][]float64{}
		for _, s := range e.samples {
			for reading, value := range s {
				values[reading] = append(values[reading], value)
			}
		}
		for reading, all := range values {
			r.medians[Score{trial + "/" + e.Name, reading}] = median(all)
		}
	}
}

// median returns the median of a reading of a contestant, and 0 if it was not
// measured.
func (r *Report) median(trial, contestant string, reading Reading) float64 {
	return r.medians[Score{trial + "/" + contestant, reading}]
}

// Unmeasured returns an error for each row that was not measured.
func (r *Report) Unmeasured() (errs []error) {
	for _, result := range r.Results {
		if result.Err != nil {
			errs = append(errs, fmt.Errorf("measure %s: %w", result.ID, result.Err))
		}
	}
	return errs
}

// WriteTable writes the results as a table for a person, followed by the errors of
// unmeasured rows and by sentences that name what limits the store on this machine
// (Limits).
func (r *Report) WriteTable(to io.Writer) error {
	lines := [][]string{{"row", "measure", "against", "ours", "theirs", "goal", "measured", "spread", ""}}
	for _, result := range r.Results {
		lines = append(lines, result.cells())
	}
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s, %d cores, %s", r.Began.Format(time.RFC3339), r.Cores, r.Took.Round(time.Second))
	if r.Scale != 1 {
		fmt.Fprintf(w, ", at %.3g of the size of the goals: the verdicts are not those of the goals", r.Scale)
	}
	fmt.Fprint(w, "\n\n")
	align(w, lines)
	met, measured := 0, 0
	for _, result := range r.Results {
		if result.Verdict() == "✓" {
			met++
		}
		if result.Verdict() != "–" {
			measured++
		}
	}
	fmt.Fprintf(w, "\n%d rows, %d measured, %d goals met\n", len(r.Results), measured, met)
	for _, err := range r.Unmeasured() {
		fmt.Fprintln(w, err)
	}
	for _, sentence := range r.Limits() {
		fmt.Fprintln(w, sentence)
	}
	return w.Flush()
}

// cells returns the cells of a row of the table.
func (r Result) cells() []string {
	if r.Verdict() == "–" {
		return []string{r.ID, r.Measure, r.Against, "", "", r.Goal.String(), "", "", "–"}
	}
	least, greatest := r.Spread()
	ours, theirs := r.medians()
	compared := ""
	if r.Theirs != (Score{}) {
		compared = number(theirs) + " " + r.Theirs.Reading.unit()
	}
	return []string{
		r.ID, r.Measure, r.Against, number(ours) + " " + r.Ours.Reading.unit(), compared,
		r.Goal.String(), number(r.Measured()), number(least) + "–" + number(greatest), r.Verdict(),
	}
}

// number formats a value with at most two decimals, and none from 100 on. A positive
// value below 0.01 keeps two significant digits.
func number(value float64) string {
	switch {
	case value >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	case value >= 0.01 || value <= 0:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
	return strconv.FormatFloat(value, 'g', 2, 64)
}

// align writes lines in columns as wide as their widest cell. The numeric columns, 3
// to 6, are right-aligned.
func align(w io.Writer, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		text := ""
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i >= 3 && i <= 6 {
				text += pad + cell + "  "
			} else {
				text += cell + pad + "  "
			}
		}
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
}

// WriteCSV writes each round of each row in the format of the package documentation.
func (r *Report) WriteCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	exact := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	lines := [][]string{{"row", "round", "ours", "theirs", "unit", "ratio", "goal"}}
	for _, result := range r.Results {
		for i, p := range result.Rounds {
			theirs := ""
			if result.Theirs != (Score{}) {
				theirs = exact(p.Theirs)
			}
			lines = append(lines, []string{
				result.ID, strconv.Itoa(i + 1), exact(p.Ours), theirs, result.Ours.Reading.unit(), exact(p.Ratio), result.Goal.plain(),
			})
		}
	}
	return cmp.Or(w.WriteAll(lines), w.Error())
}
