package builtins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/git-pkgs/gitignore"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// A fileLister lists the files of a directory that are not excluded. A search program makes it
// faster without changing the result: its proposals are filtered by the same rules.
type fileLister struct {
	root    *workspace.Root
	program string // empty: none
}

// A treeWalk is a directory during a search, with the exclusions read so far.
type treeWalk struct {
	target       workspace.ResolvedPath
	root         *workspace.Tree
	ignored      ignoreMatchers
	prefix       string          // from where the exclusions count to the directory; empty or with a slash at the end
	readDirs     map[string]bool // directories whose files of exclusions are known, as seen from the directory
	unread       []string        // directories that could not be read
	nameBytes    int             // bytes of the names found so far
	patternBytes int             // bytes of the files of exclusions read so far
}

// ignoreFiles are the names of exclusion files, in order of precedence.
var ignoreFiles = [...]string{".rgignore", ".ignore", ".gitignore"}

// ignoreMatchers are the matchers of the exclusion files of each name.
type ignoreMatchers [len(ignoreFiles)]gitignore.Matcher

// excludes reports whether a path is excluded.
func (e *ignoreMatchers) excludes(name string, dir bool) bool {
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

// A listing is the content of a directory, as sorted relative paths with slashes.
type listing struct {
	files  []string
	unread []string // directories that could not be read
}

// list lists the regular files of a directory. literal, if not empty, is a
// text that every file of interest holds; others may be left out.
func (s fileLister) list(ctx context.Context, h *workspace.Handle, literal string) (listing, error) {
	root, err := h.Tree()
	if err != nil {
		return listing{}, err
	}
	defer root.Close()
	v := &treeWalk{target: h.Resolved(), root: root, readDirs: map[string]bool{}}
	admits, err := v.readParentIgnoreFiles(s.root)
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

// propose lists files with the search program. It walks the directory instead if there is no
// program or the program could not read everything.
func (s fileLister) propose(ctx context.Context, v *treeWalk, literal string) ([]string, error) {
	if s.program == "" {
		return v.walk(ctx)
	}
	proposed, err := s.runProgram(ctx, v.target.Path, literal)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return v.walk(ctx)
	}
	return v.filterProposed(ctx, proposed)
}

// runProgram runs the search program, which reads the exclusion files in the directory and below.
func (s fileLister) runProgram(ctx context.Context, dir, literal string) ([]string, error) {
	args := []string{"--no-config", "--null", "--hidden", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-parent", "--no-require-git", "--glob=!.git"}
	if literal == "" {
		args = append(args, "--files", "--", "./")
	} else {
		args = append(args, "--files-with-matches", "--text", "--encoding=none", "--case-sensitive", "--fixed-strings", "--regexp="+literal, "--", "./")
	}
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = dir
	out := &boundedBuffer{limit: maxNameBytes}
	cmd.Stdout = out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // nothing was found
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", s.program, err)
	}
	var files []string
	for name := range bytes.SplitSeq(out.Bytes(), []byte{0}) {
		if len(name) > 0 {
			files = append(files, strings.TrimPrefix(string(name), "./"))
		}
	}
	return files, nil
}

// maxNameBytes is how many bytes the names of the files of a search may take.
const maxNameBytes = 64 << 20

var errTooMany = fmt.Errorf("there are too many files: their names take over %d bytes: name a directory with fewer", maxNameBytes)

// A boundedBuffer is a buffer whose Write fails once its limit is reached.
type boundedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errTooMany
	}
	return b.Buffer.Write(p)
}

// readParentIgnoreFiles reads the exclusion files of the workspace above the directory. They never exclude the
// directory itself, because the call names it. It reports whether they admit a path that a
// lower file could exclude.
func (v *treeWalk) readParentIgnoreFiles(root *workspace.Root) (admits bool, err error) {
	if v.target.External != "" || v.target.Resource == "." {
		return false, nil
	}
	var known ignoreMatchers
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

// ignoreFile returns the content of an exclusion file of the workspace, or nil if the file
// does not exist.
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

// The limits of files of exclusions, in bytes: every pattern is tried on every
// file.
const (
	maxIgnore  = 256 << 10 // one file
	maxIgnores = 1 << 20   // all files of a search
)

// readIgnoreFiles reads the exclusion files of a directory, once.
func (v *treeWalk) readIgnoreFiles(dir string) error {
	if v.readDirs[dir] {
		return nil
	}
	v.readDirs[dir] = true
	for n, name := range ignoreFiles {
		data, err := v.ignoreFile(path.Join(dir, name))
		if err != nil {
			return err
		}
		v.ignored[n].AddPatterns(data, strings.TrimSuffix(v.prefix+dir, "/"))
	}
	return nil
}

// ignoreFile returns the content of an exclusion file of the directory, or nil if it does not
// exist or cannot be reached within the directory.
func (v *treeWalk) ignoreFile(name string) ([]byte, error) {
	f, err := v.root.Open(name)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnore+1))
	if err != nil {
		return nil, nil
	}
	if v.patternBytes += len(data); len(data) > maxIgnore || v.patternBytes > maxIgnores {
		return nil, fmt.Errorf("read %s: %w: files of exclusions may have %d bytes each and %d in all", name, workspace.ErrTooLarge, maxIgnore, maxIgnores)
	}
	return data, nil
}

// excludes reports whether a path is excluded, once the directories above it
// are known.
func (v *treeWalk) excludes(name string, dir bool) bool {
	return path.Base(name) == ".git" || v.ignored.excludes(v.prefix+name, dir)
}

// maxTreeDepth is how many directories deep a search goes.
const maxTreeDepth = 256

