package builtins

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed edit.md
var editDescription string

// editArgs is the input of the tool edit.
type editArgs struct {
	Path       string `json:"path" jsonschema:"the file: relative to the workspace, or absolute"`
	OldString  string `json:"oldString" jsonschema:"the text to replace, exactly as it stands in the file"`
	NewString  string `json:"newString" jsonschema:"the text to put in its place, literally"`
	ReplaceAll bool   `json:"replaceAll,omitempty" jsonschema:"replace every occurrence; else there must be exactly one"`
}

// editResult is the output of the tool edit.
type editResult struct {
	Files        []fileChange `json:"files"`
	Replacements int          `json:"replacements"`

	Accessed []domain.FileAccess `json:"-"` // the file
}

// A fileChange describes one changed file in the output of edit and apply_patch.
type fileChange struct {
	File      string `json:"file"`
	From      string `json:"from,omitempty"` // the old path of a moved file
	Patch     string `json:"patch"`          // a unified diff
	Status    string `json:"status"`         // added, modified, deleted or moved
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Truncated bool   `json:"truncated,omitempty"` // the patch is too large to be whole
}

// maxEdit is the maximum size of a file before and after an edit, in bytes.
const maxEdit = 32 << 20

// whereEditIsOffered says that edit and write are offered to the models that do not get
// apply_patch, and to every model if the flag edit is set.
var whereEditIsOffered = domain.Availability{
	{Models: []string{"*", "!*gpt-*", "*gpt-4*", "*oss*"}},
	{Flags: []string{"edit"}},
}

// An editTool is the tool edit. Tests exchange replace to change the file between the
// comparison and the write.
type editTool struct {
	Config
	replace func(h *workspace.Handle, before, after []byte) error // writes after if the file still has the content before
}

// tool returns the domain.Tool of edit.
func (e editTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[editArgs, editResult]{
		Description: editDescription,
		Input:       domain.Constrained[editArgs](`{"properties":{"path":{"minLength":1}}}`),
		Execute:     e.edit,
		Present:     presentEdit,
		AsksFirst:   true,
		Available:   whereEditIsOffered,
		Title:       func(in editArgs) string { return in.Path },
		Files:       func(_ editArgs, out editResult) []domain.FileAccess { return out.Accessed },
	})
}

// edit executes one call. It opens the file, asks for permission with the diff as
// preview, applies the edit to the content as it is now, and replaces the file only if
// its content is still the one that was edited.
func (e editTool) edit(ctx context.Context, in editArgs, inv domain.Invocation) (editResult, error) {
	if in.OldString == in.NewString {
		return editResult{}, domain.Fail("No changes to apply: oldString and newString are identical.")
	}
	if in.OldString == "" {
		return editResult{}, domain.Fail("oldString must not be empty. Use write to create or overwrite a file.")
	}
	target, err := e.Workspace.Resolve(in.Path)
	if err != nil {
		return editResult{}, failure(err, "Unable to edit %s", in.Path)
	}
	held := e.acquire(target)
	defer held.release()
	if err := e.assertExternal(ctx, inv, held); err != nil {
		return editResult{}, err
	}
	metadata := map[string]any{"path": target.Path, "replaceAll": in.ReplaceAll, "old_bytes": len(in.OldString), "new_bytes": len(in.NewString)}
	show := func(ctx context.Context) (domain.Preview, error) { return previewEdit(held, in), ctx.Err() }
	if err := e.assertOne(ctx, inv, held, actionEdit, target.Resource, metadata, show); err != nil {
		return editResult{}, err
	}
	files, err := e.versions.acquire(ctx, inv.Session)
	if err != nil {
		return editResult{}, err
	}
	defer files.release()
	return e.editApproved(in, held, files)
}

// editApproved edits the file after permission was given. The caller owns files.
func (e editTool) editApproved(in editArgs, held *acquiredPath, files *sessionFiles) (editResult, error) {
	target := held.resolved
	handle, err := held.latestHandle()
	if err != nil {
		return editResult{}, editFailure(err, in)
	}
	before, err := readEditable(handle)
	if err != nil {
		return editResult{}, editFailure(err, in)
	}
	if held.approvedContent != nil && !bytes.Equal(before, held.approvedContent) {
		return editResult{}, editFailure(workspace.ErrChanged, in)
	}
	if err := files.checkUnchanged(target.Path, contentVersion(before)); err != nil {
		return editResult{}, err
	}
	after, n, err := applyEdit(string(before), in)
	if err != nil {
		return editResult{}, err
	}
	if err := e.replace(handle, before, []byte(after)); err != nil {
		return editResult{}, editFailure(err, in)
	}
	changed := domain.FileAccess{Path: target.Path, Access: domain.FileChanged, Version: contentVersion([]byte(after))}
	files.recordWrite(changed)
	return editResult{[]fileChange{newFileChange(target.Resource, string(before), after)}, n, []domain.FileAccess{changed}}, nil
}

// readEditable returns the content of a file of at most maxEdit bytes. It returns an
// error for content that is not UTF-8.
func readEditable(h *workspace.Handle) ([]byte, error) {
	before, err := h.ReadAll(maxEdit)
	if err == nil && !utf8.Valid(before) {
		err = errors.New("it is not UTF-8 text")
	}
	return before, err
}

