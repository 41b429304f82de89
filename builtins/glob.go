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

//go:embed glob.md
var globDescription string

// globArgs is the input of the tool glob.
type globArgs struct {
	Pattern string `json:"pattern" jsonschema:"which files: such as **/*.go"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to search; the workspace where there is none"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many files to return at most"`
}

// globResult is the output of the tool glob.
type globResult struct {
	Entries   []dirEntry    `json:"entries"` // by absolute path, in order
	Truncated bool          `json:"truncated,omitempty"`
	Total     int           `json:"total"`            // how many files were found, returned or not
	Unread    []string      `json:"unread,omitempty"` // directories that could not be read
	Withheld  withheldFiles `json:"left_out,omitzero"`
}

// absolutePaths returns the absolute paths of names in a directory.
func absolutePaths(t workspace.ResolvedPath, names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, path.Join(t.Path, name))
	}
	return paths
}

// maxResults is the maximum number of files or matches that one call returns.
const maxResults = 100_000

// maxResultBytes is the approximate maximum size of the files or matches that one call
// returns, in bytes of JSON.
const maxResultBytes = 16 << 20

// resultLimit returns the limit of a call: limit, but at most maxResults. Zero means
// maxResults.
func resultLimit(limit int) int {
	if limit == 0 {
		return maxResults
	}
	return min(limit, maxResults)
}

// A globTool is the tool glob.
type globTool struct{ Config }

// tool returns the domain.Tool of glob.
func (g globTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[globArgs, globResult]{
		Description: globDescription,
		Input:       domain.Constrained[globArgs](`{"properties":{"pattern":{"minLength":1},"limit":{"minimum":1}}}`),
		Execute:     g.glob,
		Present:     presentGlob,
		Idempotent:  true,
		AsksFirst:   true,
		Title:       func(in globArgs) string { return searchTitle(in.Pattern, in.Path) },
	})
}

// glob executes one call. It asks for permission to list files by the pattern, lists the
// directory without ignored files and matches their names. It withholds files that the
// call may not read, and returns the others sorted by path, up to the limits.
func (g globTool) glob(ctx context.Context, in globArgs, inv domain.Invocation) (globResult, error) {
	pattern, err := filesearch.ParseGlob(in.Pattern)
	if err != nil {
		return globResult{}, failure(err, "Unable to find files matching %s", in.Pattern)
	}
	held, err := g.acquireDirectory(ctx, inv, in.Path)
	if err != nil {
		return globResult{}, pathFailure(err, "Unable to find files matching %s", in.Pattern)
	}
	defer held.release()
	target := held.resolved
	if err := g.assertOne(ctx, inv, held, "glob", in.Pattern, map[string]any{"root": g.Workspace.Path(), "path": target.Path, "limit": in.Limit}, nil); err != nil {
		return globResult{}, err
	}
	handle, err := held.verifiedHandle()
	var listed filesearch.Listing
	if err == nil {
		listed, err = g.lister().List(ctx, handle, "")
	}
	if err != nil {
		return globResult{}, failure(err, "Unable to find files matching %s", in.Pattern)
	}
	var names []string
	for _, name := range listed.Files {
		if ctx.Err() != nil {
			return globResult{}, context.Cause(ctx)
		}
		if pattern.Matches(name) {
			names = append(names, name)
		}
	}
	shown, left, err := g.filterPermitted(ctx, inv, held, "glob", names)
	if err != nil {
		return globResult{}, err
	}
	slices.Sort(shown)
	out := globResult{Entries: []dirEntry{}, Unread: absolutePaths(target, listed.Unread), Total: len(shown), Withheld: left}
	room := maxResultBytes
	for _, name := range shown[:min(len(shown), resultLimit(in.Limit))] {
		if room -= len(target.Path) + len(name) + entryOverhead; room < 0 {
			break
		}
		out.Entries = append(out.Entries, dirEntry{path.Join(target.Path, name), "file"})
	}
	out.Truncated = out.Total > len(out.Entries)
	return out, nil
}

// searchTitle returns the title of a search for a pattern in path, which is empty for the
// workspace.
func searchTitle(pattern, path string) string {
	if path == "" {
		return pattern
	}
	return pattern + " in " + path
}

// lister returns the Lister of the workspace.
func (c Config) lister() filesearch.Lister {
	return filesearch.Lister{Root: c.Workspace, Program: c.SearchProgram}
}

// acquireDirectory resolves and opens the directory at the path where; an empty path is
// the workspace. It asks for external_directory if the directory lies outside the
// workspace. If the path cannot be resolved or opened, it returns a pathUnusable. It
// returns an error of the permission unchanged. The caller releases the result.
func (c Config) acquireDirectory(ctx context.Context, inv domain.Invocation, where string) (*acquiredPath, error) {
	if where == "" {
		where = "."
	}
	target, err := c.Workspace.Resolve(where)
	if err != nil {
		return nil, pathUnusable{err}
	}
	held := c.acquire(target)
	if err := c.assertExternal(ctx, inv, held); err != nil {
		held.release()
		return nil, err
	}
	return held, nil
}

// A pathUnusable wraps an error of resolving or opening a path, which becomes a failure
// for the model. The tools return an error of a permission unchanged instead.
type pathUnusable struct{ error }

// pathFailure converts a pathUnusable into a failure for the model and returns any other
// error unchanged.
func pathFailure(err error, format string, args ...any) error {
	if unusable, ok := err.(pathUnusable); ok {
		return failure(unusable.error, format, args...)
	}
	return err
}

// presentGlob renders the output for the model: one path on each line, with notes about
// further files, unreadable directories and withheld files.
func presentGlob(_ globArgs, out domain.Encoded[globResult]) []domain.Content {
	g, err := out.Value()
	if err != nil {
		return nil
	}
	var b strings.Builder
	if len(g.Entries) == 0 {
		b.WriteString("No files found")
	}
	for i, e := range g.Entries {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Path)
	}
	if g.Truncated {
		fmt.Fprintf(&b, "\n\n(%d of %d files; narrow the pattern or raise limit)", len(g.Entries), g.Total)
	}
	if len(g.Unread) > 0 {
		fmt.Fprintf(&b, "\n\n(%d directories could not be read, such as %s)", len(g.Unread), g.Unread[0])
	}
	b.WriteString(g.Withheld.String())
	return []domain.Content{domain.Text(b.String())}
}
