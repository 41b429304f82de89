package frontmatter_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/frontmatter"
)

// writeFile writes a file and creates its directory.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// link makes a symbolic link and creates its directory.
func link(t testing.TB, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// openProject opens the directory d of a project and closes it at the end of the test.
func openProject(t testing.TB, project string) *frontmatter.Directory {
	t.Helper()
	d, err := frontmatter.OpenInside(project, "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestLinkOutOfProjectIsRefused(t *testing.T) {
	t.Parallel()
	outside, project := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(outside, "secret"), "secret")
	writeFile(t, filepath.Join(project, "other", "inside"), "inside")
	link(t, filepath.Join(outside, "secret"), filepath.Join(project, "d", "absolute"))
	link(t, "../../"+filepath.Base(outside)+"/secret", filepath.Join(project, "d", "relative"))
	link(t, outside, filepath.Join(project, "d", "folder"))
	link(t, "../other/inside", filepath.Join(project, "d", "inner"))
	d := openProject(t, project)
	for _, name := range []string{"absolute", "relative", "folder/secret"} {
		if data, err := d.Read(name, 100); data != nil || !errors.Is(err, frontmatter.ErrOutside) {
			t.Errorf("Read(%s) = %q, %v, want ErrOutside", name, data, err)
		}
	}
	if _, _, err := d.List("folder", 10); !errors.Is(err, frontmatter.ErrOutside) {
		t.Errorf("List of a linked folder = %v, want ErrOutside", err)
	}
	if data, err := d.Read("inner", 100); string(data) != "inside" || err != nil {
		t.Errorf("Read of a link in the project = %q, %v", data, err)
	}
	trusted := frontmatter.OpenTrusted(filepath.Join(project, "d"))
	if data, err := trusted.Read("absolute", 100); string(data) != "secret" || err != nil {
		t.Errorf("Read of a link in a trusted directory = %q, %v", data, err)
	}
}

func TestLinkedDirectoryOfProjectIsRefused(t *testing.T) {
	t.Parallel()
	outside, project := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(outside, "a.md"), "x")
	link(t, outside, filepath.Join(project, "d"))
	d := openProject(t, project)
	if _, _, err := d.List("", 10); !errors.Is(err, frontmatter.ErrOutside) {
		t.Errorf("List = %v, want ErrOutside", err)
	}
}

func TestOnlyRegularFilesOfBoundedLengthAreRead(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	writeFile(t, filepath.Join(project, "d", "long"), strings.Repeat("x", 11))
	writeFile(t, filepath.Join(project, "d", "full"), strings.Repeat("x", 10))
	if err := syscall.Mkfifo(filepath.Join(project, "d", "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	link(t, "nothing", filepath.Join(project, "d", "dangling"))
	link(t, "loop", filepath.Join(project, "d", "loop"))
	trusted := frontmatter.OpenTrusted(filepath.Join(project, "d"))
	for _, d := range []*frontmatter.Directory{openProject(t, project), trusted} {
		for name, want := range map[string]error{
			"pipe": frontmatter.ErrNotFile, ".": frontmatter.ErrNotFile, "long": frontmatter.ErrTooLong, "none": fs.ErrNotExist, "dangling": fs.ErrNotExist, "loop": syscall.ELOOP,
		} {
			if data, err := d.Read(name, 10); data != nil || !errors.Is(err, want) {
				t.Errorf("Read(%s) = %q, %v, want %v", name, data, err, want)
			}
		}
		if data, err := d.Read("full", 10); len(data) != 10 || err != nil {
			t.Errorf("Read(full) = %d bytes, %v", len(data), err)
		}
		if _, _, err := d.List("full", 10); !errors.Is(err, frontmatter.ErrNotFile) {
			t.Errorf("List(full) = %v, want ErrNotFile", err)
		}
	}
}

func TestListIsSortedAndBounded(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	for i := range 20 {
		writeFile(t, filepath.Join(project, "d", fmt.Sprintf("%02d", 19-i)), "")
	}
	d := openProject(t, project)
	for limit, wantMore := range map[int]bool{19: true, 20: false, 100: false} {
		entries, more, err := d.List("", limit)
		if err != nil || len(entries) != min(limit, 20) || more != wantMore {
			t.Errorf("List(%d) = %d entries, %t, %v", limit, len(entries), more, err)
		}
		for i := 1; i < len(entries); i++ {
			if entries[i-1].Name() >= entries[i].Name() {
				t.Errorf("List(%d) has %s before %s", limit, entries[i-1].Name(), entries[i].Name())
			}
		}
	}
}
