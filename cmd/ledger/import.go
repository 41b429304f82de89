package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/transcripts"
	"github.com/spf13/cobra"
)

// importCommand returns the command import, which has a subcommand for each format.
func (a *app) importCommand() *cobra.Command {
	return a.group("import", "Import: read the session files of other agents", a.importClaude())
}

// importClaude returns the command import claude-code.
func (a *app) importClaude() *cobra.Command {
	return &cobra.Command{
		Use: "claude-code FILE|FOLDER...", Short: "Read session files of Claude Code as sessions",
		Long: `Read session files of Claude Code as sessions: prompts, replies, calls and how
they ended, settings, hooks and what else surrounds calls, with their own times.
What was offered is recorded as observed, by the names of the tools alone. A file
that was imported before adds only what is new in it. FILE - is the standard
input.

Of a FOLDER all files *.jsonl are read, those in the folders below it too, as in
~/.claude/projects: sessions, and their sub-agents in */subagents/*.jsonl. Files
there that are something else are named and passed over. Links to folders are not
followed.

A sub-agent is a session of its own. It finds the session and the call that began
it in whatever order their files are imported, and one that is both in its own
file and in the progress of that call is one session.`,
		Example: "  ledger import claude-code session.jsonl\n  ledger import claude-code ~/.claude/projects\n" +
			"  ledger import claude-code -o json ~/.claude/projects/*/*.jsonl ~/.claude/projects/*/*/subagents/*.jsonl\n  zcat old.jsonl.gz | ledger import claude-code -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.Usage("no file is named: ledger import claude-code FILE|FOLDER...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.importFiles(cmd.Context(), args) },
	}
}

// importFiles imports the named files, and the files in the named folders, one at a time. It
// continues after a file that fails, unless ctx ends or the operating system refuses a write,
// and prints a report of all files. It opens or creates the store at the first file that it
// can read, so that a wrong path creates no store.
func (a *app) importFiles(ctx context.Context, names []string) (err error) {
	run := &importing{app: a}
	defer func() {
		if run.store != nil {
			err = errors.Join(err, run.store.Close())
		}
	}()
	files, failed := filesOf(names)
	run.failed = failed
	for _, f := range files {
		if err := run.importFile(ctx, f); err != nil {
			return err
		}
		if run.refused || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(render.Rows(a.Printer, run.rows, func() { a.importPage(run.rows) }), a.importFault(len(files)+len(failed), len(run.rows), run.failed))
}

// An importing is one run of the import command.
type importing struct {
	app      *app
	store    *stores.Store         // nil before the first readable file; importFiles closes it
	importer *transcripts.Importer // of store; nil before the first readable file
	rows     []importRow           // one for each imported or skipped file
	failed   []*fault.Error        // one for each file that failed
	refused  bool                  // the operating system refused a write
}

// importFile imports or skips a file. It records the error of a file in r.failed, and returns
// an error only if the store cannot be opened, which ends the run.
func (r *importing) importFile(ctx context.Context, f importedFile) error {
	if f.skipped != "" {
		r.skip(f)
		return nil
	}
	if f.err != nil {
		r.failed = append(r.failed, fault.Of(f.err))
		return nil
	}
	t, err := r.app.readTranscript(f.name)
	if f.found && errors.Is(err, transcripts.ErrForeign) {
		f.skipped = strings.TrimPrefix(err.Error(), "read "+f.name+": ")
		r.skip(f)
		return nil
	}
	if err == nil && r.store == nil {
		if r.store, err = r.app.OpenOrCreate(ctx); err != nil {
			return err
		}
	}
	if err == nil && r.importer == nil {
		r.importer, err = transcripts.NewImporter(ctx, r.store.Ledger)
	}
	if err == nil {
		_, err = r.importer.Import(ctx, t)
		r.refused = refusedBySystem(err)
	}
	if err != nil {
		r.failed = append(r.failed, fault.Of(err))
		return nil
	}
	r.rows = append(r.rows, importRow{t.Report.File, render.OrNull(t.Report.Session), nil, t.Report})
	return nil
}

// skip adds a skipped file to the report.
func (r *importing) skip(f importedFile) {
	empty := transcripts.Report{RefusedLines: []transcripts.RefusedLine{}, Cut: []transcripts.RefusedLine{}, Ignored: map[string]int{}}
	r.rows = append(r.rows, importRow{f.name, nil, &f.skipped, empty})
}

// An importedFile is a file that the user named, or one found in a named folder.
type importedFile struct {
	name    string // the path, or "-" for the standard input
	found   bool   // found in a folder: a foreign format is then no error
	skipped string // the reason to skip the file; empty: import it
	err     error  // an error of the walk through the folder
}

// filesOf expands names, files and folders, to the files to import. A folder without a file to
// import is an error in failed.
func filesOf(names []string) (files []importedFile, failed []*fault.Error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err != nil || !info.IsDir() {
			files = append(files, importedFile{name: name})
			continue
		}
		within, err := filesIn(name)
		if err == nil && !slices.ContainsFunc(within, func(f importedFile) bool { return f.skipped == "" }) {
			err = fault.WithHint(fmt.Errorf("import %s: no file *.jsonl is in the folder or below it", name), "name the folder that the agent writes to, such as ~/.claude/projects")
		}
		if err != nil {
			failed = append(failed, fault.Of(err))
		}
		files = append(files, within...)
	}
	return files, failed
}

