package builtins

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/patch"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed apply_patch.md
var patchDescription string

// patchArgs is the input of the tool apply_patch.
type patchArgs struct {
	PatchText string `json:"patchText" jsonschema:"the whole patch, from *** Begin Patch to *** End Patch"`
}

// patchResult is the output of the tool apply_patch.
type patchResult struct {
	Applied []appliedChange `json:"applied"`
	Files   []fileChange    `json:"files"`

	Accessed []domain.FileAccess `json:"-"` // the files, in the order of the changes
}

// An appliedChange is a change of a file in the output of apply_patch.
type appliedChange struct {
	Type     string `json:"type"`         // A (added), M (modified), D (deleted) or R (moved)
	Resource string `json:"resource"`     // the resource of the file before the change
	To       string `json:"to,omitempty"` // the resource of a moved file
	Target   string `json:"target"`       // the canonical path of the file; for a moved file, the new path
}

// String returns the type and the paths.
func (c appliedChange) String() string {
	if c.To != "" {
		return fmt.Sprintf("%s %s -> %s", c.Type, c.Resource, c.To)
	}
	return c.Type + " " + c.Resource
}

// wherePatchIsOffered says that apply_patch is offered to the models that know its format,
// and to every model if the flag apply_patch is set.
var wherePatchIsOffered = domain.Availability{
	{Models: []string{"*gpt-*", "!*gpt-4*", "!*oss*"}},
	{Flags: []string{"apply_patch"}},
}

// A patchTool is the tool apply_patch. Tests exchange commit to change files between two
// commits.
type patchTool struct {
	Config
	commits chan struct{}          // holds one value while a call commits its changes
	commit  func(*patchStep) error // commits one change
}

// newPatchTool returns the patchTool of a configuration.
func newPatchTool(c Config) patchTool {
	return patchTool{c, make(chan struct{}, 1), (*patchStep).commit}
}

// tool returns the domain.Tool of apply_patch.
func (p patchTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[patchArgs, patchResult]{
		Description:  patchDescription,
		Execute:      p.apply,
		Present:      presentPatch,
		AsksFirst:    true,
		Available:    wherePatchIsOffered,
		InvalidInput: invalidPatchInput,
		Title:        patchArgs.title,
		Files:        func(_ patchArgs, out patchResult) []domain.FileAccess { return out.Accessed },
	})
}

// patchTextMissing is the text for a call without a patch.
const patchTextMissing = "patchText is required"

// invalidPatchInput returns the text for an input without patchText, and an empty text
// for any other invalid input.
func invalidPatchInput(input json.RawMessage, _ *domain.ValidationError) string {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(input, &object); err != nil || object["patchText"] != nil {
		return ""
	}
	return patchTextMissing
}

// title returns the first path of the patch and the number of its other files. It returns
// an empty text for a patch that cannot be parsed.
func (in patchArgs) title() string {
	changes, err := patch.Parse(in.PatchText)
	if err != nil {
		return ""
	}
	first, _ := patchPaths(changes[0])
	switch more := len(changes) - 1; more {
	case 0:
		return first
	case 1:
		return first + " and 1 more file"
	default:
		return fmt.Sprintf("%s and %d more files", first, more)
	}
}

// patchPaths returns the path of a change and, for a move, the new path.
func patchPaths(c patch.Change) (path, moveTo string) {
	switch c := c.(type) {
	case patch.Add:
		return c.Path, ""
	case patch.Delete:
		return c.Path, ""
	case patch.Update:
		return c.Path, c.MoveTo
	}
	panic(fmt.Sprintf("unknown change %T", c))
}

// patchFailure returns the failure of a call that changed nothing.
func patchFailure(reason error) error {
	return domain.Fail("apply_patch verification failed: %v", reason)
}

// apply executes one call. It parses the patch, opens its files, asks for permission,
// prepares all changes and then commits them.
func (p patchTool) apply(ctx context.Context, in patchArgs, inv domain.Invocation) (patchResult, error) {
	if strings.TrimSpace(in.PatchText) == "" {
		return patchResult{}, domain.Fail(patchTextMissing)
	}
	changes, err := patch.Parse(in.PatchText)
	if errors.Is(err, patch.ErrEmpty) {
		return patchResult{}, domain.Fail("patch rejected: empty patch")
	}
	if err != nil {
		return patchResult{}, patchFailure(err)
	}
	plan, err := p.openPlan(changes)
	if err != nil {
		return patchResult{}, patchFailure(err)
	}
	defer plan.release()
	if err := p.assertPlan(ctx, inv, plan, in.PatchText); err != nil {
		return patchResult{}, err
	}
	files, err := p.versions.acquire(ctx, inv.Session)
	if err != nil {
		return patchResult{}, err
	}
	defer files.release()
	return p.applyApproved(ctx, plan, files)
}

