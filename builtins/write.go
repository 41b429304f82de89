package builtins

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed write.md
var writeDescription string

// writeArgs is the input of the tool write.
type writeArgs struct {
	Path    string `json:"path" jsonschema:"the file: relative to the workspace, or absolute"`
	Content string `json:"content" jsonschema:"the whole content of the file"`
}

// writeResult is the output of the tool write.
type writeResult struct {
	Operation string `json:"operation"` // write
	Target    string `json:"target"`    // the canonical path
	Resource  string `json:"resource"`
	Existed   bool   `json:"existed"`

	Accessed []domain.FileAccess `json:"-"` // the file
}

// A writeTool is the tool write.
type writeTool struct{ Config }

// tool returns the domain.Tool of write.
func (w writeTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[writeArgs, writeResult]{
		Description: writeDescription,
		Input:       domain.Constrained[writeArgs](`{"properties":{"path":{"minLength":1}}}`),
		Execute:     w.write,
		Present:     presentWrite,
		AsksFirst:   true,
		Available:   whereEditIsOffered,
		Title:       func(in writeArgs) string { return in.Path },
		Files:       func(_ writeArgs, out writeResult) []domain.FileAccess { return out.Accessed },
	})
}

// write executes one call. It asks for edit with a preview, and writes the file unless
// it changed after a person was asked.
func (w writeTool) write(ctx context.Context, in writeArgs, inv domain.Invocation) (writeResult, error) {
	target, err := w.Workspace.Resolve(in.Path)
	if err != nil {
		return writeResult{}, failure(err, "Unable to write %s", in.Path)
	}
	held := w.acquire(target)
	defer held.release()
	if err := w.assertExternal(ctx, inv, held); err != nil {
		return writeResult{}, err
	}
	metadata := map[string]any{"path": target.Path, "bytes": len(in.Content)}
	show := func(ctx context.Context) (domain.Preview, error) { return previewWrite(held, in), ctx.Err() }
	if err := w.assertOne(ctx, inv, held, actionEdit, target.Resource, metadata, show); err != nil {
		return writeResult{}, err
	}
	files, err := w.versions.acquire(ctx, inv.Session)
	if err != nil {
		return writeResult{}, err
	}
	defer files.release()
	return w.writeApproved(ctx, in, held, files)
}

// writeApproved writes the file after permission was given. The caller owns files.
func (w writeTool) writeApproved(ctx context.Context, in writeArgs, held *acquiredPath, files *sessionFiles) (writeResult, error) {
	target := held.resolved
	var content []byte
	existed, err := held.write(func(before *os.File) ([]byte, error) {
		form, version, err := scanForm(ctx, before)
		if err == nil && before != nil {
			err = files.checkUnchanged(target.Path, version)
		}
		content = form.apply(in.Content)
		return content, err
	})
	if errors.Is(err, errChangedSinceRead) {
		return writeResult{}, err
	}
	if errors.Is(err, workspace.ErrChanged) {
		return writeResult{}, domain.Fail("File changed after permission approval. Read it again before writing.")
	}
	if err != nil {
		return writeResult{}, failure(err, "Unable to write %s", in.Path)
	}
	written := domain.FileAccess{Path: target.Path, Access: domain.FileCreated, Version: contentVersion(content)}
	if existed {
		written.Access = domain.FileChanged
	}
	files.recordWrite(written)
	return writeResult{"write", target.Path, target.Resource, existed, []domain.FileAccess{written}}, nil
}

// previewWrite returns the text that a person decides about: a diff if the file exists
// and is text, and the full content otherwise.
func previewWrite(held *acquiredPath, in writeArgs) domain.Preview {
	if held.openErr == nil {
		if _, err := held.handle.Stat(); err == nil {
			if before, err := readEditable(held.handle); err == nil && utf8.ValidString(in.Content) {
				after := formOf(before).apply(in.Content)
				if bytes.Equal(before, after) {
					return domain.NewPreview(domain.PreviewContent, fmt.Sprintf("The file keeps its content of %d bytes.\n", len(before)))
				}
				return domain.NewPreview(domain.PreviewDiff, hardLinkWarning(held)+diff(held.resolved.Resource, string(before), string(after)).patch)
			}
			return domain.NewPreview(domain.PreviewContent, hardLinkWarning(held)+in.Content)
		}
	}
	return domain.NewPreview(domain.PreviewContent, in.Content)
}

// write replaces the file with the result of content, as [workspace.Handle.Write] does.
// It creates the file and its directories if they do not exist. existed reports whether
// the file existed. If a person was asked and the path now leads to another file than
// acquire opened, write returns workspace.ErrChanged.
func (h *acquiredPath) write(content func(before *os.File) ([]byte, error)) (existed bool, err error) {
	if !h.personAsked {
		return h.resolved.Write(content)
	}
	handle, err := h.verifiedHandle()
	if err != nil {
		return false, err
	}
	return handle.Write(content)
}

// presentWrite renders the output for the model: whether the file existed or was
// created.
func presentWrite(_ writeArgs, out domain.Encoded[writeResult]) []domain.Content {
	w, err := out.Value()
	if err != nil {
		return nil
	}
	if w.Existed {
		return []domain.Content{domain.Text("Wrote file successfully: " + w.Resource)}
	}
	return []domain.Content{domain.Text("Created file successfully: " + w.Resource)}
}
