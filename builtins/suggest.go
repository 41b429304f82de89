package builtins

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// The limits of the suggestions for a missing file.
const (
	// maxSuggestions is the number of suggested paths.
	maxSuggestions = 3
	// maxNamesCompared is the number of directory entries that are compared with the missing
	// name.
	maxNamesCompared = 10_000
	// maxNamesTried is the number of near names that are resolved and checked against the
	// rules.
	maxNamesTried = 32
)

// notFound returns the failure for a file that does not exist, with the paths of files
// with similar names. It suggests only paths that rules or approvals allow the call to
// read, and reveals no other name. held is open.
func (r readTool) notFound(ctx context.Context, inv domain.Invocation, held *acquiredPath, asked string) error {
	text := "File not found: " + asked
	if near := r.suggest(ctx, inv, held); len(near) > 0 {
		text += "\nDid you mean:\n" + strings.Join(near, "\n")
	}
	return domain.Fail("%s", text)
}

// suggest returns up to maxSuggestions paths near to a missing one, the nearest first. It
// compares the first missing name with the entries of the deepest existing directory. If
// directories are missing too, the rest of the path is looked for below the near one.
func (r readTool) suggest(ctx context.Context, inv domain.Invocation, held *acquiredPath) []string {
	dir, missing := held.handle.Existing()
	if len(missing) == 0 || !r.allowedToRead(inv, dir) {
		return nil
	}
	var found []string
	for _, name := range nearNames(ctx, dir, missing[0]) {
		whole := path.Join(append([]string{dir.Resource, name}, missing[1:]...)...)
		for _, candidate := range slices.Compact([]string{whole, path.Join(dir.Resource, name)}) {
			if r.canSuggest(inv, held, candidate) {
				found = append(found, candidate)
				break
			}
		}
		if len(found) == maxSuggestions || ctx.Err() != nil {
			break
		}
	}
	return found
}

// canSuggest reports whether candidate is a file or directory that the call may read
// without a question. A link counts as the file to which it leads.
func (r readTool) canSuggest(inv domain.Invocation, held *acquiredPath, candidate string) bool {
	target, err := r.Workspace.Resolve(candidate)
	if err != nil || !r.allowedToRead(inv, target) {
		return false
	}
	if target.External != "" && !r.externalPermitted(inv, held, target) {
		return false
	}
	info, err := target.Stat()
	return err == nil && (info.IsDir() || info.Mode().IsRegular())
}

// externalPermitted reports whether the call has the permission for an external path: the
// path lies in the directory for which the call got the permission, and no rule denies it.
func (r readTool) externalPermitted(inv domain.Invocation, held *acquiredPath, target workspace.ResolvedPath) bool {
	return strings.HasPrefix(target.External, strings.TrimSuffix(held.resolved.External, "*")) &&
		r.check(inv, actionExternal, target.External) != domain.Deny
}

// allowedToRead reports whether rules or approvals allow the call to read a path.
func (r readTool) allowedToRead(inv domain.Invocation, target workspace.ResolvedPath) bool {
	return r.check(inv, "read", target.Resource) == domain.Allow
}

// check returns the effect of rules and approvals for an action on a resource.
func (c Config) check(inv domain.Invocation, action, resource string) domain.Effect {
	return c.Permission.Check(inv, permission.Ask{Action: action, Resources: []string{resource}}).Effect
}

// nearNames returns up to maxNamesTried names of entries of a directory that are near to a
// name, the nearest first. It returns no names if the directory cannot be read.
func nearNames(ctx context.Context, dir workspace.ResolvedPath, name string) []string {
	type scored struct {
		name  string
		score int
	}
	var near []scored
	h, err := dir.Acquire()
	if err != nil {
		return nil
	}
	defer h.Close()
	tree, err := h.Tree()
	if err != nil {
		return nil
	}
	defer tree.Close()
	compared := 0
	for entry, err := range tree.Entries(".") {
		if err != nil || ctx.Err() != nil || compared == maxNamesCompared {
			break
		}
		compared++
		if score := nameDistance(name, entry.Name()); score >= 0 {
			near = append(near, scored{entry.Name(), score})
		}
	}
	slices.SortFunc(near, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, n := range near[:min(len(near), maxNamesTried)] {
		names = append(names, n.name)
	}
	return names
}

// The scores of names.
const (
	// maxEdits is the maximum number of edits between two near names.
	maxEdits = 3
	// minStem is the minimum length of the beginning that two near names share, in bytes.
	minStem = 3
)

// nameDistance returns how far a name of a directory entry is from a missing name: 0 if
// they differ in case only, else the number of runes that differ, and maxEdits+1 if one
// begins with the other without its extension. It returns -1 for a name that is not near
// or that cannot be printed.
func nameDistance(missing, name string) int {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return -1
	}
	a, b := strings.ToLower(missing), strings.ToLower(name)
	length := utf8.RuneCountInString(a)
	if n := editDistance([]rune(a), []rune(b), min(maxEdits, 1+length/3, length-1)); n >= 0 {
		return n
	}
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		if stem := stemOf(pair[0]); len(stem) >= minStem && strings.HasPrefix(pair[1], stem) {
			return maxEdits + 1
		}
	}
	return -1
}

// stemOf returns a name without its extension. A name that is all extension, such as
// .gitignore, is its own stem.
func stemOf(name string) string {
	if stem := strings.TrimSuffix(name, path.Ext(name)); stem != "" {
		return stem
	}
	return name
}

// editDistance returns the number of runes that must be inserted, removed or replaced to
// turn a into b, or -1 if it exceeds limit. Its time is in proportion to the length of a
// times limit.
func editDistance(a, b []rune, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) > limit {
		return -1
	}
	above, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range a {
		from, to := max(i+1-limit, 1), min(i+1+limit, len(b))
		row[from-1] = limit + 1 // outside the band, or the column of i+1 removals
		if from == 1 {
			row[0] = i + 1
		}
		for j := from; j <= to; j++ {
			replaced := above[j-1]
			if a[i] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, row[j-1]+1)
			if j < i+1+limit { // above[j] lies in the band of the row above
				row[j] = min(row[j], above[j]+1)
			}
		}
		above, row = row, above
	}
	if above[len(b)] > limit {
		return -1
	}
	return above[len(b)]
}
