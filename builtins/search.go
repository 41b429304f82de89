package builtins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/git-pkgs/gitignore"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// A search lists the files of a directory that are not excluded. The search
// program, where there is one, makes it faster and no different: what it
// proposes is held to the same rules, and they are the only ones that it is
// told to apply.
type search struct {
	root    *workspace.Root
	program string // empty: none
}

// A tree is a directory that is searched.
type tree struct {
	target  workspace.Target
	root    *os.Root
	ignored exclusions
	prefix  string          // from where the exclusions count to the directory; empty or with a slash at the end
	read    map[string]bool // directories whose files of exclusions are known, as seen from the directory
	unread  []string        // directories that could not be read
}

// ignoreFiles are the names of the files that say what to exclude. What an
// earlier one says of a path, a later one cannot change.
var ignoreFiles = [...]string{".rgignore", ".ignore", ".gitignore"}

// exclusions are what the files of each name say.
type exclusions [len(ignoreFiles)]gitignore.Matcher

// excludes reports whether a path is excluded.
func (e *exclusions) excludes(name string, dir bool) bool {
	if dir {
		name += "/"
	}
	for i := range e {
		if said := e[i].MatchDetail(name); said.Matched {
			return said.Ignored
		}
	}
	return false
}

// A listing is what there is in a directory, as paths from there with slashes,
// in order.
type listing struct {
	files  []string
	unread []string // directories that could not be read
}

// list lists the regular files of a directory. literal, if not empty, is a
// text that every file of interest holds; others may be left out.
func (s search) list(ctx context.Context, t workspace.Target, literal string) (listing, error) {
	root, err := t.Enter()
	if err != nil {
		return listing{}, err
	}
	defer root.Close()
	v := &tree{target: t, root: root, read: map[string]bool{}}
	admits, err := v.above(s.root)
	if err != nil {
		return listing{}, err
	}
	if admits {
		s.program = "" // it excludes what it is not told to admit
	}
	files, err := s.propose(ctx, v, literal)
	if err != nil {
		return listing{}, err
	}
	slices.Sort(files)
	return listing{files, v.unread}, nil
}

// propose lists by the search program, and without it where there is none or
// it could not read everything.
func (s search) propose(ctx context.Context, v *tree, literal string) ([]string, error) {
	if s.program == "" {
		return v.walk(ctx)
	}
	proposed, err := s.run(ctx, v.target.Path, literal)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return v.walk(ctx)
	}
	return v.admit(proposed)
}

// run runs the search program. Of the files that say what to exclude it reads
// those in the directory and below.
func (s search) run(ctx context.Context, dir, literal string) ([]string, error) {
	args := []string{"--no-config", "--null", "--hidden", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-parent", "--no-require-git", "--glob=!.git"}
	if literal == "" {
		args = append(args, "--files", "--", "./")
	} else {
		args = append(args, "--files-with-matches", "--text", "--encoding=none", "--case-sensitive", "--fixed-strings", "--regexp="+literal, "--", "./")
	}
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // nothing was found
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", s.program, err)
	}
	var files []string
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if len(name) > 0 {
			files = append(files, strings.TrimPrefix(string(name), "./"))
		}
	}
	return files, nil
}

// above learns what the files of the workspace above the directory exclude,
// unless that is the directory itself: it was named, so it is searched. It
// reports whether they admit what a file below them could exclude.
func (v *tree) above(root *workspace.Root) (admits bool, err error) {
	if v.target.External != "" || v.target.Resource == "." {
		return false, nil
	}
	var known exclusions
	parts := strings.Split(v.target.Resource, "/")
	for i := range parts {
		dir := path.Join(parts[:i]...)
		for n, name := range ignoreFiles {
			data, err := ignoreFile(root, path.Join(dir, name))
			if err != nil {
				return false, err
			}
			known[n].AddPatterns(data, dir)
			admits = admits || name != ".gitignore" && bytes.Contains(data, []byte("!"))
		}
		if known.excludes(path.Join(parts[:i+1]...), true) {
			return false, nil
		}
	}
	v.ignored, v.prefix = known, v.target.Resource+"/"
	return admits, nil
}

// ignoreFile returns the content of a file of the workspace, and nothing where
// there is no such file.
func ignoreFile(root *workspace.Root, name string) ([]byte, error) {
	t, err := root.Resolve(name)
	if errors.Is(err, workspace.ErrLocationEscape) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := t.ReadAll(maxIgnore)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, workspace.ErrNotRegular) {
		return nil, nil
	}
	return data, err
}

// maxIgnore is the size of the largest file of exclusions that is read, in
// bytes.
const maxIgnore = 4 << 20