// previewEdit returns the diff that a person decides about, and stores the content from
// which it made the diff. If the edit cannot be applied, the preview states the reason
// and both texts. Permission is requested even then, because a failure before the
// decision would reveal the content of a file that the model may not read.
func previewEdit(held *acquiredPath, in editArgs) domain.Preview {
	var before []byte
	err := held.openErr
	if err == nil {
		before, err = readEditable(held.handle)
	}
	var after string
	if err == nil {
		after, _, err = applyEdit(string(before), in)
	}
	if err != nil {
		return domain.NewPreview(domain.PreviewContent, fmt.Sprintf("The edit changes nothing: %v\n%sold:\n%s\nnew:\n%s", rootCause(err), hardLinkWarning(held), in.OldString, in.NewString))
	}
	held.approvedContent = before
	return domain.NewPreview(domain.PreviewDiff, hardLinkWarning(held)+diff(held.resolved.Resource, string(before), after).patch)
}

// hardLinkWarning returns a warning if the file has more than one hard link, because a
// change shows under every name.
func hardLinkWarning(held *acquiredPath) string {
	if held.handle == nil {
		return ""
	}
	if n := held.handle.LinkCount(); n > 1 {
		return fmt.Sprintf("The file has %d names (hard links), and all of them change.\n", n)
	}
	return ""
}

// editFailure converts an error of opening, reading or replacing the file into a failure
// for the model.
func editFailure(err error, in editArgs) error {
	if errors.Is(err, workspace.ErrChanged) {
		return domain.Fail("File changed after permission approval. Read it again before editing.")
	}
	return failure(err, "Unable to edit %s", in.Path)
}

// applyEdit returns content with OldString replaced by NewString, and the number of
// replacements. It excludes the byte order mark from the comparison and keeps it. It
// returns a failure if OldString does not occur, occurs more than once without
// ReplaceAll, or if the result exceeds maxEdit.
func applyEdit(content string, in editArgs) (string, int, error) {
	text, marked := strings.CutPrefix(content, bom)
	before, after := matchLineEnds(text, strings.TrimPrefix(in.OldString, bom), strings.TrimPrefix(in.NewString, bom))
	n := strings.Count(text, before)
	switch {
	case before == "" || n == 0:
		return "", 0, domain.Fail("Could not find oldString in the file. It must match exactly, including whitespace and indentation.")
	case before == after:
		return "", 0, domain.Fail("No changes to apply: oldString and newString differ only in line ends or a byte order mark, which stay as the file has them.")
	case !in.ReplaceAll && strings.Index(text, before) != strings.LastIndex(text, before):
		return "", 0, domain.Fail("Found multiple exact matches for oldString. Provide more surrounding context or set replaceAll to true.")
	}
	if size := len(content) + n*(len(after)-len(before)); size > maxEdit {
		return "", 0, domain.Fail("The file would grow to %d bytes by %d replacements, and the limit is %d. Replace less.", size, n, maxEdit)
	}
	text = strings.ReplaceAll(text, before, after)
	if marked {
		text = bom + text
	}
	return text, n, nil
}

// matchLineEnds converts before and after, the two texts of an edit, to the line ends
// of text, the content of the file. If text has both LF and CRLF, matchLineEnds returns
// them unchanged if before occurs in text, and otherwise converts them to CRLF.
func matchLineEnds(text, before, after string) (string, string) {
	switch ends := strings.Count(text, crlf); {
	case ends == 0:
		return toLF(before), toLF(after)
	case ends == strings.Count(text, lf):
		return toCRLF(before), toCRLF(after)
	case strings.Contains(text, before):
		return before, after
	}
	return toCRLF(before), toCRLF(after)
}

// newFileChange describes the modification of a file from before to after.
func newFileChange(file, before, after string) fileChange {
	d := diff(file, before, after)
	return fileChange{File: file, Patch: d.patch, Truncated: d.truncated, Status: "modified", Additions: d.additions, Deletions: d.deletions}
}

// The limits of the preview of an edit.
const (
	// previewLines is the number of lines of each side that the model reads after an edit.
	previewLines = 6
	// previewRunes is the maximum length of each of these lines, in runes.
	previewRunes = 240
)

// presentEdit renders the output for the model: the file, the number of replacements and
// the first lines of both sides as a fenced diff. The fence is longer than any run of
// backticks in the text.
func presentEdit(in editArgs, out domain.Encoded[editResult]) []domain.Content {
	e, err := out.Value()
	if err != nil || len(e.Files) != 1 {
		return nil
	}
	var diff bytes.Buffer
	writePreview(&diff, "-", in.OldString)
	writePreview(&diff, "+", in.NewString)
	fence := "```"
	for strings.Contains(diff.String(), fence) {
		fence += "`"
	}
	return []domain.Content{domain.Text(fmt.Sprintf("Edited file successfully: %s\nReplacements: %d\n\n%sdiff\n%s%s",
		e.Files[0].File, e.Replacements, fence, diff.String(), fence))}
}

// writePreview writes the first previewLines lines of one side of an edit, each with the
// sign, and "..." if there are more.
func writePreview(to *bytes.Buffer, sign, side string) {
	if side == "" {
		return
	}
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(side, "\r\n", "\n"), "\n"), "\n")
	for _, line := range lines[:min(len(lines), previewLines)] {
		fmt.Fprintf(to, "%s %s\n", sign, truncateRunes(line, previewRunes))
	}
	if len(lines) > previewLines {
		fmt.Fprintf(to, "%s ...\n", sign)
	}
}

// truncateRunes returns the first limit runes of a line, with "..." if the line is
// longer.
func truncateRunes(line string, limit int) string {
	n := 0
	for at := range line {
		if n == limit {
			return line[:at] + "..."
		}
		n++
	}
	return line
}
