package builtins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/shellcommand"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// withheldFiles counts the files that a search left out although its pattern or directory
// includes them. It counts files whatever their content, so that the count reveals nothing
// about it.
type withheldFiles struct {
	Denied       int `json:"denied,omitempty"` // by a rule
	NotPermitted int `json:"closed,omitempty"` // reading them needs a permission that was not given
}

// String returns a sentence with the counts, or an empty text if no file was left out.
func (w withheldFiles) String() string {
	text := ""
	if w.Denied > 0 {
		text += fmt.Sprintf("\n\n(%d files were left out: a rule denies reading them)", w.Denied)
	}
	if w.NotPermitted > 0 {
		text += fmt.Sprintf("\n\n(%d files were left out: reading them needs a permission, which was not given; at most %d are asked about at once)", w.NotPermitted, maxFilesAsked)
	}
	return text
}

// maxFilesAsked is how many files one question names.
const maxFilesAsked = 256

// filterPermitted returns the files of a target that a search may show. It leaves out files that a
// rule denies to read, or denies to the search's action. It requests permission for all files
// that rules set to ask in one request, and leaves them out if no person can decide. A refusal
// by a person ends the call.
func (c Config) filterPermitted(ctx context.Context, inv domain.Invocation, h *acquiredPath, action string, names []string) (shown []string, out withheldFiles, err error) {
	var apart, resources []string
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, out, context.Cause(ctx)
		}
		resource := resourceOf(h.resolved, name)
		read := c.Permission.Check(inv, permission.Ask{Action: "read", Resources: []string{resource}})
		own := c.Permission.Check(inv, permission.Ask{Action: action, Resources: []string{resource}})
		switch {
		// The pattern of the search got past a rule that denies the action on everything.
		case read.Effect == domain.Deny, own.Effect == domain.Deny && own.Rule.Resource != "*":
			out.Denied++
		case read.Effect == domain.Ask && read.Specific:
			apart, resources = append(apart, name), append(resources, resource)
		default:
			shown = append(shown, name)
		}
	}
	if len(apart) == 0 {
		return shown, out, nil
	}
	if len(apart) > maxFilesAsked {
		out.NotPermitted = len(apart)
		return shown, out, nil
	}
	switch err := c.askForFiles(ctx, inv, h, action, resources); {
	case err == nil:
		return append(shown, apart...), out, nil
	case errors.Is(err, domain.ErrDenied):
		out.NotPermitted = len(apart)
		return shown, out, nil
	default:
		return nil, out, err
	}
}

// askForFiles asks to read files for a search. An answer for always allows
// these files to be read.
func (c Config) askForFiles(ctx context.Context, inv domain.Invocation, h *acquiredPath, action string, resources []string) error {
	metadata, err := json.Marshal(map[string]string{"for": action, "path": h.resolved.Path})
	if err != nil {
		return err
	}
	save := make([]string, len(resources))
	for i, resource := range resources {
		save[i] = shellcommand.LiteralPattern(resource)
	}
	return c.assertPermission(ctx, inv, h, permission.Ask{Action: "read", Resources: resources, Save: save, Metadata: metadata})
}

// resourceOf returns the resource of a file of a target: that which read asks
// for. The empty name is the target itself.
func resourceOf(t workspace.ResolvedPath, name string) string {
	if name == "" {
		return t.Resource
	}
	return path.Join(t.Resource, name)
}
