package workspace_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// swaps change the file or directory at a path, as another process can while a person
// decides. Each gets the workspace, which has sub/a, and the directory outside, which
// has the same names.
var swaps = map[string]func(g ground) error{
	"file by a link in the workspace": func(g ground) error {
		return errors.Join(os.Remove(g.at("sub/a")), os.Symlink("../secret", g.at("sub/a")))
	},
	"file by a link that leads out": func(g ground) error {
		return errors.Join(os.Remove(g.at("sub/a")), os.Symlink(g.outside+"/sub/a", g.at("sub/a")))
	},
	"file by a hard link": func(g ground) error {
		return errors.Join(os.Remove(g.at("sub/a")), os.Link(g.at("secret"), g.at("sub/a")))
	},
	"file by a renamed file": func(g ground) error { return os.Rename(g.at("secret"), g.at("sub/a")) },
	"file by a pipe": func(g ground) error {
		return errors.Join(os.Remove(g.at("sub/a")), syscall.Mkfifo(g.at("sub/a"), 0o644))
	},
	"file by a directory": func(g ground) error { return errors.Join(os.Remove(g.at("sub/a")), os.Mkdir(g.at("sub/a"), 0o755)) },
	"file by nothing":     func(g ground) error { return os.Remove(g.at("sub/a")) },
	"directory by a link": func(g ground) error {
		return errors.Join(os.Rename(g.at("sub"), g.at("was")), os.Symlink("other", g.at("sub")))
	},
	"directory by a link that leads out": func(g ground) error {
		return errors.Join(os.Rename(g.at("sub"), g.at("was")), os.Symlink(g.outside+"/sub", g.at("sub")))
	},
	"directory by another one": func(g ground) error {
		return errors.Join(os.Rename(g.at("sub"), g.at("was")), os.Rename(g.at("other"), g.at("sub")))
	},
	"directory by a link to itself": func(g ground) error {
		return errors.Join(os.Rename(g.at("sub"), g.at("was")), os.Symlink("was", g.at("sub")))
	},
	"workspace by a link": func(g ground) error {
		return errors.Join(os.Rename(g.Path(), g.Path()+".was"), os.Symlink(g.outside, g.Path()))
	},
	"workspace by another directory": func(g ground) error {
		return errors.Join(os.Rename(g.Path(), g.Path()+".was"), os.Rename(g.outside, g.Path()))
	},
}

func (g ground) at(name string) string { return filepath.Join(g.Path(), name) }

