package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// The bounds within which the doctor is content.
const (
	mostSkew     = runner.LeaseMargin / 2
	leastFree    = 1 << 30 // bytes of the disk
	tries        = 9       // to read what is timed
	probes       = 5       // appends of --write
	doctorWaits  = 3 * time.Second
	doctorStream = events.Stream("doctor-probe")
)

func (a *app) doctorCommand() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what stands between this program and its store; exit 1 if something is wrong",
		Example: "  ledger doctor\n  ledger doctor --store esdb://db-1:2113\n  ledger doctor --write -o json | jq '.checks[] | select(.ok | not)'",
		Long: `Check, one after the other: that --store makes sense; that each of its hosts has an
address and its port is open; that who answers there is an EventStoreDB, with or
without TLS as wanted, of a version that will do, in one cluster with the others;
that it lets this user in, which rights it gives, and that it gives the log back, and how fast; for a folder, who
has it open, whether and where it is served, and how much room the disk has; that
the clocks agree; who is at work on it; and how far the consumers and the answers
that are kept beside the log are behind.

Nothing is written to the log, unless --write asks for five records in the stream
doctor-probe, which are timed. Credentials are in no line. No step waits longer
than LEDGER_PATIENCE, or 3s.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), write) },
	}
	cmd.Flags().BoolVar(&write, "write", false, "append five records as well, and time it")
	return cmd
}

// A checkRow is what one check found.
type checkRow struct {
	Check  string  `json:"check"`
	OK     bool    `json:"ok"`
	Detail string  `json:"detail"`
	Advice *string `json:"advice"`
	// Figures are what was measured: _us is in microseconds. Nil: nothing was.
	Figures map[string]int64 `json:"figures"`
}

// An examination is what all checks found.
type examination struct {
	Store  string     `json:"store"`
	OK     bool       `json:"ok"`
	Checks []checkRow `json:"checks"`
}

func (e *examination) well(check, format string, args ...any) {
	e.Checks = append(e.Checks, checkRow{Check: check, OK: true, Detail: fmt.Sprintf(format, args...)})
}

func (e *examination) ill(check, advice, format string, args ...any) {
	e.OK = false
	e.Checks = append(e.Checks, checkRow{Check: check, Detail: fmt.Sprintf(format, args...), Advice: render.OrNull(advice)})
}

// measured adds figures to what was noted last.
func (e *examination) measured(figures map[string]int64) {
	e.Checks[len(e.Checks)-1].Figures = figures
}

// failed notes an error with the advice that is known for it.
func (e *examination) failed(check string, err error) {
	f := fault.Of(err)
	if f.Command == "ledger doctor" {
		f.Hint = "" // it is this
	}
	e.ill(check, f.Hint, "%s", f.Error())
}

func (a *app) doctor(ctx context.Context, write bool) error {
	at, err := a.Where()
	if err != nil {
		return err
	}
	if a.Timeout == 0 {
		a.Timeout = doctorWaits
	}
	e := &examination{Store: at.String(), OK: true, Checks: []checkRow{}}
	e.well("program", "ledger %s", version())
	reachable := true
	if at.Database == "" {
		reachable = a.examineFolder(ctx, e, at.Folder)
	} else if err := a.examineNetwork(ctx, e, at); err != nil {
		return err
	}
	if reachable {
		if err := a.examineStore(ctx, e, at, write); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := a.Object(e, func() { a.doctorPage(e) }); err != nil || e.OK {
		return err
	}
	return &fault.Error{Exit: fault.ExitFailed, Code: "unwell", Err: fmt.Errorf("doctor: something is wrong with %s", e.Store), Quiet: a.Format == render.AsTable}
}

func (a *app) doctorPage(e *examination) {
	for _, c := range e.Checks {
		mark := a.Styled(render.Green, "✓")
		if !c.OK {
			mark = a.Styled(render.Red, "✗")
		}
		a.Line("%s %-12s %s", mark, c.Check, render.OneLine(c.Detail, 300))
		if c.Advice != nil && *c.Advice != "" {
			a.Line("  %-12s → %s", "", render.OneLine(*c.Advice, 600)) // an event of rights is to be copied whole
		}
	}
}

// examineFolder looks at a folder, and reports whether there is a store to open.
func (a *app) examineFolder(ctx context.Context, e *examination, dir string) bool {
	if stores.Missing(dir) {
		e.ill("folder", "ledger run and ledger import make a store; --store or LEDGER_STORE names another", "there is no store at %s", dir)
		return false
	}
	e.well("folder", "%s", dir)
	switch disk := diskOf(dir); {
	case disk.Free == nil:
	case *disk.Free < leastFree:
		e.ill("disk", "free some space, or move the folder", "%s are free", render.Bytes(*disk.Free))
	case disk.Network:
		e.ill("disk", "keep the folder on a disk of this machine, and let others use ledger serve", "the folder is on %s, whose locks and syncs are another machine's", *disk.Type)
	default:
		e.well("disk", "%s are free", render.Bytes(*disk.Free))
	}
	if at, ok := shared.CurrentEndpoint(dir); ok {
		if status, err := a.statusOf(ctx, at); err != nil {
			// Whether the lock is held shows when the store is opened.
			e.well("serving", "process %d said that it serves the folder at %s, and says no more: it was killed, or is about to end (%s)", at.PID, at.Address, err)
		} else {
			e.well("serving", "process %d, ledger %s, at %s: %d subscribers, the last %d records behind", at.PID, status.Version, at.Address, status.Subscribers, status.Lag)
			e.measured(map[string]int64{"subscribers": int64(status.Subscribers), "lag": int64(status.Lag)})
		}
	}
	return true
}

// vitals are what the doctor reads of a status.
type vitals struct {
	Version     string `json:"version"`
	Subscribers int    `json:"subscribers"`
	Lag         uint64 `json:"lag"`
}

// statusOf asks a process that serves on this machine how it is.
func (a *app) statusOf(ctx context.Context, at shared.Endpoint) (s vitals, err error) {
	near, err := shared.NewClient(at)
	if err != nil {
		return s, err
	}
	defer near.Close()
	ctx, cancel := context.WithTimeout(ctx, doctorWaits)
	defer cancel()
	text, err := near.Do(ctx, http.MethodGet, statusPath, nil)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}
