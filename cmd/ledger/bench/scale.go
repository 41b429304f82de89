package bench

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// The goals of a reading command while the index is current. The growth is from the
// smallest to the largest log; times below leastTime count as leastTime.
const (
	answerTime   = 50 * time.Millisecond // beyond the start of the program
	answerMemory = 64                    // MiB
	answerGrowth = 1.5
	streamMemory = 256 // MiB, of verify and of a rebuild
	leastTime    = 10 * time.Millisecond
)

// A scaleRow is a command that ScaleCommand runs over logs of several sizes.
type scaleRow struct {
	id   string
	args []string // $SESSION, $TIME and $WORD are replaced by values of the log
	rate float64  // the goal of a command that reads the whole log: events per second; 0: it has none
	scan float64  // the goal as a share of the rate of scan-owned; 0: it has none
}

// answers reports whether the row is held to the goals of an answer.
func (r scaleRow) answers() bool {
	return r.rate == 0 && r.scan == 0 && r.id != "store-check" && r.id != "sql-group"
}

// scaleRows are the rows, in the order in which they run. The rebuilds come first, so that
// the index is current afterwards.
var scaleRows = []scaleRow{
	{id: "rebuild-no-text", args: []string{"index", "rebuild", "--no-text"}, rate: 150_000},
	{id: "rebuild", args: []string{"index", "rebuild", "--text"}, rate: 75_000},
	{id: "verify", args: []string{"verify", "--outputs=false", "--no-index"}, scan: 0.3},
	{id: "store-check", args: []string{"store", "check"}},
	{id: "call-ls", args: []string{"call", "ls", "--limit", "5"}},
	{id: "call-show", args: []string{"call", "show", "@last"}},
	{id: "turn-show", args: []string{"turn", "show", "@last"}},
	{id: "session-show", args: []string{"session", "show", "$SESSION"}},
	{id: "session-ls", args: []string{"session", "ls", "--limit", "5"}},
	{id: "registry-at", args: []string{"registry", "at", "$TIME"}},
	{id: "sql-page", args: []string{"sql", "SELECT session, title FROM sessions ORDER BY number DESC LIMIT 20"}},
	{id: "sql-session", args: []string{"sql", "SELECT call, tool, outcome, ran_ms FROM calls WHERE session = '$SESSION' ORDER BY id"}},
	{id: "sql-text", args: []string{"sql", "SELECT kind, session, call FROM texts WHERE id IN (SELECT rowid FROM text_search WHERE text_search MATCH '\"$WORD\"') LIMIT 20"}},
	{id: "sql-group", args: []string{"sql", "SELECT tool, outcome, count(*) FROM calls GROUP BY tool, outcome"}},
}

// A scaleResult is one row at one size.
type scaleResult struct {
	id     string
	events int64
	took   time.Duration // beyond the start of the program
	busy   time.Duration // processor time, with that of the start
	peak   float64       // MiB
	scan   float64       // events per second of scan-owned, at the same size
	growth float64       // of took, since the smallest size
	err    error
}

// A scaleRun is a run of ScaleCommand.
type scaleRun struct {
	self, ledger string // programs
	dir          string // of the store
	timeout      time.Duration
	progress     io.Writer
	values       *strings.Replacer // of $SESSION, $TIME and $WORD
	start        time.Duration     // of ledger version
}

