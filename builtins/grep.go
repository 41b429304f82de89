package builtins

import (
	"context"
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/filesearch"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed grep.md
var grepDescription string

// grepArgs is the input of the tool grep.
type grepArgs struct {
	Pattern string `json:"pattern" jsonschema:"a regular expression"`
	Path    string `json:"path,omitempty" jsonschema:"the file or directory to search; the workspace where there is none"`
	Include string `json:"include,omitempty" jsonschema:"which files, such as *.go"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many matches to return at most"`
}

// grepResult is the output of the tool grep.
type grepResult struct {
	Matches   []filesearch.Match `json:"matches"` // by path and line
	Truncated bool               `json:"truncated,omitempty"`
	Total     int                `json:"total"`            // how many lines match, returned or not
	Unread    []string           `json:"unread,omitempty"` // files and directories that could not be read
	Withheld  withheldFiles      `json:"left_out,omitzero"`
}

// A grepTool is the tool grep.
type grepTool struct{ Config }

// tool returns the domain.Tool of grep.
func (g grepTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[grepArgs, grepResult]{
		Description: grepDescription,
		Input:       domain.Constrained[grepArgs](`{"properties":{"pattern":{"minLength":1},"limit":{"minimum":1}}}`),
		Execute:     g.grep,
		Present:     presentGrep,
		Idempotent:  true,
		AsksFirst:   true,
		Title:       func(in grepArgs) string { return searchTitle(in.Pattern, in.Path) },
	})
}

// grep executes one call. It compiles the expression, asks for permission to search for
// it, and searches the file, or all files of the directory that the call may read.
func (g grepTool) grep(ctx context.Context, in grepArgs, inv domain.Invocation) (grepResult, error) {
	expression, err := filesearch.CompileExpression(in.Pattern)
	if err != nil {
		return grepResult{}, failure(err, "Unable to grep for %s", in.Pattern)
	}
	include, err := filesearch.ParseGlob(in.Include) // the pattern of an empty Include is not used
	if err != nil {
		return grepResult{}, failure(err, "Unable to grep for %s: include %s", in.Pattern, in.Include)
	}
	held, err := g.acquireDirectory(ctx, inv, in.Path)
	if err != nil {
		return grepResult{}, pathFailure(err, "Unable to grep for %s", in.Pattern)
	}
	defer held.release()
	if err := g.assertOne(ctx, inv, held, "grep", in.Pattern, map[string]any{"root": g.Workspace.Path(), "path": held.resolved.Path, "include": in.Include, "limit": in.Limit}, nil); err != nil {
		return grepResult{}, err
	}
	search := textSearch{expression: expression, include: include, in: in}
	out, err := g.searchTarget(ctx, inv, held, search)
	if refused, ok := err.(verbatimError); ok {
		return grepResult{}, refused.error
	}
	if err != nil {
		return grepResult{}, failure(err, "Unable to grep for %s", in.Pattern)
	}
	return out, nil
}

// A textSearch is the parsed input of one call.
type textSearch struct {
	expression filesearch.Expression
	include    filesearch.Glob // not used if in.Include is empty
	in         grepArgs
}

// A verbatimError wraps an error of a permission or of Config.FileVersions, so that the
// tool returns that error unchanged and not as a failure.
type verbatimError struct{ error }

// searchTarget searches the opened file, or the files below the opened directory in the
// order of their paths. It returns a verbatimError if the permission refuses.
func (g grepTool) searchTarget(ctx context.Context, inv domain.Invocation, held *acquiredPath, s textSearch) (grepResult, error) {
	handle, err := held.verifiedHandle()
	if err != nil {
		return grepResult{}, err
	}
	info, err := handle.Stat()
	if err != nil {
		return grepResult{}, err
	}
	names, unread := []string{""}, []string(nil) // the file itself
	if info.IsDir() {
		if names, unread, err = g.listCandidates(ctx, handle, s); err != nil {
			return grepResult{}, err
		}
	}
	shown, left, err := g.filterPermitted(ctx, inv, held, "grep", names)
	if err != nil {
		return grepResult{}, verbatimError{err}
	}
	lines := filesearch.NewLineScanner(s.expression, resultLimit(s.in.Limit), maxResultBytes)
	if info.IsDir() {
		err = g.scanDirectory(ctx, handle, s, lines, shown)
	} else if len(shown) > 0 {
		err = scanFile(ctx, handle, lines)
	}
	if err != nil {
		return grepResult{}, err
	}
	return grepResult{Matches: lines.Matches, Truncated: lines.Total > len(lines.Matches), Total: lines.Total, Unread: append(unread, lines.Unread...), Withheld: left}, nil
}

