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

// withheldFiles counts the files that a search matched and did not return. Files are
// counted without reading them, so that a count reveals no content.
type withheldFiles struct {
	Denied       int `json:"denied,omitempty"` // a rule denies reading them
	NotPermitted int `json:"closed,omitempty"` // reading them needs a permission that was not given
}

// String returns a note for the model that states both counts, or an empty text if no
// file was withheld.
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

// maxFilesAsked is the maximum number of files in one permission request. A search with
// more files withholds all of them.
const maxFilesAsked = 256

// filterPermitted returns the names of the files that a search may show, and counts the
// other files without reading them. For each file it evaluates the permissions read and
// action:
//
//   - A file is withheld if a rule denies read, or if a rule for particular resources
//     denies action.
//   - The files that a specific ask rule covers share one permission request. They are
//     withheld if no person can be asked.
//   - Any other file is shown.
//
// If a person rejects the request, filterPermitted returns the error of the rejection,
// which ends the call. More than maxFilesAsked files are withheld without a request.
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

// askForFiles requests the permission read for resources on behalf of a search. The
// answer "always" allows exactly these files from then on.
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

// resourceOf returns the permission resource of the file name below the directory t. It
// is the resource that the tool read requests for the file. An empty name is the
// directory.
func resourceOf(t workspace.ResolvedPath, name string) string {
	if name == "" {
		return t.Resource
	}
	return path.Join(t.Resource, name)
}