// ScaleCommand is the body of a program that runs the reading commands of a ledger program
// over logs of several sizes. It writes a table to out, and progress and errors to
// progress. It works in a temporary folder and removes it. It returns the exit status: 0, 1
// if a command failed, and 2 for invalid arguments. The words generate and scan as first
// argument make it do one step in this process: a parent that is small measures the memory
// of the commands, because a process begins with the peak of its parent.
func ScaleCommand(ctx context.Context, args []string, out, progress io.Writer) int {
	if len(args) == 4 && args[1] == "generate" {
		return exit(progress, generate(ctx, args[2], args[3]))
	}
	if len(args) == 3 && args[1] == "scan" {
		return exit(progress, scanStore(ctx, args[2], out))
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(progress)
	ledger := flags.String("ledger", "", "the ledger `program` to run (required)")
	dir := flags.String("dir", os.TempDir(), "a `folder` on the disk to measure")
	sizes := flags.String("sizes", "100000 1000000 4000000 10000000", "`numbers` of events, ascending")
	path := flags.String("csv", "", "the `file` for every row and size")
	timeout := flags.Duration("timeout", 3*time.Minute, "`time` after which a command is ended")
	limit := flags.Duration("time", 14*time.Minute, "`time` after which the run ends")
	if flags.Parse(args[1:]) != nil {
		return 2
	}
	counts, err := parseSizes(*sizes)
	if err == nil && (*ledger == "" || flags.NArg() > 0) {
		err = errors.New("give the program with -ledger, and no argument")
	}
	if err != nil {
		fmt.Fprintln(progress, "error:", err)
		return 2
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the run took longer than %s: give fewer sizes, or more -time", *limit))
	defer cancel()
	results, err := scale(ctx, scaleRun{ledger: *ledger, timeout: *timeout, progress: progress}, *dir, counts)
	err = errors.Join(err, writeScale(out, results))
	if *path != "" {
		err = errors.Join(err, writeScaleCSV(*path, results))
	}
	for _, r := range results {
		err = errors.Join(err, r.err)
	}
	return exit(progress, err)
}

// parseSizes parses ascending numbers of events.
func parseSizes(text string) (counts []int, err error) {
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || len(counts) > 0 && n <= counts[len(counts)-1] {
			return nil, fmt.Errorf("size %q: sizes are ascending numbers of events", word)
		}
		counts = append(counts, n)
	}
	if len(counts) == 0 {
		return nil, errors.New("give a size")
	}
	return counts, nil
}

// scale measures all rows at all sizes, in one store that grows.
func scale(ctx context.Context, s scaleRun, dir string, counts []int) (results []scaleResult, err error) {
	if s.self, err = os.Executable(); err != nil {
		return nil, err
	}
	temporary, err := os.MkdirTemp(dir, "ledger-scale-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	s.dir = filepath.Join(temporary, "store")
	first := map[string]time.Duration{}
	for _, n := range counts {
		if _, err := s.run(ctx, s.self, "generate", s.dir, strconv.Itoa(n)); err != nil {
			return results, fmt.Errorf("generate %d events: %w", n, err)
		}
		at, err := s.prepare(ctx)
		if err != nil {
			return results, err
		}
		for _, row := range scaleRows {
			r := s.measure(ctx, row, at.rounds())
			if ctx.Err() != nil {
				return results, context.Cause(ctx)
			}
			r.events, r.scan = at.events, at.rate
			if first[row.id] == 0 {
				first[row.id] = r.took
			}
			r.growth = float64(max(r.took, leastTime)) / float64(max(first[row.id], leastTime))
			results = append(results, r)
			fmt.Fprintf(s.progress, "%d events: %s %s, %.0f MiB\n", r.events, r.id, r.took.Round(time.Millisecond), r.peak)
		}
	}
	return results, nil
}

// A scaleLog is a log of one size.
type scaleLog struct {
	events int64
	rate   float64 // events per second of scan-owned
}

// rounds returns how often a command runs: large logs allow fewer rounds.
func (l scaleLog) rounds() int {
	if l.events > 2_000_000 {
		return 2
	}
	return 3
}

// prepare measures the start of the program and a scan, removes the index, makes it again
// and reads the values that the commands name from it.
func (s *scaleRun) prepare(ctx context.Context) (at scaleLog, err error) {
	start := s.measure(ctx, scaleRow{id: "version", args: []string{"version"}}, 7)
	if start.err != nil {
		return at, start.err
	}
	s.start += start.took
	scanned, err := s.run(ctx, s.self, "scan", s.dir)
	if err == nil {
		_, err = fmt.Sscan(scanned.out, &at.events, &at.rate)
	}
	if err == nil {
		err = os.RemoveAll(filepath.Join(s.dir, "index"))
	}
	if err != nil {
		return at, fmt.Errorf("scan the log: %w", err)
	}
	values := []string{}
	for name, statement := range map[string]string{
		"$SESSION": "SELECT session FROM sessions ORDER BY number DESC LIMIT 1",
		"$TIME":    "SELECT last_time FROM index_state",
		"$WORD":    "SELECT substr(input, 14, 8) FROM calls ORDER BY id DESC LIMIT 1", // of {"path":"src/01234567.go"
	} {
		ran, err := s.run(ctx, s.ledger, "--store", s.dir, "sql", "--csv", statement)
		if err != nil {
			return at, err
		}
		lines := strings.Fields(ran.out)
		values = append(values, name, lines[len(lines)-1])
	}
	s.values = strings.NewReplacer(values...)
	return at, nil
}

// measure runs a command in rounds and returns the median time, and the largest peak of
// memory. A command that took more than five seconds runs once.
func (s *scaleRun) measure(ctx context.Context, row scaleRow, rounds int) scaleResult {
	r := scaleResult{id: row.id}
	args := []string{"--store", s.dir}
	for _, a := range row.args {
		if s.values != nil {
			a = s.values.Replace(a)
		}
		args = append(args, a)
	}
	var took, busy []time.Duration
	for range rounds {
		ran, err := s.run(ctx, s.ledger, args...)
		if err != nil {
			r.err = fmt.Errorf("%s: %w", row.id, err)
			return r
		}
		took, busy, r.peak = append(took, ran.took), append(busy, ran.busy), max(r.peak, ran.peak)
		if ran.took > 5*time.Second {
			break
		}
	}
	slices.Sort(took)
	slices.Sort(busy)
	r.took, r.busy = max(took[len(took)/2]-s.start, 0), busy[len(busy)/2]
	return r
}

// A ran is a program that ended.
type ran struct {
	out  string
	took time.Duration
	busy time.Duration // processor time
	peak float64       // MiB
}

// run runs a program. Its error names the first line that the program wrote to the standard
// error.
func (s *scaleRun) run(ctx context.Context, program string, args ...string) (ran, error) {
	if program == s.ledger {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("it took longer than %s", s.timeout))
		defer cancel()
	}
	if program == s.self {
		args = append([]string{scaleWord}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var out, faults strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &faults
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		line, _, _ := strings.Cut(faults.String(), "\n")
		return ran{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), cmp.Or(context.Cause(ctx), err), line)
	}
	return ran{out.String(), took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peakOf(cmd.ProcessState) / (1 << 20)}, nil
}

// scaleWord is the argument of Command before those of ScaleCommand.
const scaleWord = "scale"

// generate appends sessions to the store in a folder until it has about n events, without a
// sync for each append.
func generate(ctx context.Context, dir, n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	s, err := embedded.Open(ctx, dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}, Durability: embedded.Interval(time.Second)})
	if err != nil {
		return err
	}
	have, _ := s.Head().Parts()
	return errors.Join(makeHistory(ctx, s, count-int(have)), s.Close())
}

