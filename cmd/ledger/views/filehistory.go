package views

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A fileUse is one call of `ledger file history` in JSON results, with one path.
type fileUse struct {
	Path     string   `json:"path"`
	Accesses []string `json:"accesses"` // read, write and run
	// Sources are the places of the record that name the path: result, where the tool reported
	// the file, input and request.
	Sources []string `json:"sources"`
	// Diff is the change that the input of the call asks for; null: the input has no change of
	// the file. The outcome of the call says whether the change was made.
	Diff *string `json:"diff"`
	Cut  bool    `json:"diff_shortened"`
	callRow
}

// diffLines is the number of lines of a diff that a history shows without --full.
const diffLines = 40

// FileHistory prints the calls that read, wrote or ran on the path that text means, in the
// order of the log, with the changes that their inputs ask for.
func FileHistory(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, text string, filter query.Filter, full bool) error {
	if filter.Path != "" {
		return fault.Usage("--path: the argument is the path")
	}
	paths, err := query.FindPath(r, "file history", text)
	if err != nil {
		return err
	}
	selected, err := filter.Resolve(out, r, query.CallList)
	if err != nil {
		return err
	}
	selected.Calls.Paths = paths
	found, err := r.Calls(selected.Calls)
	if err != nil {
		return err
	}
	withInputs, err := query.CallsWithInputs(ctx, s, found)
	if err != nil {
		return err
	}
	rows := []fileUse{}
	for _, c := range withInputs {
		uses, err := r.PathUses(c.Key(), paths)
		if err != nil {
			return err
		}
		for len(uses) > 0 {
			row := fileUse{Path: uses[0].Path, callRow: newCallRow(c, false)}
			for len(uses) > 0 && uses[0].Path == row.Path {
				row.Accesses, row.Sources = append(row.Accesses, uses[0].Access), append(row.Sources, uses[0].Source)
				uses = uses[1:]
			}
			slices.Sort(row.Accesses)
			slices.Sort(row.Sources)
			row.Accesses, row.Sources = slices.Compact(row.Accesses), slices.Compact(row.Sources)
			if slices.Contains(row.Accesses, index.PathWritten) {
				row.setDiff(inputDiff(c.Location, row.Path, c.Input), full)
			}
			rows = append(rows, row)
		}
	}
	return render.Rows(out, rows, func() { printFileHistory(out, rows, filter) })
}

// setDiff sets the diff of a row, cut to diffLines unless full is set.
func (u *fileUse) setDiff(diff string, full bool) {
	if lines := strings.SplitAfterN(diff, "\n", diffLines+1); !full && len(lines) > diffLines && lines[diffLines] != "" {
		diff, u.Cut = strings.Join(lines[:diffLines], ""), true
	}
	u.Diff = render.OrNull(diff)
}

// printFileHistory prints a history for people: a line for each call, and below it the diff.
func printFileHistory(out *render.Printer, rows []fileUse, filter query.Filter) {
	if len(rows) == 0 {
		out.Line("%s", filter.Empty(out, query.CallList))
		return
	}
	name := ""
	for _, u := range rows {
		if u.Path != name {
			out.Line("%s", out.Styled(render.Bold, render.Printable(u.Path)))
		}
		name = u.Path
		out.Line("  %s  %s  %s  %s  %s  %s  %s", out.Milliseconds(render.TimeOf(u.Asked)), strings.Join(u.Accesses, "+"), render.OneLine(u.Tool, 30), out.Outcome(u.Outcome),
			render.ShortCallID(u.Call), render.ShortID(u.Session), render.OneLine(inputText(u.Input, false), render.TextWidth))
		if u.Diff == nil {
			continue
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(*u.Diff, "\n"), "\n") {
			text := render.Printable(line)
			switch {
			case strings.HasPrefix(line, "+"):
				text = out.Styled(render.Green, text)
			case strings.HasPrefix(line, "-"):
				text = out.Styled(render.Red, text)
			}
			out.Line("      %s", text)
		}
		if u.Cut {
			out.Line("      %s", out.Styled(render.Dim, "… --full shows all of it"))
		}
	}
}

// A change is the members of an input that say how a file changes, of the built-in tools and
// of programs whose sessions are imported.
type change struct {
	Old, New       *string
	Content, Patch *string
	Edits          []struct {
		Old string `json:"old_string"`
		New string `json:"new_string"`
	}
}

// UnmarshalJSON decodes an input. Each member that has another type is left out.
func (c *change) UnmarshalJSON(data []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	text := func(names ...string) *string {
		for _, name := range names {
			var s string
			if raw, ok := members[name]; ok && json.Unmarshal(raw, &s) == nil {
				return &s
			}
		}
		return nil
	}
	c.Old, c.New = text("oldString", "old_string"), text("newString", "new_string")
	c.Content, c.Patch = text("content"), text("patchText", "input", "patch")
	_ = json.Unmarshal(members["edits"], &c.Edits) // an input without edits has none
	return nil
}

// inputDiff returns the change of a file that an input asks for as a diff: of the replaced
// and the new text of an edit, of the whole content of a write, or the part of a patch. It
// returns the empty text for an input without a change of the file.
func inputDiff(location, name string, input json.RawMessage) string {
	var c change
	if json.Unmarshal(input, &c) != nil {
		return ""
	}
	switch {
	case c.Old != nil && c.New != nil:
		return hunks(*c.Old, *c.New)
	case len(c.Edits) > 0:
		var all []string
		for _, e := range c.Edits {
			all = append(all, hunks(e.Old, e.New))
		}
		return strings.Join(all, "")
	case c.Content != nil:
		return hunks("", *c.Content)
	case c.Patch != nil:
		return patchPart(location, name, *c.Patch)
	}
	return ""
}

// hunks returns the diff of two texts without the lines that name files and places.
func hunks(before, after string) string {
	diff := udiff.Unified("a", "b", before, after)
	var b strings.Builder
	for line := range strings.SplitAfterSeq(diff, "\n") {
		if !strings.HasPrefix(line, "--- a") && !strings.HasPrefix(line, "+++ b") && !strings.HasPrefix(line, "@@ ") && !strings.HasPrefix(line, `\ No newline`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// patchPart returns the lines of a patch that are about a file.
func patchPart(location, name, patch string) string {
	var b strings.Builder
	inside := false
	for line := range strings.SplitAfterSeq(patch, "\n") {
		mark, rest, ok := strings.Cut(strings.TrimRight(line, "\r\n"), " File: ")
		switch {
		case ok && strings.HasPrefix(mark, "*** "):
			at := strings.TrimSpace(rest)
			if !path.IsAbs(at) {
				at = path.Join(location, at)
			}
			inside = path.Clean(at) == name
		case strings.HasPrefix(line, "*** End Patch"):
			inside = false
		}
		if inside {
			b.WriteString(line)
		}
	}
	return b.String()
}
