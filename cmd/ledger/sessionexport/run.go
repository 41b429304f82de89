package sessionexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A Config is the command line of ledger export session.
type Config struct {
	// IDs identify the sessions. Empty: those that Agent, When and Limit select.
	IDs   []string
	Agent string
	When  query.Period
	Limit int
	// To is a file or a folder. Empty: the standard output.
	To     string
	Format Format
	Full   bool
	Raw    bool
}

// filtered reports whether flags select the sessions.
func (c Config) filtered() bool { return c.Agent != "" || c.Limit > 0 || c.When != (query.Period{}) }

// An exportRow is the JSON result for a session.
type exportRow struct {
	Session  domain.SessionID  `json:"session"`
	File     string            `json:"file"`
	Bytes    int64             `json:"bytes"`
	Revision events.Revision   `json:"revision"`
	State    string            `json:"state"`
	Skipped  bool              `json:"skipped"` // the file was there and complete
	Hidden   []redaction.Count `json:"hidden"`
}

// Run exports the sessions that the command line selects and prints what it wrote and hid.
func Run(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, c Config) error {
	selected, err := selectSessions(out, r, c)
	if err != nil {
		return err
	}
	run := &run{Config: c, out: out, from: Source{s.Ledger, func(parent domain.SessionID) ([]calls.Session, error) {
		return plainSessions(r.Sessions(index.SessionQuery{Parent: parent}))
	}}}
	for _, session := range selected {
		run.total += uint64(session.Revision)
	}
	folder, err := isFolder(c.To, len(selected))
	if err != nil {
		return err
	}
	run.bar = out.Progress()
	defer run.bar.End()
	switch {
	case c.To == "" && len(selected) > 1:
		return fault.Usage("%s are selected, which one file cannot hold: name a folder with --to FOLDER/", render.Count(len(selected), "session"))
	case c.To == "":
		redactor := run.redactor()
		err := run.write(ctx, out.Out, selected[0], redactor)
		run.bar.End()
		if err == nil {
			run.reportHidden(redactor.Counts())
		}
		return err
	case folder:
		err = run.toFolder(ctx, selected)
	default:
		err = run.toFile(ctx, c.To, selected[0])
	}
	run.bar.End()
	if err != nil && len(run.rows) == 0 {
		return err
	}
	return errors.Join(err, run.report())
}

// selectSessions returns the sessions that the command line names or its flags select.
func selectSessions(out *render.Printer, r *index.Snapshot, c Config) (selected []calls.Session, err error) {
	if len(c.IDs) > 0 && c.filtered() {
		return nil, fault.Usage("sessions are named, so --agent, --since, --until and --limit have nothing to select: leave out either")
	}
	if len(c.IDs) == 0 && !c.filtered() {
		return nil, fault.Usage("no session is named: name one, such as @last, or select some with --agent, --since, --until or --limit")
	}
	if len(c.IDs) == 0 {
		if err := errors.Join(c.When.Resolve(out), query.CheckLimit(c.Limit), query.CheckAgent(r, c.Agent)); err != nil {
			return nil, err
		}
		from, to := c.When.Bounds()
		selected, err = plainSessions(r.Sessions(index.SessionQuery{Agent: c.Agent, From: from, To: to, Limit: c.Limit}))
		if err == nil && len(selected) == 0 {
			err = fault.NotFound("ledger session ls lists all sessions", "the filters select no session")
		}
		return selected, err
	}
	seen := map[domain.SessionID]bool{}
	for _, id := range c.IDs {
		s, err := query.Session(r, id)
		if err != nil {
			return nil, err
		}
		if !seen[s.ID] {
			seen[s.ID] = true
			selected = append(selected, s)
		}
	}
	return selected, nil
}

// plainSessions returns the sessions of a list without the sums of the index.
func plainSessions(list []index.Session, err error) ([]calls.Session, error) {
	all := make([]calls.Session, len(list))
	for i, s := range list {
		all[i] = s.Session
	}
	return all, err
}

// isFolder reports whether an export is written into a folder: if --to is one, ends with a
// slash, or several sessions are exported.
func isFolder(to string, sessions int) (bool, error) {
	if to == "" {
		return false, nil
	}
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
		return true, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	case err == nil && sessions > 1:
		return false, fault.Usage("--to %s is a file, and %s are selected: name a folder", to, render.Count(sessions, "session"))
	}
	return sessions > 1 || strings.HasSuffix(to, "/") || strings.HasSuffix(to, string(os.PathSeparator)), nil
}