// walk lists the files of the directory.
func (v *treeWalk) walk(ctx context.Context) ([]string, error) {
	var files []string
	err := v.walkIn(ctx, ".", 0, &files)
	return files, err
}

// walkIn appends the files of a directory and its subdirectories.
func (v *treeWalk) walkIn(ctx context.Context, dir string, depth int, files *[]string) error {
	prefix := dir + "/"
	if dir == "." {
		prefix = ""
	}
	if err := v.readIgnoreFiles(strings.TrimSuffix(prefix, "/")); err != nil {
		return err
	}
	var below []string
	for entry, err := range v.root.Entries(dir) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case err != nil && dir == ".":
			return err
		case errors.Is(err, fs.ErrNotExist): // it went away
			return nil
		case err != nil:
			v.unread = append(v.unread, dir)
			return nil
		}
		name := prefix + entry.Name()
		if v.nameBytes += len(name); v.nameBytes > maxNameBytes {
			return errTooMany
		}
		switch {
		case v.excludes(name, entry.IsDir()):
		case entry.IsDir():
			below = append(below, name)
		case entry.Type().IsRegular():
			*files = append(*files, name)
		}
	}
	slices.Sort(below)
	for _, name := range below {
		if depth == maxTreeDepth {
			v.unread = append(v.unread, name)
			continue
		}
		if err := v.walkIn(ctx, name, depth+1, files); err != nil {
			return err
		}
	}
	return nil
}

// filterProposed returns the proposed files that the walk would have listed.
func (v *treeWalk) filterProposed(ctx context.Context, proposed []string) ([]string, error) {
	excluded := map[string]bool{} // directories
	var files []string
	for _, name := range proposed {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !fs.ValidPath(name) || strings.Count(name, "/") > maxTreeDepth {
			continue
		}
		ok, err := v.parentsIncluded(name, excluded)
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

// parentsIncluded reports whether no directory above a file is excluded. It reads their exclusion
// files.
func (v *treeWalk) parentsIncluded(name string, excluded map[string]bool) (bool, error) {
	if err := v.readIgnoreFiles(""); err != nil {
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
		if err := v.readIgnoreFiles(dir); err != nil {
			return false, err
		}
	}
	return true, nil
}

var errBadPattern = errors.New("not a pattern")

// A globPattern is a parsed glob pattern.
type globPattern struct {
	text     string
	dotParts []string // those that a name with a dot can match
}

// The limits of a pattern.
const (
	maxPatternBytes = 4096 // bytes
	maxAlternatives = 256  // without braces that it stands for
)

// parsePattern parses a pattern. It returns an errPattern with the reason.
func parsePattern(text string) (globPattern, error) {
	switch {
	case len(text) > maxPatternBytes:
		return globPattern{}, fmt.Errorf("%w: it has %d bytes: use at most %d", errBadPattern, len(text), maxPatternBytes)
	case strings.HasPrefix(text, "!"):
		return globPattern{}, fmt.Errorf("%w: it begins with !, and a pattern cannot exclude", errBadPattern)
	case slices.Contains(strings.Split(text, "/"), ".."):
		return globPattern{}, fmt.Errorf("%w: .. does not lead out of the directory that is searched: give path", errBadPattern)
	case countAlternatives(text) > maxAlternatives:
		return globPattern{}, fmt.Errorf("%w: its braces stand for over %d patterns: use fewer alternatives", errBadPattern, maxAlternatives)
	case !doublestar.ValidatePattern(text):
		return globPattern{}, fmt.Errorf("%w: its [ ] or { } are not in pairs, or it ends in a backslash", errBadPattern)
	}
	text = strings.TrimPrefix(text, "./")
	if !strings.Contains(text, "/") {
		text = "**/" + text
	}
	p := globPattern{text: strings.TrimPrefix(text, "/")}
	for _, part := range splitPattern(p.text) {
		if part[0] == '.' || strings.HasPrefix(part, `\.`) || strings.HasPrefix(part, "{") && strings.Contains(part, ".") {
			p.dotParts = append(p.dotParts, part)
		}
	}
	return p, nil
}

// countAlternatives returns the number of brace-free patterns that a pattern expands to. It stops
// counting above the limit. Each alternative is matched separately against each file.
func countAlternatives(text string) int {
	type group struct{ before, sum int } // of the text before the braces, and of its alternatives so far
	var open []group
	now := 1
	for i := 0; i < len(text) && now <= maxAlternatives; i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			open = append(open, group{before: now})
			now = 1
		case ',':
			if n := len(open); n > 0 {
				open[n-1].sum += now
				now = 1
			}
		case '}':
			if n := len(open); n > 0 {
				now = open[n-1].before * (open[n-1].sum + now)
				open = open[:n-1]
			}
		}
	}
	for _, g := range open { // braces that are not closed, or over the limit
		now = max(now, g.before, g.sum)
	}
	return now
}

// matchesPath reports whether a path fits, whether or not a part of it begins with a
// dot.
func (p globPattern) matchesPath(name string) bool { return doublestar.MatchUnvalidated(p.text, name) }

// matches reports whether a path fits. A part of the path that begins with a
// dot needs a part of the pattern that does.
func (p globPattern) matches(name string) bool { return p.matchesPath(name) && p.matchesDotNames(name) }

// matchesDotNames reports whether, for each part of a path that begins with a dot, a
// part of the pattern with the dot written out matches it.
func (p globPattern) matchesDotNames(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part[0] == '.' && !slices.ContainsFunc(p.dotParts, func(q string) bool { return doublestar.MatchUnvalidated(q, part) }) {
			return false
		}
	}
	return true
}

// splitPattern splits a pattern at slashes outside braces and returns the non-empty parts.
func splitPattern(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		return r == '/' && depth == 0
	})
}
