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

// A fileLister lists the files below a directory. It omits files that ignore files
// exclude. A search program makes it faster and does not change the result: the list
// of the program is filtered by the same rules.
type fileLister struct {
	root    *workspace.Root
	program string // path of ripgrep; empty: walk the directory without a program
}

// A treeWalk is one walk over a directory, with the ignore files read so far. It belongs
// to one goroutine.
type treeWalk struct {
	target       workspace.ResolvedPath
	root         *workspace.Tree // the open directory
	ignored      ignoreMatchers
	prefix       string          // path from the workspace to the directory, with a slash at the end; empty if ignore files above do not apply
	readDirs     map[string]bool // directories whose ignore files were read, as paths below root
	unread       []string        // directories that could not be read
	nameBytes    int             // size of all names found so far
	patternBytes int             // size of all ignore files read so far
}

// ignoreFiles are the names of ignore files. The first file that matches a path decides.
var ignoreFiles = [...]string{".rgignore", ".ignore", ".gitignore"}

// ignoreMatchers are the compiled patterns of the ignore files, one matcher for each
// name.
type ignoreMatchers [len(ignoreFiles)]gitignore.Matcher

// excludes reports whether the ignore files exclude a path relative to the workspace.
// dir is true if the path is a directory. The first kind of ignore file with a
// matching pattern decides; a path that no pattern matches is not excluded.
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

// A listing is the content of a directory: relative paths with slashes, sorted.
type listing struct {
	files  []string
	unread []string // directories that could not be read
}

// list returns the regular files below a directory that are not ignored. If literal is
// not empty, list may leave out files that do not contain literal. It returns
// errTooMany if the names exceed maxNameBytes.
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
		s.program = "" // ripgrep would omit files that a negated pattern above includes
	}
	files, err := s.propose(ctx, v, literal)
	if err != nil {
		return listing{}, err
	}
	slices.Sort(files)
	return listing{files, v.unread}, nil
}

// propose lists files with the search program and filters them. It walks the directory
// itself if there is no program or the program fails.
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

// runProgram runs ripgrep in dir and returns the paths that it prints. ripgrep reads
// the ignore files in dir and below; the caller applies the ignore files above dir.
// It returns an error if the names exceed maxNameBytes or ripgrep fails.
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
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // ripgrep found no file
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

// maxNameBytes is the maximum size of all file names of one search, in bytes.
const maxNameBytes = 64 << 20

// errTooMany is the error of a search whose file names together exceed maxNameBytes.
var errTooMany = fmt.Errorf("there are too many files: their names take over %d bytes: name a directory with fewer", maxNameBytes)

// A boundedBuffer is a bytes.Buffer whose Write returns errTooMany once the limit is
// exceeded.
type boundedBuffer struct {
	bytes.Buffer
	limit int // in bytes
}

// Write appends p as a whole. If the limit would be exceeded, it appends no byte and
// returns errTooMany.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, errTooMany
	}
	return b.Buffer.Write(p)
}

// readParentIgnoreFiles reads the ignore files between the root of the workspace and
// the directory. If they exclude the directory itself, it discards them, because the
// call names this directory.
//
// admits reports that an ignore file other than .gitignore contains a negated pattern
// (!). Such a pattern can include a file that an ignore file further down excludes.
// ripgrep does not read the ignore files above the directory, so it would omit that
// file.
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

// ignoreFile returns the content of an ignore file of the workspace, at most maxIgnore
// bytes. It returns nil if the file does not exist, is not regular or lies outside the
// workspace.
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

// The limits of ignore files. They bound the time of a search.
const (
	// maxIgnore is the maximum size of one ignore file, in bytes. Every pattern is matched
	// against every path.
	maxIgnore = 256 << 10
	// maxIgnores is the maximum size of all ignore files of a search, in bytes.
	maxIgnores = 1 << 20
)

// readIgnoreFiles reads the ignore files of a directory below the root, once.
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

// ignoreFile returns the content of an ignore file below the root, or nil if the file
// cannot be read. It returns workspace.ErrTooLarge for a file over the limits.
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

// excludes reports whether a path below the root is ignored. The caller has read the
// ignore files of the directories above it. Every .git is ignored.
func (v *treeWalk) excludes(name string, dir bool) bool {
	return path.Base(name) == ".git" || v.ignored.excludes(v.prefix+name, dir)
}

// maxTreeDepth is the maximum depth of a search, in directories. Deeper directories are
// reported as unread.
const maxTreeDepth = 256

// walk lists the files below the root that are not ignored, in no particular order.
func (v *treeWalk) walk(ctx context.Context) ([]string, error) {
	var files []string
	err := v.walkIn(ctx, ".", 0, &files)
	return files, err
}

// walkIn appends the files of dir and its subdirectories to files. depth is the number
// of directories above dir. A directory that cannot be read is reported as unread,
// except for the root.
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
		case errors.Is(err, fs.ErrNotExist): // removed since its parent was read
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

// filterProposed returns the proposed paths that walk would list: regular files within
// the depth limit that no ignore file excludes.
func (v *treeWalk) filterProposed(ctx context.Context, proposed []string) ([]string, error) {
	excluded := map[string]bool{} // by directory, whether it is ignored
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

// parentsIncluded reports whether no directory above a file is ignored, and reads the
// ignore files of these directories. excluded caches the result for each directory.
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

// errBadPattern is the error of an invalid glob pattern.
var errBadPattern = errors.New("not a pattern")

// A globPattern is a parsed glob pattern, relative to the searched directory.
type globPattern struct {
	text     string   // without a leading slash; **/ is added to a pattern without a slash
	dotParts []string // parts that begin with a dot, and can match a dot file
}

// The limits of a pattern.
const (
	// maxPatternBytes is the maximum length of a glob pattern or a regular expression, in
	// bytes.
	maxPatternBytes = 4096
	// maxAlternatives is the maximum number of patterns that the braces of one pattern
	// expand to.
	maxAlternatives = 256
)

// parsePattern parses a glob pattern. It returns an errBadPattern that states the reason
// for a pattern that is too long, negated, contains "..", has unbalanced brackets or
// expands to too many alternatives.
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

// countAlternatives returns the number of patterns without braces that a pattern
// expands to. Above maxAlternatives it stops and returns a number over that limit. Each
// of these patterns is matched separately against each file.
func countAlternatives(text string) int {
	type group struct{ before, sum int } // numbers of patterns: of the text before the braces, and of the alternatives so far
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
	for _, g := range open { // unclosed braces, or counting stopped at the limit
		now = max(now, g.before, g.sum)
	}
	return now
}

// matchesPath reports whether a path matches. Wildcards match a leading dot.
func (p globPattern) matchesPath(name string) bool { return doublestar.MatchUnvalidated(p.text, name) }

// matches reports whether a path matches. A wildcard does not match the leading dot of an
// element of the path.
func (p globPattern) matches(name string) bool { return p.matchesPath(name) && p.matchesDotNames(name) }

// matchesDotNames reports whether every hidden element of a path, one with a leading
// dot, matches an element of the pattern that begins with a literal dot.
func (p globPattern) matchesDotNames(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part[0] == '.' && !slices.ContainsFunc(p.dotParts, func(q string) bool { return doublestar.MatchUnvalidated(q, part) }) {
			return false
		}
	}
	return true
}

// splitPattern splits a pattern at the slashes outside braces and returns the parts that
// are not empty.
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
