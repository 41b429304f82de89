package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/runner"
)

// The bounds within which the doctor is content.
const (
	mostSkew     = runner.LeaseMargin / 2
	leastFree    = 1 << 30 // bytes of the disk
	tries        = 5       // of what is timed
	doctorWaits  = 3 * time.Second
	doctorStream = events.Stream("doctor-probe")
)

func (a *app) doctorCommand() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what stands between this program and its store; exit 1 if something is wrong",
		Example: "  ledger doctor\n  ledger doctor --store esdb://db-1:2113\n  ledger doctor --write -o json | jq '.checks[] | select(.ok | not)'",
		Long: `Check, one after the other: that --store makes sense; that its host has an address
and its port is open; that a server answers, lets this user in and gives the log
back, and how fast; for a folder, who has it open, whether and where it is
served, and how much room the disk has; that the clocks agree; who is at work on
it; and how far the consumers are behind.

Nothing is written, unless --write asks for a record in the stream doctor-probe.
Credentials are in no line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), write) },
	}
	cmd.Flags().BoolVar(&write, "write", false, "append a record as well, and time it")
	return cmd
}

// A checkRow is what one check found.
type checkRow struct {
	Check  string  `json:"check"`
	OK     bool    `json:"ok"`
	Detail string  `json:"detail"`
	Advice *string `json:"advice"`
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
	e.Checks = append(e.Checks, checkRow{Check: check, Detail: fmt.Sprintf(format, args...), Advice: opt(advice)})
}

// failed notes an error with the advice that is known for it.
func (e *examination) failed(check string, err error) {
	f := faultOf(err)
	if f.command == "ledger doctor" {
		f.hint = "" // it is this
	}
	e.ill(check, f.hint, "%s", f.Error())
}

func (a *app) doctor(ctx context.Context, write bool) error {
	at, err := a.where()
	if err != nil {
		return err
	}
	if a.patience == 0 {
		a.patience = doctorWaits
	}
	e := &examination{Store: at.String(), OK: true, Checks: []checkRow{}}
	e.well("program", "ledger %s", version())
	reachable := true
	if at.database == "" {
		reachable = a.examineFolder(ctx, e, at.folder)
	} else {
		a.examineNetwork(ctx, e, at)
	}
	if reachable {
		a.examineStore(ctx, e, at, write)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := a.emitOne(e, func() { a.doctorPage(e) }); err != nil || e.OK {
		return err
	}
	return &fault{exit: exitFailed, code: "unwell", err: fmt.Errorf("doctor: something is wrong with %s", e.Store), quiet: a.output == asTable}
}

func (a *app) doctorPage(e *examination) {
	for _, c := range e.Checks {
		mark := a.painted(green, "✓")
		if !c.OK {
			mark = a.painted(red, "✗")
		}
		a.line("%s %-12s %s", mark, c.Check, oneLine(c.Detail, 300))
		if c.Advice != nil && *c.Advice != "" {
			a.line("  %-12s → %s", "", oneLine(*c.Advice, 300))
		}
	}
}

// examineFolder looks at a folder, and reports whether there is a store to open.
func (a *app) examineFolder(ctx context.Context, e *examination, dir string) bool {
	if missing(dir) {
		e.ill("folder", "ledger run and ledger import make a store; --store or LEDGER_STORE names another", "there is no store at %s", dir)
		return false
	}
	e.well("folder", "%s", dir)
	switch disk := diskOf(dir); {
	case disk.Free == nil:
	case *disk.Free < leastFree:
		e.ill("disk", "free some space, or move the folder", "%s are free", size(*disk.Free))
	case disk.Network:
		e.ill("disk", "keep the folder on a disk of this machine, and let others use ledger serve", "the folder is on %s, whose locks and syncs are another machine's", *disk.Type)
	default:
		e.well("disk", "%s are free", size(*disk.Free))
	}
	var owner embedded.Owner
	if readJSON(filepath.Join(dir, ownerName), &owner) != nil {
		return true
	}
	var at serving
	if readJSON(filepath.Join(dir, servingName), &at) == nil && at.PID == owner.PID && at.Started.Equal(owner.Started) {
		if status, err := a.statusOf(ctx, at); err != nil {
			e.well("serving", "the folder says that process %d serves it at %s, and that does not answer: it was killed, or is about to end", at.PID, at.Address)
		} else {
			e.well("serving", "process %d, ledger %s, at %s: %d subscribers, the last %d records behind", at.PID, status.Version, at.Address, status.Subscribers, status.Lag)
		}
	}
	return true
}

// statusOf asks a process that serves on this machine how it is.
func (a *app) statusOf(ctx context.Context, at serving) (s status, err error) {
	near := nearby(at)
	defer near.Close()
	ctx, cancel := context.WithTimeout(ctx, doctorWaits)
	defer cancel()
	text, err := near.ask(ctx, http.MethodGet, statusPath, nil)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// examineNetwork looks whether the hosts of a connection string are there.
func (a *app) examineNetwork(ctx context.Context, e *examination, at address) {
	_, rest, _ := strings.Cut(at.database, "://")
	hosts, query, _ := strings.Cut(rest, "?")
	values, _ := url.ParseQuery(query) // package eventstoredb tells what is wrong
	if hosts[:strings.LastIndex(hosts, "@")+1] != "" && strings.EqualFold(values.Get("tls"), "false") {
		e.ill("credentials", "remove tls=false, or the user and the password", "a user and a password are given that are never sent, as there is no TLS")
	}
	for host := range strings.SplitSeq(strings.TrimSuffix(hosts[strings.LastIndex(hosts, "@")+1:], "/"), ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2113")
		}
		begun := time.Now()
		dialer := net.Dialer{Timeout: doctorWaits}
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err != nil {
			e.ill("network", "start the server, or check the name, the port and what filters the network", "%s: %s", host, err)
			continue
		}
		_ = conn.Close() // it was opened to see that it can be
		e.well("network", "%s takes connections, after %s", host, brief(time.Since(begun)))
	}
}

// brief returns a short time to the microsecond.
func brief(d time.Duration) string { return d.Round(time.Microsecond).String() }

// examineStore opens the store and looks at what is in it.
func (a *app) examineStore(ctx context.Context, e *examination, at address, write bool) {
	s, err := a.openThere(ctx, at)
	if err != nil {
		e.failed("store", err)
		return
	}
	defer s.Close()
	kind := "opened in this process"
	if s.shared {
		kind = "a server answers"
	}
	e.well("store", "%s", kind)
	if err := a.examineReading(ctx, e, s); err != nil {
		e.failed("reading", err)
		return
	}
	if write {
		a.examineWriting(ctx, e, s)
	}
	if err := a.examineProcesses(ctx, e, s); err != nil {
		e.failed("processes", err)
	}
	if err := a.examineConsumers(ctx, e, s); err != nil {
		e.failed("consumers", err)
	}
}

func (a *app) examineReading(ctx context.Context, e *examination, s *ledgerStore) error {
	var h events.Header
	var any bool
	fastest := time.Duration(0)
	for range tries {
		begun := time.Now()
		var err error
		if h, any, err = s.ledger.Head(ctx); err != nil {
			return err
		}
		if took := time.Since(begun); fastest == 0 || took < fastest {
			fastest = took
		}
	}
	if !any {
		e.well("reading", "the log is empty; it says so in %s", brief(fastest))
		return nil
	}
	e.well("reading", "the last record, at position %s, in %s", h.Position, brief(fastest))
	if ahead := h.Time.Sub(a.now()); ahead > mostSkew {
		e.ill("clocks", "set the clocks of all machines by one source: leases allow for "+runner.LeaseMargin.String(), "the last record is from %s in the future of this machine", ahead.Round(time.Second))
	} else {
		e.well("clocks", "no record is from the future")
	}
	return nil
}

// examineWriting appends a record to a stream of its own.
func (a *app) examineWriting(ctx context.Context, e *examination, s *ledgerStore) {
	length := events.Revision(0)
	for h, err := range events.Headers(ctx, s.store, events.Query{Stream: doctorStream, Backward: true}) {
		if err != nil {
			e.failed("writing", err)
			return
		}
		length = h.Revision
		break
	}
	begun := time.Now()
	err := s.store.Append(ctx, doctorStream, length, events.Record{
		ID: s.ledger.Mint().Event(), Kind: "DoctorProbed", Version: 1, Time: s.ledger.Now(), Data: []byte("{}"),
	})
	if err != nil {
		e.failed("writing", err)
		return
	}
	e.well("writing", "a record is durable after %s", brief(time.Since(begun)))
}

// examineProcesses tells who is at work, and finds clocks that differ by the
// leases.
func (a *app) examineProcesses(ctx context.Context, e *examination, s *ledgerStore) error {
	lives, err := folded(ctx, s, runner.Processes())
	if err != nil {
		return err
	}
	judged := lives.Judge(domain.ProcessID{}, a.now(), !s.shared)
	e.well("processes", "%d at work, %d dead, %d of which nobody can tell", len(judged.Living), len(judged.Dead), len(judged.Unknown))
	if len(judged.Dead) > 0 {
		e.ill("left open", "ledger recover ends what they left", "%s left something open", people(len(judged.Dead), "dead process", "dead processes"))
	}
	return nil
}

func (a *app) examineConsumers(ctx context.Context, e *examination, s *ledgerStore) error {
	desk := a.desk(s)
	all, err := desk.Consumers(ctx)
	if err != nil {
		return consumerFault(err)
	}
	for _, c := range all {
		lag, err := desk.Lag(ctx, c)
		if err != nil {
			return err
		}
		if c.Trouble != nil || len(c.Poison) > 0 {
			e.ill("consumer", "ledger consumer show "+c.Name+" tells more", "%s is %d records behind, has set %d aside", c.Name, lag.Records, len(c.Poison))
			continue
		}
		e.well("consumer", "%s is %d records behind", c.Name, lag.Records)
	}
	return nil
}
