package filesearch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/git-pkgs/gitignore"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

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
