package filesearch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// A Lister lists the files below a directory. It omits files that ignore files exclude. A
// search program makes it faster and does not change the result: the list of the program
// is filtered by the same rules. A Lister may be used by several goroutines at once.
type Lister struct {
	// Root is the workspace. Its ignore files above the directory apply too.
	Root *workspace.Root
	// Program is the path of ripgrep. Empty: walk the directory without a program.
	Program string
}

// A Listing is the content of a directory. Its paths are relative to the directory and
// have slashes.
type Listing struct {
	Files  []string // sorted
	Unread []string // directories that could not be read
}

// List returns the regular files below the directory of h that are not ignored. If literal
// is not empty, List may leave out files that do not contain literal. The caller keeps h,
// which must be a directory below Root or outside it.
//
// List returns an error if the names exceed maxNameBytes, workspace.ErrTooLarge for too
// large ignore files, the error of reading the directory itself, and the cause of an ended
// context.
func (l Lister) List(ctx context.Context, h *workspace.Handle, literal string) (Listing, error) {
	root, err := h.Tree()
	if err != nil {
		return Listing{}, err
	}
	defer root.Close()
	v := &treeWalk{target: h.Resolved(), root: root, readDirs: map[string]bool{}}
	admits, err := v.readParentIgnoreFiles(l.Root)
	if err != nil {
		return Listing{}, err
	}
	if admits {
		l.Program = "" // ripgrep would omit files that a negated pattern above includes
	}
	files, err := l.propose(ctx, v, literal)
	if err != nil {
		return Listing{}, err
	}
	slices.Sort(files)
	return Listing{files, v.unread}, nil
}

// propose lists files with the search program and filters them. It walks the directory
// itself if there is no program or the program fails.
func (l Lister) propose(ctx context.Context, v *treeWalk, literal string) ([]string, error) {
	if l.Program == "" {
		return v.walk(ctx)
	}
	proposed, err := l.runProgram(ctx, v.target.Path, literal)
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
func (l Lister) runProgram(ctx context.Context, dir, literal string) ([]string, error) {
	args := []string{"--no-config", "--null", "--hidden", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-parent", "--no-require-git", "--glob=!.git"}
	if literal == "" {
		args = append(args, "--files", "--", "./")
	} else {
		args = append(args, "--files-with-matches", "--text", "--encoding=none", "--case-sensitive", "--fixed-strings", "--regexp="+literal, "--", "./")
	}
	cmd := exec.CommandContext(ctx, l.Program, args...)
	cmd.Dir = dir
	out := &boundedBuffer{limit: maxNameBytes}
	cmd.Stdout = out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // ripgrep found no file
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", l.Program, err)
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
