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

// The bounds within which the doctor is content.
const (
	maxSkew        = runner.LeaseMargin / 2
	minFree        = 1 << 30 // bytes of the disk
	readTries      = 9       // to read what is timed
	writeProbes    = 5       // appends of --write
	defaultTimeout = 3 * time.Second
	probeStream    = events.Stream("doctor-probe")
)

// A Doctor checks a store and what stands between it and this program.
type Doctor struct {
	*render.Printer
	*stores.Opener
	Version string // of this program
}

// A Check is what one check found.
type Check struct {
	Check  string  `json:"check"`
	OK     bool    `json:"ok"`
	Detail string  `json:"detail"`
	Advice *string `json:"advice"`
	// Figures are what was measured: _us is in microseconds. Nil: nothing was.
	Figures map[string]int64 `json:"figures"`
}

// An Report is what all checks found.
type Report struct {
	Store  string  `json:"store"`
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

func (e *Report) pass(check, format string, args ...any) {
	e.Checks = append(e.Checks, Check{Check: check, OK: true, Detail: fmt.Sprintf(format, args...)})
}

func (e *Report) fail(check, advice, format string, args ...any) {
	e.OK = false
	e.Checks = append(e.Checks, Check{Check: check, Detail: fmt.Sprintf(format, args...), Advice: render.OrNull(advice)})
}

// addFigures adds figures to what was noted last.
func (e *Report) addFigures(figures map[string]int64) {
	e.Checks[len(e.Checks)-1].Figures = figures
}

// failWith notes an error with the advice that is known for it.
func (e *Report) failWith(check string, err error) {
	f := fault.Of(err)
	if f.Command == "ledger doctor" {
		f.Hint = "" // it is this
	}
	e.fail(check, f.Hint, "%s", f.Error())
}

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
	return &fault.Error{Exit: fault.ExitFailed, Code: "unwell", Err: fmt.Errorf("doctor: something is wrong with %s", e.Store), Quiet: d.Format == render.AsTable}
}

func (d *Doctor) doctorPage(e *Report) {
	for _, c := range e.Checks {
		mark := d.Styled(render.Green, "✓")
		if !c.OK {
			mark = d.Styled(render.Red, "✗")
		}
		d.Line("%s %-12s %s", mark, c.Check, render.OneLine(c.Detail, 300))
		if c.Advice != nil && *c.Advice != "" {
			d.Line("  %-12s → %s", "", render.OneLine(*c.Advice, 600)) // an event of rights is to be copied whole
		}
	}
}

// examineFolder looks at a folder, and reports whether there is a store to open.
func (d *Doctor) examineFolder(ctx context.Context, e *Report, dir string) bool {
	if stores.Missing(dir) {
		e.fail("folder", "ledger run and ledger import make a store; --store or LEDGER_STORE names another", "there is no store at %s", dir)
		return false
	}
	e.pass("folder", "%s", dir)
	switch disk := stores.DiskOf(dir); {
	case disk.Free == nil:
	case *disk.Free < minFree:
		e.fail("disk", "free some space, or move the folder", "%s are free", render.Bytes(*disk.Free))
	case disk.Network:
		e.fail("disk", "keep the folder on a disk of this machine, and let others use ledger serve", "the folder is on %s, whose locks and syncs are another machine's", *disk.Type)
	default:
		e.pass("disk", "%s are free", render.Bytes(*disk.Free))
	}
	if at, ok := shared.CurrentEndpoint(dir); ok {
		if status, err := d.statusOf(ctx, at); err != nil {
			// Whether the lock is held shows when the store is opened.
			e.pass("serving", "process %d said that it serves the folder at %s, and says no more: it was killed, or is about to end (%s)", at.PID, at.Address, err)
		} else {
			e.pass("serving", "process %d, ledger %s, at %s: %d subscribers, the last %d records behind", at.PID, status.Version, at.Address, status.Subscribers, status.Lag)
			e.addFigures(map[string]int64{"subscribers": int64(status.Subscribers), "lag": int64(status.Lag)})
		}
	}
	return true
}

// serverStatus are what the doctor reads of a status.
type serverStatus struct {
	Version     string `json:"version"`
	Subscribers int    `json:"subscribers"`
	Lag         uint64 `json:"lag"`
}

// statusOf asks a process that serves on this machine how it is.
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
