package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// A Config configures Run. Dir and Child are required.
type Config struct {
	Dir      string         // existing folder on the disk to measure; Run works in a temporary folder in it
	Child    []string       // command line that calls Child with the arguments that Run appends
	Rounds   int            // rounds of each trial; 0: 5
	Scale    float64        // factor for counts, sizes and times, 1 at the size of the goals; 0: 1
	Only     *regexp.Regexp // selects rows by ID; nil: all
	Time     time.Duration  // target duration; when it is over, trials have one round; 0: unlimited
	Progress func(string)   // called with a description of each step; nil: not called
}

// The errors of Run, besides ErrBadTable. Match them with errors.Is.
var (
	ErrNoSpace  = errors.New("disk has too little space") // Dir has less free space than the scale requires
	ErrOccupied = errors.New("folder is that of a store") // Dir is the folder of a store
)

// A bench is the state of one run. Contestants read it from any goroutine; only the
// goroutine of Run changes made.
type bench struct {
	dir      string // the temporary folder, absolute
	child    []string
	rounds   int // at least 1
	scale    float64
	progress func(string)
	out      io.Writer           // of Child, for tasks that report progress; nil in Run
	made     map[string]*dataSet // the data sets made so far, by name
}

// need is the greatest disk space that the whole table takes at scale 1, in bytes.
const need = 8 << 30

// Run measures the selected rows of t, one trial after another, and removes its
// temporary folder. The report is never nil: with an error it has the results up to the
// error.
//
// A contestant that fails does not fail the run: its rows have no verdict.
func Run(ctx context.Context, t Suite, c Config) (report *Report, err error) {
	report = &Report{Cores: runtime.GOMAXPROCS(0), Scale: c.Scale, Began: time.Now()}
	if report.Scale == 0 {
		report.Scale = 1
	}
	if err := t.Valid(); err != nil {
		return report, err
	}
	trials, rows := t.chosen(c.Only)
	if len(rows) == 0 {
		return report, fmt.Errorf("%w: no row of it has an ID that matches %s", ErrBadTable, c.Only)
	}
	b, err := newBench(c, report.Scale)
	if err != nil {
		return report, err
	}
	defer func() {
		report.Took = time.Since(report.Began)
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()
	for i, trial := range trials {
		share := 24 * time.Hour
		if c.Time > 0 {
			share = (c.Time - time.Since(report.Began)) / time.Duration(len(trials)-i)
		}
		entrants, err := b.compete(ctx, trial, share)
		report.note(trial.Name, entrants, rows)
		if err != nil {
			return report, fmt.Errorf("measure %s: %w", trial.Name, err)
		}
	}
	return report, nil
}

// newBench checks Dir and makes the temporary folder, which the caller removes.
func newBench(c Config, scale float64) (*bench, error) {
	b := &bench{child: c.Child, rounds: c.Rounds, scale: scale, progress: c.Progress, made: map[string]*dataSet{}}
	if b.rounds == 0 {
		b.rounds = 5
	}
	if b.progress == nil {
		b.progress = func(string) {}
	}
	if _, err := os.Lstat(filepath.Join(c.Dir, "FORMAT")); err == nil {
		return nil, fmt.Errorf("measure in %s: %w: it holds a FORMAT file; name another folder on the same disk", c.Dir, ErrOccupied)
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(c.Dir, &disk); err != nil {
		return nil, fmt.Errorf("measure in %s: %w", c.Dir, err)
	}
	if free, want := float64(disk.Bavail)*float64(disk.Bsize), need*scale; free < want {
		return nil, fmt.Errorf("measure in %s: %w: %.0f MiB are free, and %.0f MiB are needed; name a folder on another disk, or measure at a smaller scale",
			c.Dir, ErrNoSpace, free/(1<<20), want/(1<<20))
	}
	dir, err := os.MkdirTemp(c.Dir, "ledger-bench-")
	if err != nil {
		return nil, fmt.Errorf("measure in %s: %w", c.Dir, err)
	}
	b.dir, err = filepath.Abs(dir)
	return b, err
}

// chosen returns the rows of t whose ID matches the pattern in the parameter only, or
// all rows if the pattern is nil. It also returns the trials of these rows, with no
// other contestants than those that the rows compare.
func (t Suite) chosen(only *regexp.Regexp) (trials []Trial, rows []Row) {
	for _, r := range t.Rows {
		if only == nil || only.MatchString(r.ID) {
			rows = append(rows, r)
		}
	}
	for _, trial := range t.Trials {
		needed := Trial{Name: trial.Name}
		for _, c := range trial.Contestants {
			if slices.ContainsFunc(rows, func(r Row) bool {
				return r.Trial == trial.Name && (r.Ours.Contestant == c.Name || r.Theirs.Contestant == c.Name)
			}) {
				needed.Contestants = append(needed.Contestants, c)
			}
		}
		if len(needed.Contestants) > 0 {
			trials = append(trials, needed)
		}
	}
	return trials, rows
}
