package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/transcripts"
	"github.com/spf13/cobra"
)

func (a *app) importCommand() *cobra.Command {
	return a.group("import", "Import: read the session files of other agents", a.importClaude())
}

func (a *app) importClaude() *cobra.Command {
	return &cobra.Command{
		Use: "claude-code FILE...", Short: "Read session files of Claude Code as sessions",
		Long: `Read session files of Claude Code as sessions: prompts, replies, calls and how
they ended, with their own times. What was offered is recorded as observed, by
the names of the tools alone. A file that was imported before adds only what is
new in it. FILE - is the standard input.`,
		Example: "  ledger import claude-code session.jsonl\n  ledger import claude-code -o json ~/.claude/projects/*/*.jsonl\n  zcat old.jsonl.gz | ledger import claude-code -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misuse("no file is named: ledger import claude-code FILE...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.importFiles(cmd.Context(), args) },
	}
}

// importFiles imports files one after the other. One that fails does not stop
// those behind it, unless the run is interrupted or the system refuses to
// write. The store is opened once there is something to import.
func (a *app) importFiles(ctx context.Context, names []string) (err error) {
	var s *ledgerStore
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	reports := []transcripts.Report{}
	var failed []*fault
	for _, name := range names {
		t, err := a.readTranscript(name)
		if err == nil && s == nil {
			if s, err = a.create(ctx); err != nil {
				return err
			}
		}
		refused := false
		if err == nil {
			_, err = t.Import(ctx, s.ledger)
			refused = refusedBySystem(err)
		}
		if err != nil {
			failed = append(failed, faultOf(err))
		} else {
			reports = append(reports, t.Report)
		}
		if refused || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(emit(a, importRowsOf(reports), func() { a.importPage(reports) }), a.importFault(len(names), len(reports), failed))
}

// An importRow is the report of a file. A file that says nothing has no session.
type importRow struct {
	File    string            `json:"file"`
	Session *domain.SessionID `json:"session"`
	transcripts.Report
}

func importRowsOf(reports []transcripts.Report) []importRow {
	rows := make([]importRow, len(reports))
	for i, r := range reports {
		rows[i] = importRow{r.File, opt(r.Session), r}
	}
	return rows
}

// refusedBySystem reports whether an append failed because the system would not
// write. The store stops at that, and what is left would fail alike.
func refusedBySystem(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}

// importFault tells of all files that failed, and of how many were not tried
// then. With several it is a failure, whatever each of them was.
func (a *app) importFault(files, imported int, failed []*fault) error {
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == 1 && (files == 1 || failed[0].exit == exitInterrupted):
		f := *failed[0]
		if f.exit != exitInterrupted {
			f.exit = exitFailed
		}
		return &f
	}
	texts := make([]string, len(failed))
	exit := exitFailed
	for i, f := range failed {
		texts[i] = f.Error()
		if f.exit == exitInterrupted {
			exit = exitInterrupted
		}
	}
	return &fault{
		exit: exit, code: "import_failed", hint: failed[0].hint,
		err: fmt.Errorf("%d of %d files are not imported: %s", files-imported, files, strings.Join(texts, "; ")),
	}
}

// readTranscript reads a file to its end.
func (a *app) readTranscript(name string) (*transcripts.Transcript, error) {
	r, err := a.openFile(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return transcripts.ReadClaudeCode(name, r)
}

// openFile opens a file to read; "-" is the standard input.
func (a *app) openFile(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.in), nil
	}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		f := misuse("import %s: it is a folder", name)
		f.exit, f.hint = exitFailed, "name the files in it: "+name+"/*.jsonl"
		return nil, f
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, hinted(fmt.Errorf("import: %w", err), "")
	}
	return f, nil
}

func (a *app) importPage(reports []transcripts.Report) {
	t := table{
		head:  []string{"FILE", "SESSION", ">RECORDS", ">CALLS", ">RESULTS", ">OPEN", ">ORPHANS", ">ERRORS", ">REFUSED", ">ADDED"},
		empty: "No file was imported.",
	}
	for _, r := range reports {
		session := ""
		if r.Session != (domain.SessionID{}) {
			session = short(r.Session)
		}
		t.add(oneLine(r.File, textWidth), session, fmt.Sprint(r.Records), fmt.Sprint(r.Calls), fmt.Sprint(r.Results), fmt.Sprint(r.Open),
			fmt.Sprint(r.OrphanResults), fmt.Sprint(r.Errors), fmt.Sprint(len(r.RefusedLines)), fmt.Sprint(r.Added))
	}
	a.write(t)
	for _, r := range reports {
		for _, refused := range r.RefusedLines {
			a.line("%s", a.painted(yellow, oneLine(fmt.Sprintf("%s:%d: refused: %s", r.File, refused.Line, refused.Reason), 200)))
		}
	}
}