// learn reads what the files of a directory exclude, once.
func (v *tree) learn(dir string) error {
	if v.read[dir] {
		return nil
	}
	v.read[dir] = true
	for n, name := range ignoreFiles {
		data, err := v.ignoreFile(path.Join(dir, name))
		if err != nil {
			return err
		}
		v.ignored[n].AddPatterns(data, strings.TrimSuffix(v.prefix+dir, "/"))
	}
	return nil
}

// ignoreFile returns the content of a file of the directory, and nothing where
// there is no such file, or none that can be reached in the directory.
func (v *tree) ignoreFile(name string) ([]byte, error) {
	info, err := v.root.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	if info.Size() > maxIgnore {
		return nil, fmt.Errorf("read %s: %w: over %d bytes", name, workspace.ErrTooLarge, maxIgnore)
	}
	return v.root.ReadFile(name)
}

// excludes reports whether a path is excluded, once the directories above it
// are known.
func (v *tree) excludes(name string, dir bool) bool {
	return path.Base(name) == ".git" || v.ignored.excludes(v.prefix+name, dir)
}

// walk lists the files of the directory.
func (v *tree) walk(ctx context.Context) ([]string, error) {
	var files []string
	err := fs.WalkDir(v.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case err != nil && name == ".":
			return err
		case errors.Is(err, fs.ErrNotExist): // it went away
			return fs.SkipDir
		case err != nil:
			v.unread = append(v.unread, name)
			return fs.SkipDir
		case name != "." && v.excludes(name, d.IsDir()):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir() && name == ".":
			return v.learn("")
		case d.IsDir():
			return v.learn(name)
		case d.Type().IsRegular():
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// admit returns the proposed files that the walk would have listed.
func (v *tree) admit(proposed []string) ([]string, error) {
	excluded := map[string]bool{} // directories
	var files []string
	for _, name := range proposed {
		ok, err := v.reaches(name, excluded)
		if err != nil {
			return nil, err
		}
		if !ok || v.excludes(name, false) {
			continue
		}
		if info, err := v.root.Lstat(name); err == nil && info.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	return files, nil
}

// reaches reports whether no directory above a file is excluded, and learns
// what they exclude.
func (v *tree) reaches(name string, excluded map[string]bool) (bool, error) {
	if err := v.learn(""); err != nil {
		return false, err
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		dir := name[:i]
		out, known := excluded[dir]
		if !known {
			out = v.excludes(dir, true)
			excluded[dir] = out
		}
		if out {
			return false, nil
		}
		if err := v.learn(dir); err != nil {
			return false, err
		}
	}
	return true, nil
}

var errPattern = errors.New("not a pattern")

// A pattern is what glob is given, ready to be matched.
type pattern string

// parsePattern returns a pattern, or an errPattern that says what is wrong.
func parsePattern(text string) (pattern, error) {
	switch {
	case strings.HasPrefix(text, "!"):
		return "", fmt.Errorf("%w: it begins with !, and a pattern cannot exclude", errPattern)
	case slices.Contains(strings.Split(text, "/"), ".."):
		return "", fmt.Errorf("%w: .. does not lead out of the directory that is searched: give path", errPattern)
	case !doublestar.ValidatePattern(text):
		return "", fmt.Errorf("%w: its [ ] or { } are not in pairs, or it ends in a backslash", errPattern)
	}
	text = strings.TrimPrefix(text, "./")
	if !strings.Contains(text, "/") {
		return pattern("**/" + text), nil
	}
	return pattern(strings.TrimPrefix(text, "/")), nil
}

// fits reports whether a path fits, whether or not a part of it begins with a
// dot.
func (p pattern) fits(name string) bool { return doublestar.MatchUnvalidated(string(p), name) }

// matches reports whether a path fits. A part of the path that begins with a
// dot needs a part of the pattern that does.
func (p pattern) matches(name string) bool { return p.fits(name) && p.dotted(name) }

// dotted reports whether, for each part of a path that begins with a dot, a
// part of the pattern with the dot written out matches it.
func (p pattern) dotted(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part[0] == '.' && !slices.ContainsFunc(p.parts(), func(q string) bool {
			return (q[0] == '.' || strings.HasPrefix(q, `\.`) || strings.HasPrefix(q, "{") && strings.Contains(q, ".")) && doublestar.MatchUnvalidated(q, part)
		}) {
			return false
		}
	}
	return true
}

// parts returns the parts of the pattern that are not empty. A slash within
// braces parts nothing.
func (p pattern) parts() []string {
	depth := 0
	return strings.FieldsFunc(string(p), func(r rune) bool {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		return r == '/' && depth == 0
	})
}
