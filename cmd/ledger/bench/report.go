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

// A Pair is what one round gave for a row.
type Pair struct{ Ours, Theirs, Ratio float64 }

// A Result is what was measured for a row.
type Result struct {
	Row
	Rounds []Pair // none where Err is not nil
	Err    error
}

// Measured returns the median of the ratios.
func (r Result) Measured() float64 { return median(r.column(func(p Pair) float64 { return p.Ratio })) }

// Medians returns the medians of both sides; theirs is 0 for a row that is not
// a comparison.
func (r Result) Medians() (ours, theirs float64) {
	return median(r.column(func(p Pair) float64 { return p.Ours })), median(r.column(func(p Pair) float64 { return p.Theirs }))
}

// Spread returns the least and the greatest ratio.
func (r Result) Spread() (least, greatest float64) {
	ratios := r.column(func(p Pair) float64 { return p.Ratio })
	return slices.Min(ratios), slices.Max(ratios)
}

// Verdict returns ✓ if the goal is met, ✗ if it is not, and – if nothing was
// measured.
func (r Result) Verdict() string {
	switch {
	case r.Err != nil || len(r.Rounds) == 0:
		return "–"
	case r.Goal.Met(r.Measured()):
		return "✓"
	}
	return "✗"
}

func (r Result) column(of func(Pair) float64) []float64 {
	values := make([]float64, len(r.Rounds))
	for i, p := range r.Rounds {
		values[i] = of(p)
	}
	return values
}

// median returns the middle of values, and the mean of the two that are in the
// middle of an even number. Of none it is 0.
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

// percentile returns the smallest of latencies, which it sorts, that so many
// percent of them do not exceed.
func percentile(latencies []time.Duration, percent int) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	return latencies[max(0, (len(latencies)*percent+99)/100-1)]
}

// A Report is what a run measured.
type Report struct {
	Results []Result
	Began   time.Time
	Took    time.Duration
	Cores   int
	Scale   float64
	medians map[Score]float64 // by trial/contestant
}

// note adds what a trial gave for its rows.
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

// Median returns the median of what a contestant of a trial gave for a reading,
// and 0 where it gave nothing.
func (r *Report) Median(trial, contestant string, reading Reading) float64 {
	return r.medians[Score{trial + "/" + contestant, reading}]
}

// Unmeasured returns the rows that have no verdict, as errors.
func (r *Report) Unmeasured() (errs []error) {
	for _, result := range r.Results {
		if result.Err != nil {
			errs = append(errs, fmt.Errorf("measure %s: %w", result.ID, result.Err))
		}
	}
	return errs
}

// WriteTable writes the table for a person, what was not measured and why, and
// what limits the store.
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

func (r Result) cells() []string {
	if r.Verdict() == "–" {
		return []string{r.ID, r.Measure, r.Against, "", "", r.Goal.String(), "", "", "–"}
	}
	least, greatest := r.Spread()
	ours, theirs := r.Medians()
	compared := ""
	if r.Theirs != (Score{}) {
		compared = number(theirs) + " " + r.Theirs.Reading.Unit()
	}
	return []string{
		r.ID, r.Measure, r.Against, number(ours) + " " + r.Ours.Reading.Unit(), compared,
		r.Goal.String(), number(r.Measured()), number(least) + "–" + number(greatest), r.Verdict(),
	}
}

// number writes three digits, and all of those before the point.
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

// align writes lines with columns as wide as their widest cell; the columns of
// numbers are flush right.
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

// WriteCSV writes every round of every row, as the package says.
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
				result.ID, strconv.Itoa(i + 1), exact(p.Ours), theirs, result.Ours.Reading.Unit(), exact(p.Ratio), result.Goal.plain(),
			})
		}
	}
	return cmp.Or(w.WriteAll(lines), w.Error())
}
