package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	measure "github.com/settlement-ledger/ledger/cmd/ledger/bench"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/spf13/cobra"
)

// A benchFlags holds the values of the flags of `ledger store bench`.
type benchFlags struct {
	dir    string        // folder on the disk to measure; empty: the parent of the store
	time   time.Duration // target duration; it sets the scale
	rounds int           // rounds of each trial
	only   string        // regular expression that selects rows by ID; empty: all
}

// wholeTime is the approximate duration of a run at scale 1. The goals hold for that
// scale.
const wholeTime = 10 * time.Minute

// newStoreBench returns the command `ledger store bench`. bench.Run starts its hidden
// subcommand child, which runs one task in a process of its own.
func (a *app) newStoreBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure a store on this disk and machine, and name the limit",
		Long: `Measure a store on this disk, each time against a floor: appends against a plain file
with syncs, outputs against plain files, a rebuild against decoding alone. Each row
is the median of the ratios of several rounds, with minimum and maximum, and whether
it reaches its goal. The last line names the limit on this machine: the disk, the
processor, or neither.

The benchmark uses a temporary folder next to the store and removes it; it does not touch the store, which may be in use (both get slower then).
With --time below 10 minutes all sizes are smaller and the ratios less reliable.`,
		Example: `  ledger store bench
  ledger store bench --dir /mnt/nvme --time 5m
  ledger store bench --only 'append|settle' -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.storeBench(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "", "a `folder` on the disk to measure (default: the one that the store's folder is in)")
	flags.DurationVar(&f.time, "time", time.Minute, "about how long to measure")
	flags.IntVar(&f.rounds, "rounds", 5, "rounds of each row")
	flags.StringVar(&f.only, "only", "", "the rows whose ID matches a regular `expression`")
	must(cmd.MarkFlagDirname("dir"))
	cmd.AddCommand(&cobra.Command{
		Use: "child TASK FOLDER SCALE", Short: "Do what is measured in a process of its own", Hidden: true, DisableFlagParsing: true,
		// Bypass the printer, as the parent reads the output while the child runs.
		RunE: func(cmd *cobra.Command, args []string) error { return measure.Child(cmd.Context(), args, os.Stdout) },
	})
	return cmd
}

// storeBench runs the benchmark and prints the table. If the run fails after some
// trials, storeBench prints the rows of these trials and returns the error.
func (a *app) storeBench(ctx context.Context, f benchFlags) error {
	config, err := a.benchConfig(f)
	if err != nil {
		return err
	}
	report, err := measure.Run(ctx, measure.Own(), config)
	if len(report.Results) == 0 {
		return benchFault(err)
	}
	var printed error
	encoded := a.Object(report.JSON(config.Dir), func() { printed = report.WriteTable(a.Out) })
	err = errors.Join(err, encoded, printed)
	if missing := len(report.Unmeasured()); err == nil && missing > 0 {
		err = fmt.Errorf("measure in %s: %s not measured, for the reasons that the table gives", config.Dir, render.Count(missing, "row"))
	}
	return benchFault(err)
}

// benchConfig returns the configuration of a run. The scale is the share of --time
// in wholeTime, at most 1.
func (a *app) benchConfig(f benchFlags) (c measure.Config, err error) {
	if f.time <= 0 || f.rounds < 1 {
		return c, fault.Usage("--time %s and --rounds %d: both are more than nothing", f.time, f.rounds)
	}
	c.Rounds, c.Time, c.Scale = f.rounds, f.time, min(1, float64(f.time)/float64(wholeTime))
	if f.only != "" {
		if c.Only, err = regexp.Compile(f.only); err != nil {
			return c, fault.Usage("--only %q: %w", f.only, err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	c.Child = []string{self, "store", "bench", "child"}
	if a.Format == render.AsTable {
		c.Progress = func(doing string) { fmt.Fprintln(a.Err, doing) }
	}
	c.Dir, err = a.benchDir(f.dir)
	return c, err
}

// benchDir returns the folder in which the benchmark runs: the folder given, unless that
// is empty, and otherwise the nearest existing ancestor of the store's folder.
func (a *app) benchDir(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	store, err := a.Folder()
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(store)
	if err != nil {
		return "", err
	}
	for dir = filepath.Dir(dir); missingFolder(dir) && filepath.Dir(dir) != dir; {
		dir = filepath.Dir(dir)
	}
	return dir, nil
}

// missingFolder reports whether dir does not exist.
func missingFolder(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, os.ErrNotExist)
}

// benchFault adds a hint to an error of bench.Run whose cause the user can remove. It
// returns any other error unchanged.
func benchFault(err error) error {
	switch {
	case errors.Is(err, measure.ErrNoSpace):
		return fault.WithHint(err, "--dir names a folder on another disk, and a shorter --time takes less space")
	case errors.Is(err, measure.ErrOccupied):
		return fault.WithHint(err, "--dir names another folder")
	case errors.Is(err, measure.ErrBadTable):
		return fault.Usage("%w", err)
	}
	return err
}