// openSwappable returns a workspace for the swaps.
func openSwappable(t *testing.T) ground {
	g := open(t)
	for name, content := range map[string]string{"sub/a": "approved", "secret": "secret", "other/a": "secret", "other/new": "secret"} {
		if err := os.MkdirAll(filepath.Dir(g.at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		g.put(t, name, content)
	}
	if err := errors.Join(os.Mkdir(g.outside+"/sub", 0o755), os.WriteFile(g.outside+"/sub/a", []byte("secret"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return g
}

// secrets returns the number of files below the parent of the workspace whose content
// begins with "secret". These files are not approved. It fails the test if one was
// overwritten.
func (g ground) secrets(t *testing.T) (n int) {
	t.Helper()
	err := filepath.WalkDir(filepath.Dir(g.Path()), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.HasPrefix(string(data), "secret") {
			n++
		} else if string(data) == "written" {
			t.Errorf("%s was written", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhatIsSwappedAfterAcquiringIsNeverTouched(t *testing.T) {
	t.Parallel()
	for name, swap := range swaps {
		for _, external := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, external %v", name, external), func(t *testing.T) {
				t.Parallel()
				g := openSwappable(t)
				path, reach := "sub/a", g.Root
				if external {
					other, err := workspace.Open(t.TempDir())
					if err != nil {
						t.Fatal(err)
					}
					defer other.Close()
					path, reach = g.at("sub/a"), other
				}
				target, err := reach.Resolve(path)
				if err != nil {
					t.Fatal(err)
				}
				h, err := target.Acquire()
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				if err := swap(g); err != nil {
					t.Fatal(err)
				}
				before := g.secrets(t)
				if err := h.Verify(); !errors.Is(err, workspace.ErrChanged) {
					t.Errorf("Verify = %v, want ErrChanged", err)
				}
				if data, err := h.ReadAll(100); err != nil || string(data) != "approved" {
					t.Errorf("ReadAll = %q, %v, want the content of the file that was acquired", data, err)
				}
				if _, err := h.Write(func(*os.File) ([]byte, error) { return []byte("written"), nil }); !errors.Is(err, workspace.ErrChanged) {
					t.Errorf("Write = %v, want ErrChanged", err)
				}
				if err := h.Replace([]byte("approved"), []byte("written")); !errors.Is(err, workspace.ErrChanged) {
					t.Errorf("Replace = %v, want ErrChanged", err)
				}
				if after := g.secrets(t); after != before {
					t.Errorf("%d secrets are left of %d", after, before)
				}
			})
		}
	}
}

func TestNewFileIsCreatedOnlyWhereItWasToBe(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]func(g ground) error{
		"appeared":                    func(g ground) error { return os.WriteFile(g.at("sub/new"), []byte("theirs"), 0o644) },
		"appeared as a dangling link": func(g ground) error { return os.Symlink("../created", g.at("sub/new")) },
		"parent by a link":            swaps["directory by a link"],
		"parent by a link out":        swaps["directory by a link that leads out"],
		"parent by a directory":       swaps["directory by another one"],
		"workspace by a directory":    swaps["workspace by another directory"],
	} {
		g := openSwappable(t)
		h := g.acquire(t, "sub/new")
		if err := swap(g); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Write(func(*os.File) ([]byte, error) { return []byte("written"), nil }); !errors.Is(err, workspace.ErrChanged) {
			t.Errorf("%s: Write = %v, want ErrChanged", name, err)
		}
		g.secrets(t)
	}
	g := openSwappable(t)
	link := g.acquire(t, "deep/new/file")
	if err := os.Symlink("other", g.at("deep")); err != nil {
		t.Fatal(err)
	}
	if _, err := link.Write(func(*os.File) ([]byte, error) { return []byte("written"), nil }); !errors.Is(err, workspace.ErrChanged) {
		t.Errorf("Write below a directory that became a link = %v, want ErrChanged", err)
	}
	g.secrets(t)
}

func TestDirectoryThatAppearsDoesNotStopANewFile(t *testing.T) {
	t.Parallel()
	g := open(t)
	var handles []*workspace.Handle
	for _, name := range []string{"new/dir/a", "new/dir/b", "new/c"} {
		handles = append(handles, g.acquire(t, name))
	}
	for _, h := range handles {
		if _, err := h.Write(func(*os.File) ([]byte, error) { return []byte("x"), nil }); err != nil {
			t.Errorf("Write(%s) = %v", h.Resolved().Resource, err)
		}
	}
}

func TestFileWrittenAfterAcquiringIsNotOverwritten(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "one")
	h := g.acquire(t, "a")
	g.put(t, "a", "one and more")
	if _, err := h.Write(func(*os.File) ([]byte, error) { return []byte("two"), nil }); !errors.Is(err, workspace.ErrChanged) || g.content(t, "a") != "one and more" {
		t.Errorf("Write = %v, and the file holds %q", err, g.content(t, "a"))
	}
}

// The tree is searched while the link at dir flips between a directory that may
// be read and one that may not.
func TestTreeGoesThroughNoLink(t *testing.T) {
	t.Parallel()
	g := openSwappable(t)
	tree, err := g.acquire(t, ".").Tree()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for path, swap := range swaps {
		if strings.HasPrefix(path, "workspace") || strings.Contains(path, "renamed") || strings.Contains(path, "another one") || strings.Contains(path, "hard") {
			continue // a search reads the files that are at the paths now
		}
		g := openSwappable(t)
		tree, err := g.acquire(t, ".").Tree()
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		if err := swap(g); err != nil {
			t.Fatal(err)
		}
		if f, err := tree.Open("sub/a"); err == nil {
			f.Close()
			t.Errorf("%s: Open went through", path)
		}
	}
	for _, name := range []string{"../outside/sub/a", "/etc/hosts", "", "sub/../secret"} {
		if f, err := tree.Open(name); err == nil {
			f.Close()
			t.Errorf("Open(%q) left the tree", name)
		}
	}
	var flipping sync.WaitGroup
	stop := make(chan struct{})
	flipping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(g.at("sub"), g.at("was"))
				_ = os.Symlink("other", g.at("sub"))
				_ = os.Remove(g.at("sub"))
				_ = os.Rename(g.at("was"), g.at("sub"))
			}
		}
	})
	for range 2000 {
		f, err := tree.Open("sub/a")
		if err != nil {
			continue
		}
		data := make([]byte, 8)
		if n, _ := f.Read(data); string(data[:n]) != "approved" {
			t.Errorf("Open went through a link: %q", data[:n])
		}
		f.Close()
	}
	close(stop)
	flipping.Wait()
}

// A metadata holds the attributes that a change of the content must keep.
type metadata struct {
	mode     uint32
	uid, gid uint32
}

func metadataOf(t *testing.T, path string) (metadata, unix.Stat_t) {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return metadata{uint32(stat.Mode), stat.Uid, stat.Gid}, stat
}