// A run is an export in progress.
type run struct {
	Config
	out  *render.Printer
	from Source
	rows []exportRow
	bar  *render.ProgressBar
	// done and total count the events of all sessions.
	done, total uint64
}

// redactor returns the Redactor of one file, so that its marks do not depend on others.
func (r *run) redactor() *redaction.Redactor {
	if r.Raw {
		return nil
	}
	return redaction.New()
}

// write writes a session and reports the progress.
func (r *run) write(ctx context.Context, to io.Writer, s calls.Session, redactor *redaction.Redactor) error {
	opts := Options{Format: r.Format, Full: r.Full, Redactor: redactor}
	err := Write(ctx, to, r.from, s, opts, func(at events.Revision) {
		done := r.done + uint64(at)
		r.bar.Show("export", render.Records, int64(done), done, r.total)
	})
	r.done += uint64(s.Revision)
	return err
}

// toFile writes a session to a file.
func (r *run) toFile(ctx context.Context, path string, s calls.Session) error {
	redactor := r.redactor()
	done, err := writeFile(path, func(to io.Writer) error { return r.write(ctx, to, s, redactor) })
	if err == nil {
		r.rows = append(r.rows, r.row(path, s, done, redactor))
	}
	return err
}

// row returns the result of a written session.
func (r *run) row(path string, s calls.Session, done written, redactor *redaction.Redactor) exportRow {
	return exportRow{Session: s.ID, File: path, Bytes: done.bytes, Revision: s.Revision, State: session{Session: s}.state(), Hidden: redactor.Counts()}
}

// toFolder writes each session to a file of the folder, except those that it has.
func (r *run) toFolder(ctx context.Context, selected []calls.Session) error {
	if err := os.MkdirAll(r.To, 0o700); err != nil {
		return err
	}
	complete, err := openManifest(r.To)
	if err != nil {
		return err
	}
	for _, s := range selected {
		line := manifestLine{
			File: s.ID.String() + extensions[r.Format], Session: s.ID, Revision: s.Revision, Format: r.Format, Version: formatVersion, Full: r.Full, Redacted: !r.Raw,
		}
		path := filepath.Join(r.To, line.File)
		if complete.has(line) {
			r.done += uint64(s.Revision)
			r.rows = append(r.rows, exportRow{
				Session: s.ID, File: path, Bytes: complete.files[line.File].Bytes, Revision: s.Revision, State: session{Session: s}.state(), Skipped: true, Hidden: []redaction.Count{},
			})
			continue
		}
		redactor := r.redactor()
		done, err := writeFile(path, func(to io.Writer) error { return r.write(ctx, to, s, redactor) })
		if err != nil {
			return err
		}
		line.Bytes, line.SHA256 = done.bytes, done.sha256
		if err := complete.add(line); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(r.To, manifestName), err)
		}
		r.rows = append(r.rows, r.row(path, s, done, redactor))
	}
	return nil
}

// report prints the files and the number of hidden texts.
func (r *run) report() error {
	return render.Rows(r.out, r.rows, func() {
		t := render.Table{Head: []string{"SESSION", "STATE", ">EVENTS", ">SIZE", "~FILE"}, Empty: "Nothing was written."}
		var hidden []redaction.Count
		for _, row := range r.rows {
			file := render.Printable(row.File)
			if row.Skipped {
				file += " (was there)"
			}
			t.Add(render.ShortID(row.Session), row.State, fmt.Sprint(row.Revision), render.Bytes(row.Bytes), file)
			hidden = append(hidden, row.Hidden...)
		}
		r.out.Table(t)
		r.reportHidden(hidden)
	})
}

// reportHidden writes the number of hidden texts of each rule to the standard error.
func (r *run) reportHidden(counts []redaction.Count) {
	if r.Raw {
		fmt.Fprintln(r.out.Err, "hint: nothing was hidden (--raw): the export may have keys, tokens and names")
		return
	}
	sums := map[string]int{}
	for _, c := range counts {
		sums[c.Rule] += c.Hidden
	}
	var parts []string
	for _, rule := range redaction.Rules() {
		if n := sums[rule.Name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", rule.Name, n))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing"}
	}
	fmt.Fprintf(r.out.Err, "hidden: %s\n", strings.Join(parts, ", "))
}

// formatVersion is the version of the files: it rises when any format changes.
const formatVersion = 1
