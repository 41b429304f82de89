package builtins

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/patch"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// maxPatchContent is the maximum size of all files of a patch before and after it, in
// bytes, because they are in memory together.
const maxPatchContent = 128 << 20

// A patchPlan is a patch with its open files. It belongs to one call. The caller calls
// release.
type patchPlan struct {
	steps []*patchStep
	held  []*acquiredPath // of all steps, in order
	// previewErr is the reason why the patch cannot be applied, as a person saw it in
	// place of the diff. Nil: the person saw the diff, or was not asked.
	previewErr error
}

// openPlan resolves and opens all paths of a patch. It returns an error that names the
// path for a path that cannot be resolved, for a path that occurs twice and for a path
// below another one.
func (c Config) openPlan(changes []patch.Change) (*patchPlan, error) {
	var targets []workspace.ResolvedPath
	for _, change := range changes {
		path, moveTo := patchPaths(change)
		for _, path := range []string{path, moveTo} {
			if path == "" { // no move
				continue
			}
			target, err := c.Workspace.Resolve(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, rootCause(err))
			}
			targets = append(targets, target)
		}
	}
	if err := checkApart(targets); err != nil {
		return nil, err
	}
	plan := &patchPlan{}
	for _, target := range targets {
		plan.held = append(plan.held, c.acquire(target))
	}
	rest := plan.held
	for _, change := range changes {
		path, moveTo := patchPaths(change)
		step := &patchStep{change: change, path: path, source: rest[0]}
		rest = rest[1:]
		if moveTo != "" {
			step.moveTo, step.target = moveTo, rest[0]
			rest = rest[1:]
		}
		plan.steps = append(plan.steps, step)
	}
	return plan, nil
}

// checkApart returns an error if two paths are equal or one is below another.
func checkApart(targets []workspace.ResolvedPath) error {
	sorted := slices.Clone(targets)
	slices.SortFunc(sorted, func(a, b workspace.ResolvedPath) int { return strings.Compare(a.Path+"/", b.Path+"/") })
	for i := 1; i < len(sorted); i++ {
		above, below := sorted[i-1], sorted[i]
		if above.Path == below.Path {
			return fmt.Errorf("%s: it occurs twice in the patch: give each file one section", above.Resource)
		}
		if strings.HasPrefix(below.Path, above.Path+"/") {
			return fmt.Errorf("%s: %s is above it in the patch, and cannot be a file and a directory", below.Resource, above.Resource)
		}
	}
	return nil
}

// release closes all files.
func (p *patchPlan) release() {
	for _, held := range p.held {
		held.release()
	}
}

// resources returns the permission resources of all paths.
func (p *patchPlan) resources() []string {
	resources := make([]string, len(p.held))
	for i, held := range p.held {
		resources[i] = held.resolved.Resource
	}
	return resources
}

// paths returns the canonical paths.
func (p *patchPlan) paths() []string {
	paths := make([]string, len(p.held))
	for i, held := range p.held {
		paths[i] = held.resolved.Path
	}
	return paths
}

// preview returns the diffs that a person reads before the decision, and stores the
// contents from which it made the diffs. If the patch cannot be applied, the preview
// states the reason and contains the patch. The call asks for permission even then,
// because a failure before the decision would reveal the content of a file that the model
// may not read.
func (p *patchPlan) preview(ctx context.Context, text string) (domain.Preview, error) {
	opened := func(h *acquiredPath) (*workspace.Handle, error) { return h.handle, h.openErr }
	p.previewErr = p.prepare(ctx, opened)
	if ctx.Err() != nil {
		return domain.Preview{}, context.Cause(ctx)
	}
	if p.previewErr != nil {
		return domain.NewPreview(domain.PreviewContent, fmt.Sprintf("The patch changes nothing: %v\n%s", p.previewErr, text)), nil
	}
	var diffs strings.Builder
	for _, step := range p.steps {
		step.source.approvedContent = step.before
		diffs.WriteString(step.preview())
	}
	return domain.NewPreview(domain.PreviewDiff, diffs.String()), nil
}

// prepare reads all files through the handles that open returns, and applies all changes
// in memory. It returns an error that names the path of the first change that does not
// fit, or the cause of an ended context.
func (p *patchPlan) prepare(ctx context.Context, open func(*acquiredPath) (*workspace.Handle, error)) error {
	size := 0
	for _, step := range p.steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step.prepare(open); err != nil {
			return fmt.Errorf("%s: %w", step.path, stepFault(err))
		}
		if size += len(step.before) + len(step.after); size > maxPatchContent {
			return fmt.Errorf("%s: the files of the patch have over %d bytes together: split the patch", step.path, maxPatchContent)
		}
	}
	return p.checkHardLinks()
}

// checkHardLinks returns an error if two paths are names of one file, because the change
// of one would change the other.
func (p *patchPlan) checkHardLinks() error {
	type linkedFile struct {
		path string
		info os.FileInfo
	}
	var linked []linkedFile
	for _, step := range p.steps {
		handle := step.source.handle
		if handle.LinkCount() < 2 {
			continue
		}
		info, err := handle.Stat()
		if err != nil {
			return err
		}
		for _, other := range linked {
			if os.SameFile(info, other.info) {
				return fmt.Errorf("%s: it is the same file as %s (hard links): change one of them", step.path, other.path)
			}
		}
		linked = append(linked, linkedFile{step.path, info})
	}
	return nil
}

// checkKnown returns an error if the content that was prepared for a file differs from the
// version that the session knows.
func (p *patchPlan) checkKnown(files *sessionFiles) error {
	for _, step := range p.steps {
		if _, added := step.change.(patch.Add); added {
			continue
		}
		if err := files.checkUnchanged(step.source.resolved.Path, contentVersion(step.before)); err != nil {
			return fmt.Errorf("%s: %w", step.path, err)
		}
	}
	return nil
}

// verify returns an error that names the path if a file changed since it was prepared.
func (p *patchPlan) verify() error {
	for _, step := range p.steps {
		if err := step.verify(); err != nil {
			return fmt.Errorf("%s: %w", step.path, stepFault(err))
		}
	}
	return nil
}

// result returns the output for the case that all changes are committed.
func (p *patchPlan) result() patchResult {
	var out patchResult
	for _, step := range p.steps {
		out.Applied = append(out.Applied, step.applied())
		out.Files = append(out.Files, step.fileChange())
		out.Accessed = append(out.Accessed, step.accesses()...)
	}
	return out
}