// scanFile searches an opened file.
func scanFile(ctx context.Context, h *workspace.Handle, lines *filesearch.LineScanner) error {
	f, err := h.Open()
	if err != nil {
		return err
	}
	return lines.Scan(ctx, f, h.Resolved().Path)
}

// scanDirectory searches the named files of an opened directory in the order of their
// paths.
func (g grepTool) scanDirectory(ctx context.Context, h *workspace.Handle, s textSearch, lines *filesearch.LineScanner, names []string) error {
	names, err := g.filterByLiteral(ctx, h, s, names)
	if err != nil {
		return err
	}
	tree, err := h.Tree()
	if err != nil {
		return err
	}
	defer tree.Close()
	for _, name := range names {
		if err := lines.ScanNamed(ctx, tree, name, path.Join(h.Resolved().Path, name)); err != nil {
			return err
		}
	}
	return nil
}

// listCandidates lists the files below the directory that match include and are not
// ignored, and the absolute paths of unreadable directories.
func (g grepTool) listCandidates(ctx context.Context, h *workspace.Handle, s textSearch) (names, unread []string, err error) {
	listed, err := g.lister().List(ctx, h, "")
	if err != nil {
		return nil, nil, err
	}
	for _, name := range listed.Files {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if s.in.Include == "" || s.include.MatchesWithDots(name) {
			names = append(names, name)
		}
	}
	return names, absolutePaths(h.Resolved(), listed.Unread), nil
}

// filterByLiteral sorts names. If there is a search program, it also drops files that
// do not contain the literal text that every match contains. Without a program it keeps
// all files, because reading a file twice costs more than searching it once.
func (g grepTool) filterByLiteral(ctx context.Context, h *workspace.Handle, s textSearch, names []string) ([]string, error) {
	literal := s.expression.Literal()
	if g.SearchProgram != "" && literal != "" {
		listed, err := g.lister().List(ctx, h, literal)
		if err != nil {
			return nil, err
		}
		holding := make(map[string]bool, len(listed.Files))
		for _, name := range listed.Files {
			holding[name] = true
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !holding[name] })
	}
	slices.Sort(names)
	return names, nil
}

// presentGrep renders the output for the model: the matching lines grouped by file, with
// notes about further matches, unreadable files and withheld files.
func presentGrep(_ grepArgs, out domain.Encoded[grepResult]) []domain.Content {
	g, err := out.Value()
	if err != nil {
		return nil
	}
	var b strings.Builder
	if g.Total == 0 {
		b.WriteString("No files found")
	} else {
		fmt.Fprintf(&b, "Found %d matches", g.Total)
	}
	last := ""
	for i, m := range g.Matches {
		if m.Path != last {
			if i > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "\n%s:", m.Path)
			last = m.Path
		}
		fmt.Fprintf(&b, "\n  Line %d: %s", m.Line, m.Text)
	}
	if g.Truncated {
		fmt.Fprintf(&b, "\n\n(%d of %d matches; narrow the search or raise limit)", len(g.Matches), g.Total)
	}
	if len(g.Unread) > 0 {
		fmt.Fprintf(&b, "\n\n(%d files or directories could not be read, such as %s)", len(g.Unread), g.Unread[0])
	}
	b.WriteString(g.Withheld.String())
	return []domain.Content{domain.Text(b.String())}
}
