package workspace_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// A ground is a workspace and a directory outside it.
type ground struct {
	*workspace.Root
	outside string
}

func open(t testing.TB) ground {
	t.Helper()
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := ground{outside: filepath.Join(parent, "outside")}
	for _, dir := range []string{"work/sub", "outside/deep"} {
		if err := os.MkdirAll(filepath.Join(parent, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if g.Root, err = workspace.Open(filepath.Join(parent, "work")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func (g ground) link(t testing.TB, target, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(g.Path(), name)); err != nil {
		t.Fatal(err)
	}
}

func (g ground) put(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.Path(), name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (g ground) content(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(g.Path(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (g ground) target(t testing.TB, path string) workspace.ResolvedPath {
	t.Helper()
	target, err := g.Resolve(path)
	if err != nil {
		t.Fatalf("Resolve(%q) = %v", path, err)
	}
	return target
}

func (g ground) acquire(t testing.TB, path string) *workspace.Handle {
	t.Helper()
	h, err := g.target(t, path).Acquire()
	if err != nil {
		t.Fatalf("Acquire(%q) = %v", path, err)
	}
	t.Cleanup(h.Close)
	return h
}

func TestPathsResolveToOneCanonicalTarget(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "sub/a", "")
	g.link(t, "sub/a", "relative")
	g.link(t, filepath.Join(g.Path(), "sub"), "absolute")
	g.link(t, "sub/none", "dangling")
	g.link(t, g.outside, "out")
	for path, want := range map[string]string{
		".": ".", "sub": "sub", "sub/a": "sub/a", "./sub//../sub/a": "sub/a", "relative": "sub/a", "absolute/a": "sub/a", "dangling": "sub/none",
		g.Path(): ".", g.Path() + "/sub/a": "sub/a", "new/deep/file": "new/deep/file", "..x": "..x",
	} {
		target := g.target(t, path)
		if target.Resource != want || target.External != "" || target.Path != filepath.Join(g.Path(), want) {
			t.Errorf("Resolve(%q) = %+v, want %q", path, target, want)
		}
	}
	for path, want := range map[string]string{
		g.outside: g.outside + "/*", g.outside + "/x": g.outside + "/*", g.outside + "/deep": g.outside + "/deep/*",
		g.outside + "/no/such/x": g.outside + "/*", g.Path() + "/../outside/deep/x": g.outside + "/deep/*", "/": "/*",
	} {
		if target := g.target(t, path); target.External != want || target.Resource != target.Path {
			t.Errorf("Resolve(%q) = %+v, want external %q", path, target, want)
		}
	}
}

func TestEscapeIsRefused(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "file", "")
	g.link(t, g.outside, "out")
	g.link(t, "../outside/none", "dangling")
	g.link(t, "loop", "loop")
	g.link(t, "none/../../outside", "through")
	for path, want := range map[string]error{
		"../outside": workspace.ErrRelativeEscape, "sub/../../x": workspace.ErrRelativeEscape, "..": workspace.ErrRelativeEscape,
		"out": workspace.ErrLocationEscape, "out/deep": workspace.ErrLocationEscape, "dangling": workspace.ErrLocationEscape,
		"through": workspace.ErrLocationEscape, g.Path() + "/out/x": workspace.ErrLocationEscape,
		"file/x": workspace.ErrNotDirectory, "loop": workspace.ErrBadPath, "": workspace.ErrBadPath, "a\x00b": workspace.ErrBadPath,
	} {
		if target, err := g.Resolve(path); !errors.Is(err, want) {
			t.Errorf("Resolve(%q) = %+v, %v, want %v", path, target, err, want)
		}
	}
}

func TestLinkPutInTheWayLaterLeadsNowhere(t *testing.T) {
	t.Parallel()
	g := open(t)
	if err := os.WriteFile(filepath.Join(g.outside, "a"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	target := g.target(t, "sub/a")
	if err := os.Remove(filepath.Join(g.Path(), "sub")); err != nil {
		t.Fatal(err)
	}
	g.link(t, g.outside, "sub")
	if _, err := target.ReadAll(100); err == nil {
		t.Error("ReadAll went through a link that was put in the way")
	}
	if _, err := target.Write(func(*os.File) ([]byte, error) { return []byte("x"), nil }); err == nil {
		t.Error("Write went through a link that was put in the way")
	}
	if data, err := os.ReadFile(filepath.Join(g.outside, "a")); err != nil || string(data) != "secret" {
		t.Errorf("the file outside holds %q, %v", data, err)
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	t.Parallel()
	g := open(t)
	if err := syscall.Mkfifo(filepath.Join(g.Path(), "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"pipe", "sub", "/dev/null"} {
		target := g.target(t, path)
		if _, err := target.ReadAll(10); !errors.Is(err, workspace.ErrNotRegular) {
			t.Errorf("ReadAll(%s) = %v, want ErrNotRegular", path, err)
		}
		if _, err := target.Write(func(*os.File) ([]byte, error) { return nil, nil }); !errors.Is(err, workspace.ErrNotRegular) {
			t.Errorf("Write(%s) = %v, want ErrNotRegular", path, err)
		}
	}
}

func TestListingHidesWhatLeadsOut(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "")
	g.link(t, g.outside, "out")
	g.link(t, filepath.Join(g.Path(), "sub"), "in")
	g.link(t, "none", "dangling")
	if err := os.MkdirAll(filepath.Join(g.Path(), g.outside), 0o755); err != nil { // the target of the link, taken as a path in the workspace
		t.Fatal(err)
	}
	h := g.acquire(t, ".")
	infos, err := h.ReadDir(100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReadDir(2); !errors.Is(err, workspace.ErrTooLarge) {
		t.Errorf("ReadDir over its limit = %v, want ErrTooLarge", err)
	}
	var got []string
	for _, info := range infos {
		got = append(got, fmt.Sprintf("%s:%v", info.Name(), info.IsDir()))
	}
	first := strings.Split(g.outside, "/")[1]
	want := []string{"a:false", "in:true", "sub:true", first + ":true"}
	slices.Sort(want)
	if want := strings.Join(want, " "); strings.Join(got, " ") != want {
		t.Errorf("ReadDir = %v, want %v", got, want)
	}
}

// Scenario 149.
func TestWriteCreatesOrReplacesWhole(t *testing.T) {
	t.Parallel()
	g := open(t)
	content := func(s string) func(*os.File) ([]byte, error) {
		return func(before *os.File) ([]byte, error) {
			if before != nil {
				t.Error("a missing file is open")
			}
			return []byte(s), nil
		}
	}
	target := g.target(t, "new/dir/file")
	if existed, err := target.Write(content("one")); err != nil || existed {
		t.Errorf("Write of a missing file = %v, %v, want false", existed, err)
	}
	path := filepath.Join(g.Path(), "new/dir/file")
	if err := os.Chmod(path, 0o754); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	if existed, err := target.Write(func(before *os.File) (_ []byte, err error) {
		seen, err = io.ReadAll(before)
		return []byte("two"), err
	}); err != nil || !existed || string(seen) != "one" {
		t.Errorf("Write of a file = %v, %v, having seen %q, want true and one", existed, err, seen)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o754 || g.content(t, "new/dir/file") != "two" {
		t.Errorf("after Write the file is %v, %v, want mode 0754 and two", info, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("Write left %v, %v", entries, err)
	}
	outside := g.target(t, g.outside+"/x/y")
	if _, err := outside.Write(content("z")); err != nil {
		t.Errorf("Write outside = %v", err)
	}
	if data, err := outside.ReadAll(1); err != nil || string(data) != "z" {
		t.Errorf("ReadAll outside = %q, %v", data, err)
	}
	if _, err := outside.ReadAll(0); !errors.Is(err, workspace.ErrTooLarge) {
		t.Errorf("ReadAll over its limit = %v, want ErrTooLarge", err)
	}
}

// A file is left as it is if the new content cannot be made, or if the file changes while
// the content is made.
func TestWriteThatFailsBeforeItWritesChangesNothing(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "before")
	refused := errors.New("refused")
	for _, name := range []string{"a", "new/b"} {
		if _, err := g.target(t, name).Write(func(*os.File) ([]byte, error) { return []byte("after"), refused }); err != refused {
			t.Errorf("Write of %s = %v, want the error of the function", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(g.Path(), "new")); !errors.Is(err, fs.ErrNotExist) || g.content(t, "a") != "before" {
		t.Errorf("Write changed the file to %q or created a directory: %v", g.content(t, "a"), err)
	}
	_, err := g.target(t, "a").Write(func(*os.File) ([]byte, error) { g.put(t, "a", "by another process"); return []byte("after"), nil })
	if !errors.Is(err, workspace.ErrChanged) || g.content(t, "a") != "by another process" {
		t.Errorf("Write of a file that changes = %v, want ErrChanged; the file holds %q", err, g.content(t, "a"))
	}
}

func TestLeftoverOfACrashIsNotInTheWay(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, ".ledger-write-0", "half")
	if _, err := g.target(t, "a").Write(func(*os.File) ([]byte, error) { return []byte("whole"), nil }); err != nil {
		t.Fatal(err)
	}
	if g.content(t, "a") != "whole" || g.content(t, ".ledger-write-0") != "half" {
		t.Error("a file of a crash was used")
	}
}

// Scenario 152.
func TestOneOfManyConditionalWritesSucceeds(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "before")
	g.link(t, "a", "alias")
	var won atomic.Int32
	var writers sync.WaitGroup
	for i := range 20 {
		target := g.target(t, []string{"a", "alias"}[i%2])
		writers.Go(func() {
			err := target.Replace([]byte("before"), fmt.Appendf(nil, "after %d", i))
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, workspace.ErrChanged) {
				t.Errorf("Replace = %v, want ErrChanged", err)
			}
		})
	}
	writers.Wait()
	if won.Load() != 1 || !strings.HasPrefix(g.content(t, "a"), "after ") {
		t.Errorf("%d replacements succeeded, want 1; the file holds %q", won.Load(), g.content(t, "a"))
	}
}

// Scenario 152.
func TestWritesToOneTargetWaitAndToAnotherDoNot(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "")
	g.link(t, "a", "alias")
	inside, release, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var writers sync.WaitGroup
	writers.Go(func() {
		_, _ = g.target(t, "a").Write(func(*os.File) ([]byte, error) { close(inside); <-release; return []byte("first"), nil })
	})
	<-inside
	writers.Go(func() {
		_, _ = g.target(t, "alias").Write(func(before *os.File) ([]byte, error) {
			if content, err := io.ReadAll(before); err != nil || string(content) != "first" {
				t.Errorf("the second write saw %q, %v, want the content of the first", content, err)
			}
			close(second)
			return []byte("second"), nil
		})
	})
	if _, err := g.target(t, "b").Write(func(*os.File) ([]byte, error) { return []byte("b"), nil }); err != nil { // returns while a is held
		t.Error(err)
	}
	select {
	case <-second:
		t.Error("the second write to a target did not wait for the first")
	default:
	}
	close(release)
	writers.Wait()
	if g.content(t, "a") != "second" {
		t.Errorf("the file holds %q, want second", g.content(t, "a"))
	}
}

// Scenario 152.
func TestRemoveReportsWhetherThereWasAFile(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "")
	for _, want := range []bool{true, false} {
		if existed, err := g.target(t, "a").Remove(); existed != want || err != nil {
			t.Errorf("Remove = %v, %v, want %v", existed, err, want)
		}
	}
	if _, err := g.target(t, "sub").Remove(); !errors.Is(err, workspace.ErrNotRegular) {
		t.Errorf("Remove of a directory = %v, want ErrNotRegular", err)
	}
}

func TestReplaceOfAMissingFileIsAChange(t *testing.T) {
	t.Parallel()
	g := open(t)
	if err := g.target(t, "none").Replace(nil, []byte("x")); !errors.Is(err, workspace.ErrChanged) {
		t.Errorf("Replace = %v, want ErrChanged", err)
	}
	g.put(t, "a", "longer than before")
	if err := g.target(t, "a").Replace([]byte("longer"), nil); !errors.Is(err, workspace.ErrChanged) {
		t.Errorf("Replace of what begins the same = %v, want ErrChanged", err)
	}
}

func TestOpenNeedsADirectory(t *testing.T) {
	t.Parallel()
	if _, err := workspace.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of nothing = %v, want ErrNotExist", err)
	}
}

func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"a", "../x", "/etc/passwd", "sub/../../y", "out/../x", "\x00"} {
		f.Add(seed)
	}
	g := open(f)
	g.link(f, g.outside, "out")
	f.Fuzz(func(t *testing.T, path string) {
		target, err := g.Resolve(path)
		if err != nil {
			return
		}
		inside := target.Path == g.Path() || strings.HasPrefix(target.Path, g.Path()+"/")
		if inside != (target.External == "") {
			t.Errorf("Resolve(%q) = %+v: inside is %v", path, target, inside)
		}
		if !inside && !filepath.IsAbs(path) {
			t.Errorf("Resolve(%q) = %+v: a relative path leaves the workspace", path, target)
		}
	})
}
