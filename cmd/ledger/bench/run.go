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

// A Config says how to measure. Dir and Child are required.
type Config struct {
	Dir      string         // a folder on the disk to measure: Run makes one of its own in it and removes that
	Child    []string       // the command that calls Child with the arguments added to it
	Rounds   int            // 0: 5
	Scale    float64        // of counts, sizes and times to those of the goals; 0: 1
	Only     *regexp.Regexp // the rows whose ID matches; nil: all
	Time     time.Duration  // after which no trial has more than one round; 0: without end
	Progress func(string)   // is told what is being done; nil: nobody
}

// The errors of Run. Callers match them with errors.Is.
var (
	ErrNoSpace  = errors.New("disk has too little space")
	ErrOccupied = errors.New("folder is that of a store")
)

// A bench is one run.
type bench struct {
	dir      string
	child    []string
	rounds   int
	scale    float64
	progress func(string)
	out      io.Writer        // of a task in a process of its own
	made     map[string]*kept // data sets, by name
}

// need is what the whole table takes on the disk at most.
const need = 8 << 30

// Run measures a table in rounds. The report is as far as it came, whatever the
// error.
func Run(ctx context.Context, t Table, c Config) (report *Report, err error) {
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

func newBench(c Config, scale float64) (*bench, error) {
	b := &bench{child: c.Child, rounds: c.Rounds, scale: scale, progress: c.Progress, made: map[string]*kept{}}
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

// chosen returns the rows that are asked for, and the trials that they need
// with no more contestants than they compare.
func (t Table) chosen(only *regexp.Regexp) (trials []Trial, rows []Row) {
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
