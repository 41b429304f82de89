package filesearch

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

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