// assertPlan asks for permission to leave the workspace, once for each directory, and then
// for permission to edit all files. If a person decided one of these requests, assertPlan
// sets personAsked for every path of the plan, so that a path that leads to another file
// at the commit fails the call.
func (c Config) assertPlan(ctx context.Context, inv domain.Invocation, plan *patchPlan, text string) error {
	asker := &acquiredPath{}
	outside := map[string]bool{}
	for _, held := range plan.held {
		if external := held.resolved.External; external != "" && !outside[external] {
			outside[external] = true
			if err := c.assertExternal(ctx, inv, held); err != nil {
				return err
			}
			asker.personAsked = asker.personAsked || held.personAsked
		}
	}
	metadata, err := json.Marshal(map[string]any{"paths": plan.paths(), "bytes": len(text)})
	if err != nil {
		return err
	}
	ask := permission.Ask{
		Action: actionEdit, Resources: plan.resources(), Save: everyResource, Metadata: metadata,
		Preview: func(ctx context.Context) (domain.Preview, error) { return plan.preview(ctx, text) },
	}
	if err := c.assertPermission(ctx, inv, asker, ask); err != nil {
		return err
	}
	for _, held := range plan.held {
		held.personAsked = asker.personAsked
	}
	return nil
}

// applyApproved prepares and commits the changes after permission was given. The caller
// owns files.
func (p patchTool) applyApproved(ctx context.Context, plan *patchPlan, files *sessionFiles) (patchResult, error) {
	if plan.previewErr != nil { // the person saw that the patch changes nothing
		return patchResult{}, patchFailure(plan.previewErr)
	}
	err := plan.prepare(ctx, (*acquiredPath).latestHandle)
	if err == nil {
		err = plan.checkKnown(files)
	}
	if ctx.Err() != nil {
		return patchResult{}, context.Cause(ctx)
	}
	if err != nil {
		return patchResult{}, patchFailure(err)
	}
	out := plan.result()
	select {
	case p.commits <- struct{}{}:
		defer func() { <-p.commits }()
	case <-ctx.Done():
		return patchResult{}, context.Cause(ctx)
	}
	if err := plan.verify(); err != nil {
		return patchResult{}, patchFailure(err)
	}
	if ctx.Err() != nil {
		return patchResult{}, context.Cause(ctx)
	}
	return out, p.commitAll(plan, out.Applied, files)
}

// commitAll commits all changes and stores the new versions in files. An interruption does
// not stop it, because a patch must not stay half applied. If a change fails, commitAll
// stops and returns a failure that lists the committed and the remaining changes.
func (p patchTool) commitAll(plan *patchPlan, changes []appliedChange, files *sessionFiles) error {
	for i, step := range plan.steps {
		if err := p.commit(step); err != nil {
			return commitFailure(step, err, changes[:i], changes[i:])
		}
		for _, access := range step.accesses() {
			files.recordWrite(access)
		}
	}
	return nil
}

// commitFailure returns the failure for err, the error of committing a step.
func commitFailure(step *patchStep, err error, applied, rest []appliedChange) error {
	reason := stepFault(err)
	if len(applied) > 0 {
		return domain.Fail("Patch partially applied before failing at %s: %v. Applied: %s. Not applied: %s.",
			step.path, reason, joinChanges(applied), joinChanges(rest))
	}
	if isChangedFile(err) {
		return patchFailure(fmt.Errorf("%s: %w", step.path, reason))
	}
	return domain.Fail("Unable to apply patch at %s: %v. No other file was changed.", step.path, reason)
}

// joinChanges returns the changes as a list for the model.
func joinChanges(changes []appliedChange) string {
	texts := make([]string, len(changes))
	for i, c := range changes {
		texts[i] = c.String()
	}
	return strings.Join(texts, ", ")
}

// presentPatch renders the output for the model: one line for each change.
func presentPatch(_ patchArgs, out domain.Encoded[patchResult]) []domain.Content {
	result, err := out.Value()
	if err != nil {
		return nil
	}
	var text strings.Builder
	text.WriteString("Applied patch:")
	for _, c := range result.Applied {
		text.WriteString("\n" + c.String())
	}
	return []domain.Content{domain.Text(text.String())}
}