// filesIn returns all files in a folder and below it, by depth and then by name. Files of a
// folder precede the files of its subfolders, so that sessions precede their sub-agents. It
// marks files to skip, and does not follow symbolic links to folders.
func filesIn(folder string) (files []importedFile, err error) {
	// WalkDir does not follow a symbolic link as its root, unless a slash ends the path.
	err = filepath.WalkDir(strings.TrimRight(folder, "/")+"/", func(path string, entry fs.DirEntry, err error) error {
		f := importedFile{name: filepath.Clean(path), found: true}
		switch {
		case err != nil:
			f.err = fmt.Errorf("import: %w", err)
		case entry.IsDir():
			return nil
		case entry.Type()&fs.ModeSymlink != 0:
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				f.skipped = "a link, and not to a file"
			} else if filepath.Ext(path) != ".jsonl" {
				f.skipped = "no file *.jsonl"
			}
		case !entry.Type().IsRegular():
			f.skipped = "no file"
		case filepath.Ext(path) != ".jsonl":
			f.skipped = "no file *.jsonl"
		}
		files = append(files, f)
		if err != nil && entry != nil && entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return files, fmt.Errorf("import: %w", err)
	}
	// WalkDir visits a subfolder before the later files of its parent.
	depth := func(f importedFile) int { return strings.Count(f.name, string(filepath.Separator)) }
	slices.SortStableFunc(files, func(a, b importedFile) int { return depth(a) - depth(b) })
	return files, nil
}

// An importRow is the report of a file. The session is null for a file without a session.
type importRow struct {
	File    string            `json:"file"`
	Session *domain.SessionID `json:"session"`
	Skipped *string           `json:"skipped"` // the reason to skip a file found in a folder; null: imported
	transcripts.Report
}

// refusedBySystem reports whether an append failed with an error of the operating system, such
// as a full disk. The store stops after such an error, so all later files would fail as well.
func refusedBySystem(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}

// importFault returns one error for all failed files, or nil if no file failed. Its text counts
// the files that were not imported, including files not tried: files is the number of all files
// and imported the number of rows. The exit status is 1, or 130 if a file was interrupted.
func (a *app) importFault(files, imported int, failed []*fault.Error) error {
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == 1 && (files == 1 || failed[0].Exit == fault.ExitInterrupted):
		f := *failed[0]
		if f.Exit != fault.ExitInterrupted {
			f.Exit = fault.ExitFailed
		}
		return &f
	}
	texts := make([]string, len(failed))
	exit := fault.ExitFailed
	for i, f := range failed {
		texts[i] = f.Error()
		if f.Exit == fault.ExitInterrupted {
			exit = fault.ExitInterrupted
		}
	}
	return &fault.Error{
		Exit: exit, Code: "import_failed", Hint: failed[0].Hint,
		Err: fmt.Errorf("%d of %d files are not imported: %s", files-imported, files, strings.Join(texts, "; ")),
	}
}

// readTranscript reads and parses a whole session file.
func (a *app) readTranscript(name string) (*transcripts.Transcript, error) {
	r, err := a.openFile(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return transcripts.ReadClaudeCode(name, r)
}

// openFile opens a file for reading; "-" is the standard input. The caller closes it, which does
// not close the standard input.
func (a *app) openFile(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.in), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("import: %w", err), "")
	}
	return f, nil
}

// importPage prints a table of the imported files, and notes about the rest.
func (a *app) importPage(rows []importRow) {
	t := render.Table{
		Head:  []string{"~FILE", "SESSION", "?>RECORDS", ">CALLS", "?>RESULTS", ">OPEN", "?>ORPHANS", ">ERRORS", ">REFUSED", "?>IGNORED", ">ADDED"},
		Empty: "No file was imported.",
	}
	for _, r := range rows {
		if r.Skipped != nil {
			continue
		}
		session, ignored := "", 0
		if r.Session != nil {
			session = render.ShortID(*r.Session)
		}
		for _, n := range r.Ignored {
			ignored += n
		}
		t.Add(render.OneLine(r.File, render.TextWidth), session, fmt.Sprint(r.Records), fmt.Sprint(r.Calls), fmt.Sprint(r.Results), fmt.Sprint(r.Open),
			fmt.Sprint(r.OrphanResults), fmt.Sprint(r.Errors), fmt.Sprint(len(r.RefusedLines)), fmt.Sprint(ignored), fmt.Sprint(r.Added))
	}
	a.Table(t)
	a.importNotes(rows)
}

// mostNotes is the maximum number of notes of each kind in importNotes. JSON contains them all.
const mostNotes = 20

// importNotes prints the parts of files that the import did not record: refused lines, cut
// texts, skipped files, and the number of ignored records by kind.
func (a *app) importNotes(rows []importRow) {
	var refused, cut, skipped []string
	ignored := map[string]int{}
	for _, r := range rows {
		for _, l := range r.RefusedLines {
			refused = append(refused, fmt.Sprintf("%s:%d: refused: %s", r.File, l.Line, l.Reason))
		}
		for _, l := range r.Cut {
			cut = append(cut, fmt.Sprintf("%s:%d: cut: %s", r.File, l.Line, l.Reason))
		}
		for kind, n := range r.Ignored {
			ignored[kind] += n
		}
		if r.Skipped != nil {
			skipped = append(skipped, fmt.Sprintf("%s: passed over: %s", r.File, *r.Skipped))
		}
	}
	for _, notes := range [][]string{refused, cut, skipped} {
		for _, text := range notes[:min(len(notes), mostNotes)] {
			a.Line("%s", a.Styled(render.Yellow, render.OneLine(text, 200)))
		}
		if more := len(notes) - mostNotes; more > 0 {
			a.Line("%s", a.Styled(render.Yellow, fmt.Sprintf("and %d more such; -o json lists them", more)))
		}
	}
	if len(ignored) > 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(ignored)) {
			kinds = append(kinds, fmt.Sprintf("%s %d", render.Printable(kind), ignored[kind]))
		}
		a.Line("%s", a.Styled(render.Dim, "ignored: "+strings.Join(kinds, ", ")))
	}
}
