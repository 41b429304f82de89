package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// The thresholds and the sizes of the checks.
const (
	// maxSkew is the greatest skew of a clock that passes. Leases tolerate twice as
	// much.
	maxSkew = runner.LeaseMargin / 2
	// minFree is the least free disk space that passes, in bytes.
	minFree = 1 << 30
	// readTries and writeProbes are the numbers of timed reads and appends. The
	// median of an odd number is one of them.
	readTries   = 9
	writeProbes = 5
	// defaultTimeout bounds one step, unless the user gives another timeout.
	defaultTimeout = 3 * time.Second
	// probeStream is the stream of the timed appends.
	probeStream = events.Stream("doctor-probe")
)

// A Doctor diagnoses the store of its Opener and writes a Report to its Printer. One
// goroutine uses it. It opens the store itself and closes it before Run returns.
type Doctor struct {
	*render.Printer
	*stores.Opener
	// Version is the version of this program.
	Version string
}

// A Check is one finding. A check of the store can have several findings with the
// same name. Its JSON is an output of ledger doctor.
type Check struct {
	// Check is the name of the check, such as disk.
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Detail is a text for people. It contains no credentials.
	Detail string `json:"detail"`
	// Advice is how the user fixes a failure, or nil.
	Advice *string `json:"advice"`
	// Figures are the measurements by name, or nil for a check without measurements.
	// The unit of a name that ends in _us is microseconds.
	Figures map[string]int64 `json:"figures"`
}

// A Report lists the findings of all checks.
type Report struct {
	// Store is the address without credentials.
	Store string `json:"store"`
	// OK reports that no check failed.
	OK bool `json:"ok"`
	// Checks are the findings in the order of the checks.
	Checks []Check `json:"checks"`
}

// pass adds a finding without a fault.
func (e *Report) pass(check, format string, args ...any) {
	e.Checks = append(e.Checks, Check{Check: check, OK: true, Detail: fmt.Sprintf(format, args...)})
}

// fail adds a failure with advice, which may be empty, and clears e.OK.
func (e *Report) fail(check, advice, format string, args ...any) {
	e.OK = false
	e.Checks = append(e.Checks, Check{Check: check, Detail: fmt.Sprintf(format, args...), Advice: render.OrNull(advice)})
}

// addFigures sets the figures of the last finding.
func (e *Report) addFigures(figures map[string]int64) {
	e.Checks[len(e.Checks)-1].Figures = figures
}

// failWith adds an error as a failure. Its advice is the hint of the error, except a
// hint to run ledger doctor, which the user does now.
func (e *Report) failWith(check string, err error) {
	f := fault.Of(err)
	if f.Command == "ledger doctor" {
		f.Hint = ""
	}
	e.fail(check, f.Hint, "%s", f.Error())
}

// Run runs all checks and writes the Report. It times appends to the stream
// doctor-probe if write is set. It returns a fault.Error with exit code 1 if a check
// failed, an error for an invalid address, and the cause of ctx if that ends first.
func (d *Doctor) Run(ctx context.Context, write bool) error {
	at, err := d.Where()
	if err != nil {
		return err
	}
	if d.Timeout == 0 {
		d.Timeout = defaultTimeout
	}
	e := &Report{Store: at.String(), OK: true, Checks: []Check{}}
	e.pass("program", "ledger %s", d.Version)
	// The checks of an open store need a folder with a store, or a database, whose
	// errors the checks report.
	reachable := true
	if at.Database == "" {
		reachable = d.examineFolder(ctx, e, at.Folder)
	} else if err := d.examineNetwork(ctx, e, at); err != nil {
		return err
	}
	if reachable {
		if err := d.examineStore(ctx, e, at, write); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := d.Object(e, func() { d.doctorPage(e) }); err != nil || e.OK {
		return err
	}
	// The page shows the failures already; JSON readers see the fault too.
	return &fault.Error{Exit: fault.ExitFailed, Code: "unwell", Err: fmt.Errorf("doctor: a check of %s failed", e.Store), Quiet: d.Format == render.AsTable}
}

// doctorPage writes the Report for a person: a line for each finding and one for its advice.
func (d *Doctor) doctorPage(e *Report) {
	for _, c := range e.Checks {
		mark := d.Styled(render.Green, "✓")
		if !c.OK {
			mark = d.Styled(render.Red, "✗")
		}
		d.Line("%s %-12s %s", mark, c.Check, render.OneLine(c.Detail, 300))
		if c.Advice != nil && *c.Advice != "" {
			// The advice may contain a long event of rights, which the user copies.
			d.Line("  %-12s → %s", "", render.OneLine(*c.Advice, 600))
		}
	}
}

// examineFolder checks a folder, its disk and the process that serves it. It returns
// false if the folder is missing or empty, so that it has no store to open. It opens
// neither the log nor the outputs.
func (d *Doctor) examineFolder(ctx context.Context, e *Report, dir string) bool {
	if stores.Missing(dir) {
		e.fail("folder", "ledger run and ledger import make a store; --store or LEDGER_STORE names another", "there is no store at %s", dir)
		return false
	}
	e.pass("folder", "%s", dir)
	switch disk := stores.DiskOf(dir); {
	case disk.Free == nil:
	case *disk.Free < minFree:
		e.fail("disk", "free some space, or move the folder", "%s free", render.Bytes(*disk.Free))
	case disk.Network:
		e.fail("disk", "keep the folder on a disk of this machine, and use ledger serve for the other machines", "the folder is on %s, a network file system: another machine decides about locks and syncs", *disk.Type)
	default:
		e.pass("disk", "%s are free", render.Bytes(*disk.Free))
	}
	if at, ok := shared.CurrentEndpoint(dir); ok {
		if status, err := d.statusOf(ctx, at); err != nil {
			// Not a failure: opening the store shows whether a process has the lock.
			e.pass("serving", "process %d announced that it serves the folder at %s and does not answer: it was killed or is ending (%s)", at.PID, at.Address, err)
		} else {
			e.pass("serving", "process %d, ledger %s, at %s: %d subscribers, the last %d records behind", at.PID, status.Version, at.Address, status.Subscribers, status.Lag)
			e.addFigures(map[string]int64{"subscribers": int64(status.Subscribers), "lag": int64(status.Lag)})
		}
	}
	return true
}

// A serverStatus holds the fields that the doctor reads from the status of a serving process.
type serverStatus struct {
	// Version is the version of the program.
	Version string `json:"version"`
	// Subscribers is the number of connected subscriptions.
	Subscribers int `json:"subscribers"`
	// Lag is the number of records that the slowest subscriber is behind.
	Lag uint64 `json:"lag"`
}

// statusOf requests the status of the process that serves at an endpoint of this machine,
// with a timeout of defaultTimeout.
func (d *Doctor) statusOf(ctx context.Context, at shared.Endpoint) (s serverStatus, err error) {
	near, err := shared.NewClient(at)
	if err != nil {
		return s, err
	}
	defer near.Close()
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	text, err := near.Do(ctx, http.MethodGet, stores.StatusPath, nil)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}
