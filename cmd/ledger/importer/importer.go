package importer

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
)

// A Config is what [Run] needs.
type Config struct {
	*render.Printer           // of the report
	*stores.Opener            // of the store that --store names
	Input           io.Reader // the file named -
	Format          string    // of the files, one of transcripts.Formats
}

// Run imports the named files, and the files in the named folders, one at a time. It
// continues after a file that fails, unless ctx ends or the operating system refuses a
// write, and prints a report of all files. It opens or creates the store at the first
// file that it can read, so that a wrong path creates no store.
func Run(ctx context.Context, c Config, names []string) (err error) {
	run := &importRun{Config: c}
	defer func() {
		if run.store != nil {
			err = errors.Join(err, run.store.Close())
		}
	}()
	files, failed := filesOf(c.Format, names)
	run.failed = failed
	for _, f := range files {
		if err := run.importFile(ctx, f); err != nil {
			return err
		}
		if run.refused || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(render.Rows(c.Printer, run.rows, func() { run.printTable() }), importFault(len(files)+len(failed), len(run.rows), run.failed))
}

// An importRun is one call of Run.
type importRun struct {
	Config
	store    *stores.Store         // nil before the first readable file; Run closes it
	importer *transcripts.Importer // of store; nil before the first readable file
	rows     []fileReport          // one for each imported or skipped file
	failed   []*fault.Error        // one for each file that failed
	refused  bool                  // the operating system refused a write
}

// importFile imports or skips a file. It records the error of a file in r.failed, and
// returns an error only if the store cannot be opened, which ends the run.
func (r *importRun) importFile(ctx context.Context, f importedFile) error {
	if f.skipped != "" {
		r.skip(f)
		return nil
	}
	if f.err != nil {
		r.failed = append(r.failed, fault.Of(f.err))
		return nil
	}
	t, err := r.readTranscript(ctx, f.name)
	if f.found && errors.Is(err, transcripts.ErrForeign) {
		f.skipped = strings.TrimPrefix(err.Error(), "read "+f.name+": ")
		r.skip(f)
		return nil
	}
	if err == nil && r.store == nil {
		if r.store, err = r.OpenOrCreate(ctx); err != nil {
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
	r.rows = append(r.rows, fileReport{t.Report.File, render.OrNull(t.Report.Session), nil, t.Report})
	return nil
}

// skip adds a skipped file to the report.
func (r *importRun) skip(f importedFile) {
	empty := transcripts.Report{RefusedLines: []transcripts.RefusedLine{}, Cut: []transcripts.RefusedLine{}, Ignored: map[string]int{}}
	r.rows = append(r.rows, fileReport{f.name, nil, &f.skipped, empty})
}

// An importedFile is a file that the user named, or one found in a named folder.
type importedFile struct {
	name    string // the path, or "-" for the standard input
	found   bool   // found in a folder: a foreign format is then no error
	skipped string // the reason to skip the file; empty: import it
	err     error  // an error of the walk through the folder
}

// filesOf returns the files to import: the files in names and the files below the
// folders in names. For a folder without a file to import it adds an error to failed.
func filesOf(format string, names []string) (files []importedFile, failed []*fault.Error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err != nil || !info.IsDir() {
			files = append(files, importedFile{name: name})
			continue
		}
		if storage := transcripts.OpencodeStorage(name); format == "opencode" && storage != "" {
			files = append(files, importedFile{name: storage})
			if database := filepath.Join(name, "opencode.db"); exists(database) {
				files = append(files, importedFile{name: database})
			}
			continue
		}
		within, err := filesIn(format, name)
		if err == nil && !slices.ContainsFunc(within, func(f importedFile) bool { return f.skipped == "" }) {
			err = fault.WithHint(fmt.Errorf("import %s: no %s is in the folder or below it", name, described(format)), "name the folder that the agent writes to, such as "+folders[format])
		}
		if err != nil {
			failed = append(failed, fault.Of(err))
		}
		files = append(files, within...)
	}
	return files, failed
}

// filesIn returns all files in a folder and below it, by depth and then by name. Files
// of a folder precede the files of its subfolders, so that sessions precede their
// sub-agents. It marks files to skip, and does not follow symbolic links to folders.
func filesIn(format, folder string) (files []importedFile, err error) {
	// WalkDir does not follow a symbolic link as its root, unless a slash ends the
	// path.
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
			} else if !hasExtension(format, path) {
				f.skipped = "no " + described(format)
			}
		case !entry.Type().IsRegular():
			f.skipped = "no file"
		case !hasExtension(format, path):
			f.skipped = "no " + described(format)
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

// extensions are the endings of the names of the session files of each format, and
// folders the folder to which the program of the format writes.
var (
	extensions = map[string][]string{
		"claude-code": {".jsonl"}, "codex": {".jsonl"}, "opencode": {".jsonl", ".json", ".db"}, "atif": {".json"},
	}
	folders = map[string]string{
		"claude-code": "~/.claude/projects", "codex": "~/.codex/sessions", "opencode": "~/.local/share/opencode", "atif": "the one of its runs",
	}
)

// described names the session files of a format by their endings.
func described(format string) string { return "file *" + strings.Join(extensions[format], ", *") }

// hasExtension reports whether a path has the ending of a session file of a format,
// which may be compressed.
func hasExtension(format, path string) bool {
	if path, ok := strings.CutSuffix(path, ".gz"); ok {
		return hasExtension(format, path)
	}
	if path, ok := strings.CutSuffix(path, ".zst"); ok {
		return hasExtension(format, path)
	}
	return slices.Contains(extensions[format], filepath.Ext(path))
}

// exists reports whether there is a regular file at path.
func exists(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// A fileReport is the report of a file. The session is null for a file without a session.
type fileReport struct {
	File    string            `json:"file"`
	Session *domain.SessionID `json:"session"`
	Skipped *string           `json:"skipped"` // the reason to skip a file found in a folder; null: imported
	transcripts.Report
}

// refusedBySystem reports whether an append failed with an error of the operating
// system, such as a full disk. The store stops after such an error, so all later files
// would fail as well.
func refusedBySystem(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}

// importFault returns one error for all failed files, or nil if failed is empty. The
// text of the error has the number of files that were not imported. files is the number
// of all files, including those that were not tried, and imported is the number of
// imported files. The exit status is 1, or 130 if the import of a file was interrupted.
func importFault(files, imported int, failed []*fault.Error) error {
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

// readTranscript reads a whole session file. The name "-" is the standard input.
func (c Config) readTranscript(ctx context.Context, name string) (*transcripts.Transcript, error) {
	if name == "-" {
		return transcripts.Read(c.Format, name, c.Input)
	}
	t, err := transcripts.ReadPath(ctx, c.Format, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, fault.WithHint(fmt.Errorf("import: %w", err), "")
	}
	return t, err
}

// printTable prints a table of the imported files, and then the notes of printNotes.
func (r *importRun) printTable() {
	t := render.Table{
		Head:  []string{"~FILE", "SESSION", "?>RECORDS", ">CALLS", "?>RESULTS", ">OPEN", "?>ORPHANS", ">ERRORS", ">REFUSED", "?>IGNORED", ">ADDED"},
		Empty: "No file was imported.",
	}
	for _, row := range r.rows {
		if row.Skipped != nil {
			continue
		}
		session, ignored := "", 0
		if row.Session != nil {
			session = render.ShortID(*row.Session)
		}
		for _, n := range row.Ignored {
			ignored += n
		}
		t.Add(render.OneLine(row.File, render.TextWidth), session, fmt.Sprint(row.Records), fmt.Sprint(row.Calls), fmt.Sprint(row.Results), fmt.Sprint(row.Open),
			fmt.Sprint(row.OrphanResults), fmt.Sprint(row.Errors), fmt.Sprint(len(row.RefusedLines)), fmt.Sprint(ignored), fmt.Sprint(row.Added))
	}
	r.Table(t)
	r.printNotes()
}

// mostNotes is the maximum number of notes of each kind that printNotes prints. The JSON
// result contains all notes.
const mostNotes = 20

// printNotes prints the parts of files that the import did not record: refused lines, cut
// texts, skipped files, and the number of ignored records by kind.
func (r *importRun) printNotes() {
	var refused, cut, skipped []string
	ignored := map[string]int{}
	for _, row := range r.rows {
		for _, l := range row.RefusedLines {
			refused = append(refused, fmt.Sprintf("%s:%d: refused: %s", row.File, l.Line, l.Reason))
		}
		for _, l := range row.Cut {
			cut = append(cut, fmt.Sprintf("%s:%d: cut: %s", row.File, l.Line, l.Reason))
		}
		for kind, n := range row.Ignored {
			ignored[kind] += n
		}
		if row.Skipped != nil {
			skipped = append(skipped, fmt.Sprintf("%s: passed over: %s", row.File, *row.Skipped))
		}
	}
	for _, notes := range [][]string{refused, cut, skipped} {
		for _, text := range notes[:min(len(notes), mostNotes)] {
			r.Line("%s", r.Styled(render.Yellow, render.OneLine(text, 200)))
		}
		if more := len(notes) - mostNotes; more > 0 {
			r.Line("%s", r.Styled(render.Yellow, fmt.Sprintf("and %d more such; -o json lists them", more)))
		}
	}
	if len(ignored) > 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(ignored)) {
			kinds = append(kinds, fmt.Sprintf("%s %d", render.Printable(kind), ignored[kind]))
		}
		r.Line("%s", r.Styled(render.Dim, "ignored: "+strings.Join(kinds, ", ")))
	}
}
