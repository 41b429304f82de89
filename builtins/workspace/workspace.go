package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The errors of this package. Callers match them with errors.Is.
var (
	ErrRelativeEscape = errors.New("relative_escape: the path leaves the workspace by its parent folders")
	ErrLocationEscape = errors.New("location_escape: a symbolic link leads out of the workspace")
	ErrNotDirectory   = errors.New("non_directory_ancestor: a part of the path before the last is not a directory")
	ErrBadPath        = errors.New("not a path")
	ErrNotRegular     = errors.New("not a regular file")
	ErrChanged        = errors.New("the file was replaced or changed since it was opened")
	ErrTooLarge       = errors.New("the file is too large")
)

// A Root is an open directory below which files are reached. It is safe for concurrent
// use. The caller closes it.
type Root struct {
	dir   *os.File
	path  string    // canonical path of dir
	locks pathLocks // one for each path that is being written
}

// Open opens a directory as a Root. It follows symbolic links in dir. The caller closes
// the Root.
func Open(dir string) (*Root, error) {
	canonical, err := filepath.Abs(dir)
	if err == nil {
		canonical, err = filepath.EvalSymlinks(canonical)
	}
	if err != nil {
		return nil, fmt.Errorf("open workspace %s: %w", dir, err)
	}
	f, err := openAt(nil, canonical, pathFlags|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("open workspace %s: %w", dir, err)
	}
	return &Root{dir: f, path: canonical}, nil
}

// Close closes the directory. Paths and handles of the Root cannot be used afterwards.
func (r *Root) Close() error { return r.dir.Close() }

// Path returns the canonical absolute path of the directory.
func (r *Root) Path() string { return r.path }

// A ResolvedPath is a canonical path in the file system, which need not exist.
// [Root.Resolve] makes it. The zero ResolvedPath is invalid.
type ResolvedPath struct {
	root *Root
	// Path is the canonical absolute path.
	Path string
	// Resource is the resource of a permission request: the path relative to the root
	// with slashes, "." for the root itself, or the canonical path if it is external.
	Resource string
	// External is empty for a path under the root. For any other path it is the
	// resource of the permission to leave the root, DIRECTORY/*. DIRECTORY is the
	// deepest existing directory on the path, which may be the path itself.
	External string
	// Linked reports that the last name of the path that the model wrote is a symbolic
	// link.
	Linked bool
}

// Resolve returns the canonical path for a path that a model wrote. A relative path
// starts at the root. Symbolic links are followed, and the file need not exist. Resolve
// returns ErrBadPath for an empty path or a path with a NUL, ErrRelativeEscape if ..
// leads out of the root, ErrLocationEscape if a symbolic link under the root leads out
// of the root, and ErrNotDirectory if the path uses a file as a directory.
func (r *Root) Resolve(path string) (ResolvedPath, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return ResolvedPath{}, fmt.Errorf("resolve %q: %w: give a path in the workspace or an absolute one", path, ErrBadPath)
	}
	absolute := filepath.Clean(path)
	if !filepath.IsAbs(path) {
		absolute = filepath.Join(r.path, path)
		if !within(r.path, absolute) {
			return ResolvedPath{}, fmt.Errorf("resolve %s: %w", path, ErrRelativeEscape)
		}
	}
	at, err := followLinks(absolute)
	if err != nil {
		return ResolvedPath{}, fmt.Errorf("resolve %s: %w", path, err)
	}
	if within(r.path, at.path) {
		return ResolvedPath{root: r, Path: at.path, Resource: relativeTo(r.path, at.path), Linked: at.linked}, nil
	}
	if within(r.path, absolute) {
		return ResolvedPath{}, fmt.Errorf("resolve %s: %w", path, ErrLocationEscape)
	}
	return ResolvedPath{root: r, Path: at.path, Resource: at.path, External: filepath.Join(at.directory, "*"), Linked: at.linked}, nil
}

// within reports whether path is dir or below dir. Both are clean absolute paths.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// relativeTo returns path, which lies within dir, relative to dir and with slashes. It
// returns "." for dir itself.
func relativeTo(dir, path string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, strings.TrimSuffix(dir, "/")), "/")
	if rest == "" {
		return "."
	}
	return rest
}

// A realPath is a path after every symbolic link was followed.
type realPath struct {
	path      string // without symbolic links; need not exist
	directory string // the deepest existing directory on the path
	linked    bool   // the last name is a symbolic link
}

// maxLinks is the maximum number of symbolic links on one path.
const maxLinks = 255

// followLinks follows every symbolic link of a clean absolute path. It also follows a
// link to a missing file, because a file that is created through the link is created at
// the target of the link.
func followLinks(path string) (realPath, error) {
	at := realPath{path: "/", directory: "/"}
	parts, links := splitPath(path), 0
	for len(parts) > 0 {
		part := parts[0]
		parts = parts[1:]
		if part == ".." { // from the target of a link; at.path has no links, so its parent is correct
			at.path = filepath.Dir(at.path)
			if !within(at.directory, at.path) {
				at.directory = at.path
			}
			continue
		}
		next := filepath.Join(at.path, part)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return realPath{}, err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return realPath{}, fmt.Errorf("%w: more than %d symbolic links", ErrBadPath, maxLinks)
			}
			target, err := os.Readlink(next)
			if err != nil {
				return realPath{}, err
			}
			at.linked = at.linked || len(parts) == 0
			if filepath.IsAbs(target) {
				at.path, at.directory = "/", "/"
			}
			parts = append(splitPath(target), parts...)
			continue
		case info.IsDir():
			at.directory = next
		case len(parts) > 0:
			return realPath{}, fmt.Errorf("%w: %s", ErrNotDirectory, next)
		}
		at.path = next
	}
	return at, nil
}

// splitPath returns the parts of a path without empty parts and ".". It keeps "..",
// which a symbolic link can contain.
func splitPath(path string) []string {
	parts := strings.Split(path, "/")
	kept := parts[:0]
	for _, part := range parts {
		if part != "" && part != "." {
			kept = append(kept, part)
		}
	}
	return kept
}