// scanStore reads every entry of the store in a folder, as the row scan-owned does, and
// writes the number of events and the rate.
func scanStore(ctx context.Context, dir string, out io.Writer) error {
	s, err := embedded.Open(ctx, dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}})
	if err != nil {
		return err
	}
	n, began := 0, time.Now()
	for _, err := range ScanAll(ctx, s) {
		if err != nil {
			return errors.Join(err, s.Close())
		}
		n++
	}
	took := time.Since(began)
	_, err = fmt.Fprintln(out, n, float64(n)/took.Seconds())
	return errors.Join(err, s.Close())
}

// verdict returns the row's goal, and whether the result meets it; an empty goal: it has
// none.
func (r scaleResult) verdict() (goal string, met bool) {
	i := slices.IndexFunc(scaleRows, func(row scaleRow) bool { return row.id == r.id })
	row := scaleRows[i]
	switch {
	case row.rate > 0:
		return fmt.Sprintf("≥ %.0f/s, ≤ %d MiB", row.rate, streamMemory), r.perSecond() >= row.rate && r.peak <= streamMemory
	case row.scan > 0:
		return fmt.Sprintf("≥ %g × scan-owned, ≤ %d MiB", row.scan, streamMemory), r.perSecond() >= row.scan*r.scan && r.peak <= streamMemory
	case row.answers():
		return fmt.Sprintf("≤ %s, ≤ %d MiB, ≤ %g ×", answerTime, answerMemory, answerGrowth), r.took <= answerTime && r.peak <= answerMemory && r.growth <= answerGrowth
	}
	return "", false
}

// milliseconds returns a duration for the table.
func milliseconds(d time.Duration) string { return number(float64(d.Microseconds()) / 1000) }

// perSecond returns the events of the log for each second of the command.
func (r scaleResult) perSecond() float64 {
	return float64(r.events) / max(r.took, time.Microsecond).Seconds()
}

// writeScale writes the results as a table.
func writeScale(to io.Writer, results []scaleResult) error {
	lines := [][]string{{"events", "row", "goal", "ms", "CPU ms", "MiB", "growth", "events/s", ""}}
	for _, r := range results {
		goal, met := r.verdict()
		mark := ""
		switch {
		case r.err != nil:
			mark = "failed"
		case met:
			mark = "✓"
		case goal != "":
			mark = "✗"
		}
		rate := ""
		if !strings.HasPrefix(goal, "≤") && goal != "" || r.id == "store-check" {
			rate = number(r.perSecond())
		}
		if strings.Contains(goal, "scan-owned") {
			rate += fmt.Sprintf(" (%.2f of %s)", r.perSecond()/r.scan, number(r.scan))
		}
		lines = append(lines, []string{strconv.FormatInt(r.events, 10), r.id, goal, milliseconds(r.took), milliseconds(r.busy), number(r.peak), number(r.growth), rate, mark})
	}
	align(to, lines)
	return nil
}

// writeScaleCSV writes the results to a file: row, events, ms, cpu_ms, peak_mib, growth,
// scan_per_second and met, which is empty for a row without a goal.
func writeScaleCSV(path string, results []scaleResult) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	lines := [][]string{{"row", "events", "ms", "cpu_ms", "peak_mib", "growth", "scan_per_second", "met"}}
	for _, r := range results {
		goal, ok := r.verdict()
		met := ""
		if goal != "" {
			met = strconv.FormatBool(ok && r.err == nil)
		}
		exact := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
		lines = append(lines, []string{r.id, strconv.FormatInt(r.events, 10), exact(float64(r.took.Microseconds()) / 1000), exact(float64(r.busy.Microseconds()) / 1000), exact(r.peak), exact(r.growth), exact(r.scan), met})
	}
	return errors.Join(w.WriteAll(lines), f.Close())
}
