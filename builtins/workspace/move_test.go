package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

func TestMoveKeepsModeAndCreatesDirectories(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"content", "other content"} {
		g := open(t)
		g.put(t, "a", "content")
		if err := os.Chmod(g.at("a"), 0o4751); err != nil {
			t.Fatal(err)
		}
		mode := g.mode(t, "a")
		if err := g.acquire(t, "a").Move(g.acquire(t, "new/dir/b"), []byte("content"), []byte(after)); err != nil {
			t.Fatalf("Move = %v", err)
		}
		if got := g.content(t, "new/dir/b"); got != after || g.mode(t, "new/dir/b") != mode {
			t.Errorf("after Move the file holds %q with mode %v, want %q with mode %v", got, g.mode(t, "new/dir/b"), after, mode)
		}
		if _, err := os.Lstat(g.at("a")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after Move the old path is %v, want that it does not exist", err)
		}
		if entries, err := os.ReadDir(g.at("new/dir")); err != nil || len(entries) != 1 {
			t.Errorf("Move left %v, %v", entries, err)
		}
	}
}

// mode returns the mode of a file.
func (g ground) mode(t *testing.T, name string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(g.at(name))
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestMoveAcrossFileSystems(t *testing.T) {
	t.Parallel()
	other, err := os.MkdirTemp("/dev/shm", "ledger-test-")
	if err != nil {
		t.Skip("this machine has no second file system at /dev/shm")
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	g := open(t)
	g.put(t, "a", "content")
	if err := g.acquire(t, "a").Move(g.acquire(t, other+"/b"), []byte("content"), []byte("content")); err != nil {
		t.Fatalf("Move = %v", err)
	}
	data, err := os.ReadFile(other + "/b")
	if _, gone := os.Lstat(g.at("a")); err != nil || string(data) != "content" || !errors.Is(gone, fs.ErrNotExist) {
		t.Errorf("after Move the new path holds %q, %v, and the old one is %v", data, err, gone)
	}
}

func TestMoveAndRemoveExpectTheContent(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "content")
	h := g.acquire(t, "a")
	for _, before := range []string{"", "conten", "content ", "other"} {
		if err := h.Move(g.acquire(t, "b"), []byte(before), []byte("x")); !errors.Is(err, workspace.ErrChanged) {
			t.Errorf("Move of %q = %v, want ErrChanged", before, err)
		}
		if err := h.Remove([]byte(before)); !errors.Is(err, workspace.ErrChanged) {
			t.Errorf("Remove of %q = %v, want ErrChanged", before, err)
		}
	}
	if err := g.acquire(t, "none").Remove(nil); !errors.Is(err, workspace.ErrChanged) {
		t.Errorf("Remove of a missing file = %v, want ErrChanged", err)
	}
	if err := g.acquire(t, "sub").Remove(nil); !errors.Is(err, workspace.ErrNotRegular) {
		t.Errorf("Remove of a directory = %v, want ErrNotRegular", err)
	}
	if g.content(t, "a") != "content" {
		t.Errorf("the file holds %q", g.content(t, "a"))
	}
	if err := h.Remove([]byte("content")); err != nil {
		t.Errorf("Remove = %v", err)
	}
}

func TestMoveReplacesNoFile(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"content", "other"} {
		g := open(t)
		g.put(t, "a", "content")
		g.put(t, "b", "theirs")
		h, later := g.acquire(t, "a"), g.acquire(t, "c")
		if err := h.Move(g.acquire(t, "b"), []byte("content"), []byte(after)); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Move to an existing file = %v, want fs.ErrExist", err)
		}
		g.put(t, "c", "theirs")
		if err := h.Move(later, []byte("content"), []byte(after)); !errors.Is(err, workspace.ErrChanged) {
			t.Errorf("Move to a file that appeared = %v, want ErrChanged", err)
		}
		if g.content(t, "a") != "content" || g.content(t, "b") != "theirs" || g.content(t, "c") != "theirs" {
			t.Error("a refused Move had an effect")
		}
	}
}

func TestMoveOfAFileWithSeveralNames(t *testing.T) {
	t.Parallel()
	for after, other := range map[string]string{"content": "content", "new": "content"} {
		g := open(t)
		g.put(t, "a", "content")
		if err := os.Link(g.at("a"), g.at("other")); err != nil {
			t.Fatal(err)
		}
		if err := g.acquire(t, "a").Move(g.acquire(t, "b"), []byte("content"), []byte(after)); err != nil || g.content(t, "b") != after || g.content(t, "other") != other {
			t.Errorf("Move = %v, the file holds %q and its other name %q, want %q and %q", err, g.content(t, "b"), g.content(t, "other"), after, other)
		}
	}
}

