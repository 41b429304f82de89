package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

// quickScale is the scale at which every row takes seconds at most. It checks that
// the rows run; the numbers are meaningless.
const quickScale = 0.002

// Quick returns c with two rounds at a tiny scale, for a check that every row runs.
func (c Config) Quick() Config {
	c.Scale, c.Rounds = quickScale, 2
	return c
}

// childWord is the argument that makes Command call Child.
const childWord = "child"

// Command is the body of a program that only measures a table. It writes the table
// to out and its progress and errors to progress. It returns the exit status: 0, 1
// if a row was not measured, and 2 for invalid arguments.
func Command(ctx context.Context, t Suite, args []string, out, progress io.Writer) int {
	if len(args) > 1 && args[1] == childWord {
		return exit(progress, Child(ctx, args[2:], out))
	}
	if len(args) > 1 && args[1] == scaleWord {
		return ScaleCommand(ctx, args[1:], out, progress)
	}
	o, err := parse(args, progress)
	if err != nil {
		return 2
	}
	if o.list {
		for _, r := range t.Rows {
			fmt.Fprintf(out, "%-24s %s %s, against %s\n", r.ID, r.Goal, r.Measure, r.Against)
		}
		return 0
	}
	report, err := Run(ctx, t, o.Config)
	if len(report.Results) == 0 {
		return exit(progress, err)
	}
	err = errors.Join(err, report.WriteTable(out))
	if o.csv != "" {
		err = errors.Join(err, writeCSV(report, o.csv))
	}
	if code := exit(progress, err); code != 0 || len(report.Unmeasured()) == 0 {
		return code
	}
	return 1 // the table lists the reasons
}

// exit returns the exit status for err, and prints err to the writer if it is not nil.
func exit(to io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(to, "error:", err)
	return 1
}

// An options holds the parsed flags of Command.
type options struct {
	Config
	csv  string // path of the CSV file; empty: none
	list bool   // list the rows in place of measuring them
}

// parse parses args, whose first element is the name of the program. For invalid
// arguments it prints the error and the usage to the writer.
func parse(args []string, to io.Writer) (o options, err error) {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(to)
	flags.IntVar(&o.Rounds, "rounds", 5, "`rounds` of each trial")
	flags.StringVar(&o.Dir, "dir", os.TempDir(), "a `folder` on the disk to measure")
	flags.StringVar(&o.csv, "csv", "", "the `file` for every round of every row")
	flags.BoolVar(&o.list, "list", false, "list the rows and measure nothing")
	flags.DurationVar(&o.Time, "time", 14*time.Minute, "`time` after which no trial has a second round")
	flags.Func("only", "the rows whose ID matches a `regexp`", func(text string) (err error) {
		o.Only, err = regexp.Compile(text)
		return err
	})
	quick := flags.Bool("quick", false, "run every row at a tiny size, to see that it runs")
	if err := flags.Parse(args[1:]); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("%q is no argument", flags.Arg(0))
		fmt.Fprintln(to, "error:", err)
		return o, err
	}
	if *quick {
		o.Config = o.Quick()
	}
	o.Progress = func(doing string) { fmt.Fprintln(to, doing) }
	self, err := os.Executable()
	o.Child = []string{self, childWord}
	return o, err
}

// writeCSV writes the rounds of a report to the file at path.
func writeCSV(r *Report, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteCSV(f), f.Close())
}
