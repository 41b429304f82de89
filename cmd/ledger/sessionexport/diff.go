package sessionexport

import (
	"encoding/json"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// maxDiffSide is the size of a text up to which a diff is made of an input.
const maxDiffSide = 256 << 10

// An editInput has the members of the inputs of tools that edit, in the spellings of the
// programs that this module reads.
type editInput struct {
	Patch, PatchText     string
	Path, FilePath, File string
	Old                  *string `json:"oldString"`
	New                  *string `json:"newString"`
	OldSnake             *string `json:"old_string"`
	NewSnake             *string `json:"new_string"`
	FileSnake            string  `json:"file_path"`
	Edits                []editInput
}

// diffOf returns what a call changed as a unified diff: the patch of its output, the one
// that a person was shown, or the difference of the texts of its input. It returns an
// empty text for a call without one.
func diffOf(c *timeline.Call) string {
	if c.End != nil {
		var output struct{ Patch, Diff string }
		if json.Unmarshal(c.End.Structured, &output) == nil && output.Patch+output.Diff != "" {
			return output.Patch + output.Diff
		}
	}
	for _, p := range c.Permissions {
		if p.Shown.Kind == domain.PreviewDiff {
			return p.Shown.Text
		}
	}
	var in editInput
	if json.Unmarshal(c.Asked.Input, &in) != nil {
		return ""
	}
	if patch := in.Patch + in.PatchText; strings.Contains(patch, "\n") {
		return patch
	}
	diffs := in.diff(in.name())
	for _, e := range in.Edits {
		diffs += e.diff(in.name())
	}
	return diffs
}

// name returns the path of the edited file.
func (in editInput) name() string {
	for _, name := range []string{in.Path, in.FilePath, in.FileSnake, in.File} {
		if name != "" {
			return name
		}
	}
	return "text"
}

// diff returns the difference of the texts of an edit.
func (in editInput) diff(name string) string {
	before, after := in.Old, in.New
	if before == nil {
		before = in.OldSnake
	}
	if after == nil {
		after = in.NewSnake
	}
	if before == nil || after == nil || len(*before)+len(*after) > maxDiffSide {
		return ""
	}
	return udiff.Unified("a/"+name, "b/"+name, *before, *after)
}