func TestSwappedFilesAreNeitherMovedNorRemoved(t *testing.T) {
	t.Parallel()
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := openSwappable(t)
			g.put(t, "fresh", "approved")
			h, target, fresh := g.acquire(t, "sub/a"), g.acquire(t, "target"), g.acquire(t, "fresh")
			missing := g.acquire(t, "sub/new")
			if err := swap(g); err != nil {
				t.Fatal(err)
			}
			before := g.secrets(t)
			for _, content := range []string{"approved", "secret"} {
				if err := h.Remove([]byte(content)); !errors.Is(err, workspace.ErrChanged) {
					t.Errorf("Remove = %v, want ErrChanged", err)
				}
				if err := h.Move(target, []byte(content), []byte("written")); !errors.Is(err, workspace.ErrChanged) {
					t.Errorf("Move = %v, want ErrChanged", err)
				}
			}
			if !strings.HasPrefix(name, "file") { // the directory of the target was swapped
				if err := fresh.Move(missing, []byte("approved"), []byte("written")); !errors.Is(err, workspace.ErrChanged) {
					t.Errorf("Move into the directory = %v, want ErrChanged", err)
				}
			}
			if after := g.secrets(t); after != before {
				t.Errorf("%d secrets are left of %d", after, before)
			}
		})
	}
}

// Scenario 152.
func TestOneOfManyConditionalChangesSucceeds(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "before")
	var won atomic.Int32
	var actors sync.WaitGroup
	for i := range 18 {
		from, to := g.acquire(t, "a"), g.acquire(t, "b")
		actors.Go(func() {
			var err error
			switch i % 3 {
			case 0:
				err = from.Replace([]byte("before"), []byte("after"))
			case 1:
				err = from.Remove([]byte("before"))
			case 2:
				err = from.Move(to, []byte("before"), []byte("after"))
			}
			// A move that comes behind another one finds its target, or its source changed.
			lost := errors.Is(err, workspace.ErrChanged) || i%3 == 2 && errors.Is(err, fs.ErrExist)
			if err == nil {
				won.Add(1)
			} else if !lost {
				t.Errorf("change %d = %v, want ErrChanged", i, err)
			}
		})
	}
	actors.Wait()
	if won.Load() != 1 {
		t.Errorf("%d changes succeeded, want 1", won.Load())
	}
}

// Scenario 152.
func TestOppositeMovesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "content")
	var movers sync.WaitGroup
	for i := range 2 {
		names := []string{"a", "b"}
		from, to := names[i], names[1-i]
		movers.Go(func() {
			for range 50 {
				moveOnce(t, g, from, to)
			}
		})
	}
	movers.Wait()
	_, a := os.Lstat(g.at("a"))
	if _, b := os.Lstat(g.at("b")); (a == nil) == (b == nil) {
		t.Errorf("after all moves a is %v and b is %v, want one file", a, b)
	}
}

// moveOnce tries to move a file. It fails the test for any error but those of a race.
func moveOnce(t *testing.T, g ground, from, to string) {
	source, err := g.target(t, from).Acquire()
	if err != nil {
		if !errors.Is(err, workspace.ErrChanged) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Acquire = %v", err)
		}
		return
	}
	defer source.Close()
	target, err := g.target(t, to).Acquire()
	if err != nil {
		return
	}
	defer target.Close()
	if err := source.Move(target, []byte("content"), []byte("content")); err != nil && !errors.Is(err, workspace.ErrChanged) && !errors.Is(err, fs.ErrExist) {
		t.Errorf("Move = %v", err)
	}
}

func TestCheckWriteChangesNothing(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "content")
	if err := g.acquire(t, "a").CheckWrite(); err != nil || g.content(t, "a") != "content" {
		t.Errorf("CheckWrite = %v, and the file holds %q", err, g.content(t, "a"))
	}
	if err := g.acquire(t, "sub").CheckWrite(); !errors.Is(err, workspace.ErrNotRegular) {
		t.Errorf("CheckWrite of a directory = %v, want ErrNotRegular", err)
	}
	if err := g.acquire(t, "none").CheckWrite(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CheckWrite of a missing file = %v, want fs.ErrNotExist", err)
	}
	if os.Getuid() == 0 { // it may write any file
		return
	}
	if err := os.Chmod(g.at("a"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := g.acquire(t, "a").CheckWrite(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("CheckWrite of a read-only file = %v, want fs.ErrPermission", err)
	}
}

func TestResolveReportsALinkAsTheLastName(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "sub/a", "")
	g.link(t, "sub/a", "link")
	g.link(t, "link", "chain")
	g.link(t, g.Path()+"/sub", "dir")
	g.link(t, "none", "dangling")
	g.link(t, "dir/a", "through")
	for path, want := range map[string]bool{
		"sub/a": false, "link": true, "chain": true, "dir": true, "dir/a": false, "dangling": true, "through": true,
		"none": false, ".": false, "dir/../sub/a": false, g.Path() + "/link": true,
	} {
		if got := g.target(t, path).Linked; got != want {
			t.Errorf("Resolve(%q).Linked = %v, want %v", path, got, want)
		}
	}
}