func TestWritingKeepsOwnerModeAttributesAndLinks(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(path string) error{
		"setgid":     func(path string) error { return unix.Chmod(path, 0o2755) },
		"setuid":     func(path string) error { return unix.Chmod(path, 0o4711) },
		"sticky":     func(path string) error { return unix.Chmod(path, 0o1644) },
		"group only": func(path string) error { return unix.Chmod(path, 0o660) },
		"hard link":  func(path string) error { return errors.Join(unix.Chmod(path, 0o640), os.Link(path, path+".link")) },
		"setgid hard link": func(path string) error {
			return errors.Join(unix.Chmod(path, 0o2750), os.Link(path, path+".link"))
		},
		"owner": func(path string) error {
			if os.Geteuid() != 0 {
				return nil // only root can give a file away
			}
			return errors.Join(os.Chown(path, 12345, 23456), unix.Chmod(path, 0o6754))
		},
		"attribute": func(path string) error {
			if err := unix.Setxattr(path, "user.ledger", []byte("kept"), 0); !errors.Is(err, unix.ENOTSUP) {
				return err
			}
			return nil
		},
	} {
		for _, size := range []int{0, 3, 100_000} {
			g := open(t)
			g.put(t, "a", "before")
			path := g.at("a")
			if err := prepare(path); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			before, was := metadataOf(t, path)
			attribute := make([]byte, 10)
			n, _ := unix.Getxattr(path, "user.ledger", attribute)
			content := strings.Repeat("x", size)
			if err := g.acquire(t, "a").Replace([]byte("before"), []byte(content)); err != nil {
				t.Fatalf("%s: Replace = %v", name, err)
			}
			if _, err := g.acquire(t, "a").Write(func(*os.File) ([]byte, error) { return []byte(content), nil }); err != nil {
				t.Fatalf("%s: Write = %v", name, err)
			}
			after, is := metadataOf(t, path)
			if after != before {
				t.Errorf("%s: the file is %+v, want %+v", name, after, before)
			}
			if was.Nlink > 1 && (is.Ino != was.Ino || is.Nlink != was.Nlink || g.content(t, "a.link") != content) {
				t.Errorf("%s: the hard link is broken", name)
			}
			if is.Nlink == 1 && is.Ino == was.Ino {
				t.Errorf("%s: a file with one name was not replaced as a whole", name)
			}
			kept := make([]byte, 10)
			if m, _ := unix.Getxattr(path, "user.ledger", kept); m != n || string(kept) != string(attribute) {
				t.Errorf("%s: the attribute is %q, want %q", name, kept, attribute)
			}
			if g.content(t, "a") != content {
				t.Errorf("%s: the file holds %d bytes, want %d", name, len(g.content(t, "a")), size)
			}
			if entries, err := os.ReadDir(g.Path()); err != nil || len(entries) > 3 {
				t.Errorf("%s: %v are left", name, entries)
			}
		}
	}
}

// Where the directory admits no new file, the file itself is written.
func TestFileIsWrittenInPlaceWhereNoneCanTakeItsPlace(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write every directory")
	}
	g := open(t)
	g.put(t, "sub/a", "before")
	if err := os.Chmod(g.at("sub"), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(g.at("sub"), 0o755) })
	if err := g.target(t, "sub/a").Replace([]byte("before"), []byte("after")); err != nil || g.content(t, "sub/a") != "after" {
		t.Errorf("Replace = %v, and the file holds %q", err, g.content(t, "sub/a"))
	}
}

func TestExistingIsTheDeepestDirectoryOfAMissingPath(t *testing.T) {
	t.Parallel()
	g := open(t)
	if err := os.Mkdir(filepath.Join(g.Path(), "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	g.put(t, "dir/a", "x")
	for path, want := range map[string]string{
		"dir/a": "dir/a []", "dir": "dir []", "b": ". [b]", "dir/b": "dir [b]", "dir/b/c": "dir [b c]", "x/y/z": ". [x y z]",
		g.outside + "/x/y": g.outside + " [x y]",
	} {
		dir, missing := g.acquire(t, path).Existing()
		if got := fmt.Sprint(dir.Resource, " ", missing); got != want {
			t.Errorf("Existing of %s = %s, want %s", path, got, want)
		}
		h, err := dir.Acquire()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Stat(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		h.Close()
	}
}

// A reader gets one of the files that are at the path while it opens the path.
func TestFileThatIsReplacedAgainAndAgainIsOpened(t *testing.T) {
	t.Parallel()
	g := open(t)
	g.put(t, "a", "x")
	path, other := filepath.Join(g.Path(), "a"), filepath.Join(g.Path(), "b")
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := errors.Join(os.WriteFile(other, []byte("x"), 0o644), os.Rename(other, path)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	defer close(done)
	for range 2000 {
		h, err := g.target(t, "a").Acquire()
		if err != nil {
			t.Fatal(err)
		}
		if data, err := h.ReadAll(1); err != nil || string(data) != "x" {
			t.Errorf("ReadAll = %q, %v", data, err)
		}
		h.Close()
	}
}
