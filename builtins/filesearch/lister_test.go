package filesearch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// newRoot returns a workspace with files, each given as the name and the content. The
// directory outside is beside it.
func newRoot(t testing.TB, files map[string]string) (root *workspace.Root, outside string) {
	t.Helper()
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "work")
	for _, made := range []string{dir, filepath.Join(parent, "outside")} {
		if err := os.Mkdir(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	root, err = workspace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, filepath.Join(parent, "outside")
}

// list lists a directory of the workspace.
func list(ctx context.Context, t testing.TB, l Lister, dir, literal string) (Listing, error) {
	t.Helper()
	target, err := l.Root.Resolve(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := target.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	return l.List(ctx, h, literal)
}

// trees are the files of the workspace in the tests of ignore files.
var trees = map[string]string{
	".gitignore": "*.log\n!keep.log\n/build/\nskipped\n", ".ignore": "!admitted.log\nhidden.txt\n", ".rgignore": "!hidden.txt\n",
	"a.log": "needle", "keep.log": "needle", "admitted.log": "needle", "build/out.txt": "needle", "src/build/in.txt": "needle", "hidden.txt": "needle",
	"src/.gitignore": "*.tmp\n!a.log\n", "src/a.log": "x", "src/b.tmp": "needle", "src/admitted.log": "needle", "skipped/deep/in.txt": "needle", ".git/config": "needle", ".dot/a": "needle",
}

func TestIgnoreFilesExcludeWithAndWithoutProgram(t *testing.T) {
	t.Parallel()
	root, _ := newRoot(t, trees)
	if err := errors.Join(os.Symlink("src", filepath.Join(root.Path(), "linked")), os.Symlink("keep.log", filepath.Join(root.Path(), "link.log"))); err != nil {
		t.Fatal(err)
	}
	programs := []string{""}
	if rg, err := exec.LookPath("rg"); err == nil {
		programs = append(programs, rg)
	}
	for dir, want := range map[string]string{
		".":           ".dot/a .gitignore .ignore .rgignore admitted.log hidden.txt keep.log src/.gitignore src/a.log src/admitted.log src/build/in.txt",
		"src":         ".gitignore a.log admitted.log build/in.txt",
		"skipped":     "deep/in.txt", // it was named
		"src/build/.": "in.txt",
	} {
		for _, program := range programs {
			got, err := list(t.Context(), t, Lister{root, program}, dir, "")
			if strings.Join(got.Files, " ") != want || len(got.Unread) != 0 || err != nil {
				t.Errorf("List(%s) with program %q = %v, %v, want %s", dir, program, got, err, want)
			}
		}
	}
}

func TestListWithALiteralHasEveryFileThatContainsIt(t *testing.T) {
	t.Parallel()
	root, _ := newRoot(t, trees)
	program, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep (rg) is not in PATH: every file is listed without it")
	}
	got, err := list(t.Context(), t, Lister{root, program}, ".", "needle")
	if want := []string{".dot/a", "admitted.log", "hidden.txt", "keep.log", "src/admitted.log", "src/build/in.txt"}; err != nil || !cmp.Equal(want, got.Files) {
		t.Errorf("List = %v, %v, want %v", got, err, want)
	}
}

func TestProgramOnlyProposes(t *testing.T) {
	t.Parallel()
	root, outside := newRoot(t, map[string]string{"a.txt": "", "b.txt": "", "ignored.txt": "", ".git/x.txt": "", "sub/x": "", ".gitignore": "ignored.txt"})
	if err := os.WriteFile(filepath.Join(outside, "needle.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for exit, want := range map[int]string{0: "a.txt", 1: "a.txt", 2: ".gitignore a.txt b.txt sub/x"} {
		program := filepath.Join(outside, fmt.Sprintf("rg%d", exit))
		script := fmt.Sprintf("#!/bin/sh\nprintf './a.txt\\0../outside/needle.txt\\0./ignored.txt\\0.git/x.txt\\0none.txt\\0sub\\0'\nexit %d", exit)
		if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := list(t.Context(), t, Lister{root, program}, ".", "")
		if strings.Join(got.Files, " ") != want || err != nil {
			t.Errorf("with a program that exits with %d, List = %v, %v, want %s", exit, got, err, want)
		}
	}
}

func TestDeepTreeIsListedToALimit(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEDGER_TEST_LONG") == "" {
		t.Skip("LEDGER_TEST_LONG is not set: a tree of 300 directories takes seconds with the race detector")
	}
	root, _ := newRoot(t, map[string]string{strings.Repeat("d/", 300) + "deep.txt": "", strings.Repeat("d/", 200) + "near.txt": ""})
	got, err := list(t.Context(), t, Lister{Root: root}, ".", "")
	if err != nil || len(got.Files) != 1 || len(got.Unread) != 1 {
		t.Errorf("List returns %d files and %d unread directories, %v, want 1 and 1", len(got.Files), len(got.Unread), err)
	}
}

// The walk begins at a depth near the limit.
func TestDirectoryBelowTheLimitIsReported(t *testing.T) {
	t.Parallel()
	root, _ := newRoot(t, map[string]string{"d/near.txt": "", "d/d/deep.txt": ""})
	target, err := root.Resolve(".")
	if err != nil {
		t.Fatal(err)
	}
	h, err := target.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	tree, err := h.Tree()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	v := &treeWalk{target: target, root: tree, readDirs: map[string]bool{}}
	var files []string
	if err := v.walkIn(t.Context(), ".", maxTreeDepth-1, &files); err != nil || !cmp.Equal(files, []string{"d/near.txt"}) || !cmp.Equal(v.unread, []string{"d/d"}) {
		t.Errorf("the walk finds %v and leaves %v unread, %v", files, v.unread, err)
	}
}

func TestUnreadableDirectoryIsReported(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("everything is readable for root")
	}
	root, _ := newRoot(t, map[string]string{"closed/a": "", "b": ""})
	closed := filepath.Join(root.Path(), "closed")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o755) })
	got, err := list(t.Context(), t, Lister{Root: root}, ".", "")
	if want := (Listing{[]string{"b"}, []string{"closed"}}); err != nil || !cmp.Equal(want, got) {
		t.Errorf("List = %v, %v, want %v", got, err, want)
	}
}

func TestHugeIgnoreFileIsRefused(t *testing.T) {
	t.Parallel()
	root, _ := newRoot(t, map[string]string{".gitignore": strings.Repeat("*a*a*a*b\n", 100_000)})
	if _, err := list(t.Context(), t, Lister{Root: root}, ".", ""); !errors.Is(err, workspace.ErrTooLarge) || !strings.Contains(err.Error(), "files of exclusions may have") {
		t.Errorf("List = %v, want %v", err, workspace.ErrTooLarge)
	}
}

func TestListEndsWithItsContext(t *testing.T) {
	t.Parallel()
	root, _ := newRoot(t, trees)
	ended := errors.New("the call ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	for _, program := range []string{"", "/bin/sh"} {
		if _, err := list(ctx, t, Lister{root, program}, ".", ""); !errors.Is(err, ended) {
			t.Errorf("List with program %q in an ended context = %v, want its cause", program, err)
		}
	}
}
