package builtins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/patch"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// patchInput returns the input of apply_patch with the given lines between the markers.
func patchInput(lines ...string) input {
	return input{"patchText": "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch"}
}

// tree returns the content of every regular file of the workspace, by its path.
func (b *bench) tree(t testing.TB) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, _ := filepath.Rel(b.dir, path)
		files[name] = b.content(t, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Scenario 151.
func TestPatchAppliesEverySection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "m", "a\r\nb\r\n")
	b.put(t, "d", "gone\n")
	b.put(t, "sub/r", "one\ntwo\n")
	b.put(t, "pure", "kept")
	if err := os.Chmod(filepath.Join(b.dir, "sub/r"), 0o751); err != nil {
		t.Fatal(err)
	}
	in := patchInput("*** Add File: new/dir/a", "+x", "+$1", "*** Update File: m", "@@", "-b", "+$&", "*** Delete File: d",
		"*** Update File: sub/r", "*** Move to: other/r2", " one", "-two", "+2", "*** Update File: pure", "*** Move to: moved")
	output, err := b.run(t, "apply_patch", in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"new/dir/a": "x\n$1\n", "m": "a\r\n$&\r\n", "other/r2": "one\n2\n", "moved": "kept"}, b.tree(t)); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(filepath.Join(b.dir, "other/r2")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("the moved file is %v, %v, want mode 0751", info, err)
	}
	if got, want := output.Content().Text(), "Applied patch:\nA new/dir/a\nM m\nD d\nR sub/r -> other/r2\nR pure -> moved"; got != want {
		t.Errorf("the model reads %q, want %q", got, want)
	}
	at := func(name string) string { return filepath.Join(b.dir, name) }
	version := func(text string) string { return contentVersion([]byte(text)) }
	if diff := cmp.Diff([]domain.FileAccess{
		{Path: at("new/dir/a"), Access: domain.FileCreated, Version: version("x\n$1\n")}, {Path: at("m"), Access: domain.FileChanged, Version: version("a\r\n$&\r\n")},
		{Path: at("d"), Access: domain.FileDeleted}, {Path: at("sub/r"), Access: domain.FileDeleted},
		{Path: at("other/r2"), Access: domain.FileCreated, Version: version("one\n2\n")},
		{Path: at("pure"), Access: domain.FileDeleted}, {Path: at("moved"), Access: domain.FileCreated, Version: version("kept")},
	}, output.Files()); diff != "" {
		t.Error(diff)
	}
	if got, want := fmt.Sprint(b.order(), b.asked[0].Save), "[edit new/dir/a,m,d,sub/r,other/r2,pure,moved] [*]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if _, err := b.run(t, "apply_patch", in); err == nil || !strings.Contains(err.Error(), "apply_patch verification failed: new/dir/a: it exists already") {
		t.Errorf("the same patch again = %v", err)
	}
}

func TestPatchDescribesItsFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "m", "a\n")
	b.put(t, "r", "a\n")
	out, _ := must[patchResult](t, b, "apply_patch", patchInput("*** Update File: m", "-a", "+b", "*** Update File: r", "*** Move to: r2", "*** Add File: n", "+c"))
	want := patchResult{
		Applied: []appliedChange{{"M", "m", "", filepath.Join(b.dir, "m")}, {"R", "r", "r2", filepath.Join(b.dir, "r2")}, {"A", "n", "", filepath.Join(b.dir, "n")}},
		Files: []fileChange{
			{File: "m", Patch: "--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n+b\n", Status: "modified", Additions: 1, Deletions: 1},
			{File: "r2", From: "r", Status: "moved"},
			{File: "n", Patch: "--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+c\n", Status: "added", Additions: 1},
		},
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
}

// Scenario 151.
func TestPatchThatDoesNotFitChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one\n")
	b.put(t, "b", "two\n")
	b.put(t, "binary", "\xff\n")
	b.put(t, "sub/c", "three\n")
	if err := errors.Join(os.Symlink("a", filepath.Join(b.dir, "link")), os.Symlink("none", filepath.Join(b.dir, "dangling")), os.Symlink(b.outside, filepath.Join(b.dir, "out")),
		syscall.Mkfifo(filepath.Join(b.dir, "pipe"), 0o644), os.Link(filepath.Join(b.dir, "b"), filepath.Join(b.dir, "b2"))); err != nil {
		t.Fatal(err)
	}
	before := b.tree(t)
	good := []string{"*** Update File: a", "-one", "+1", "*** Add File: good", "+x"}
	const verification = "apply_patch verification failed: "
	for _, c := range []struct{ want, lines string }{
		{verification + "b: line 8 of the patch: the file does not have the old lines", "*** Update File: b\n-three\n+3"},
		{verification + "none: no such file or directory", "*** Update File: none\n-a\n+b"},
		{verification + "none: no such file or directory", "*** Delete File: none"},
		{verification + "none: no such file or directory", "*** Update File: none\n*** Move to: x"},
		{verification + "b: it exists already", "*** Add File: b\n+x"},
		{verification + "sub: it exists already", "*** Add File: sub"},
		{verification + "b: move to sub/c: it exists already", "*** Update File: b\n*** Move to: sub/c"},
		{verification + "b: move to sub: it exists already", "*** Update File: b\n*** Move to: sub"},
		{verification + "sub: open sub: not a regular file", "*** Delete File: sub"},
		{verification + "pipe: open pipe: not a regular file", "*** Delete File: pipe"},
		{verification + "pipe: open pipe: not a regular file", "*** Update File: pipe\n+x"},
		{verification + "binary: it is not UTF-8 text", "*** Update File: binary\n+x"},
		{verification + "binary: it is not UTF-8 text", "*** Delete File: binary"},
		{verification + "dangling: it is a symbolic link to none", "*** Add File: dangling\n+x"},
		{verification + "dangling: it is a symbolic link to none", "*** Delete File: dangling"},
		{verification + "b: move to dangling: it is a symbolic link to none", "*** Update File: b\n*** Move to: dangling"},
		{verification + "out/x: resolve out/x: location_escape", "*** Add File: out/x\n+x"},
		{verification + "../x: resolve ../x: relative_escape", "*** Update File: b\n*** Move to: ../x"},
		{verification + "b/x: resolve b/x: non_directory_ancestor", "*** Add File: b/x"},
		{verification + "a: it occurs twice in the patch", "*** Delete File: ./sub/../a"},
		{verification + "a: it occurs twice in the patch", "*** Delete File: link"},
		{verification + "b: it occurs twice in the patch", "*** Update File: b\n*** Move to: b"},
		{verification + "new/x: new is above it in the patch", "*** Add File: new/x\n*** Add File: new"},
		{verification + "b2: it is the same file as b (hard links)", "*** Update File: b\n-two\n+2\n*** Delete File: b2"},
		{verification + "line 7 of the patch: the update of b has no line", "*** Update File: b"},
	} {
		b.fails(t, "apply_patch", patchInput(append(good, c.lines)...), c.want)
		if diff := cmp.Diff(before, b.tree(t)); diff != "" {
			t.Fatalf("%s: %s", c.lines, diff)
		}
	}
	b.fails(t, "apply_patch", patchInput("*** Update File: link", "-one", "+1"), verification+"link: it is a symbolic link to a: give the path of the file itself")
	b.fails(t, "apply_patch", input{"patchText": " \n"}, "patchText is required")
	b.fails(t, "apply_patch", input{"patchText": "*** Begin Patch\n*** End Patch"}, "patch rejected: empty patch")
	b.fails(t, "apply_patch", input{"patchText": "diff"}, verification+"line 1 of the patch: the first line of a patch must be *** Begin Patch")
	_, err := b.run(t, "apply_patch", input{})
	if fault, ok := errors.AsType[*domain.ValidationError](err); !ok || fault.OwnText() != "patchText is required" {
		t.Errorf("without patchText = %v", err)
	}
}

func TestPatchAsksOnceForEachDirectoryOutside(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, b.outside+"/one/a", "a\n")
	b.put(t, b.outside+"/one/b", "b\n")
	b.put(t, b.outside+"/two/c", "c\n")
	in := patchInput("*** Delete File: "+b.outside+"/one/a", "*** Update File: "+b.outside+"/one/b", "-b", "+B",
		"*** Update File: "+b.outside+"/two/c", "*** Move to: c", "*** Add File: "+b.outside+"/two/new/d")
	must[patchResult](t, b, "apply_patch", in)
	o := b.outside
	want := []string{"external_directory " + o + "/one/*", "external_directory " + o + "/two/*", "edit " + strings.Join([]string{o + "/one/a", o + "/one/b", o + "/two/c", "c", o + "/two/new/d"}, ",")}
	if diff := cmp.Diff(want, b.order()); diff != "" {
		t.Error(diff)
	}
	if b.content(t, "c") != "c\n" {
		t.Error("the file was not moved into the workspace")
	}
	refused := newBench(t)
	refused.decide = refuse("external_directory")
	if _, err := refused.run(t, "apply_patch", in); !errors.Is(err, domain.ErrDenied) || len(refused.asked) != 1 {
		t.Errorf("apply_patch = %v, having asked %v", err, refused.order())
	}
}

func TestDeniedPatchTellsNothingAndReadsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one\n")
	b.rules = domain.Rules{{Action: "edit", Resource: "*", Effect: domain.Deny}}
	b.decide = refuse("edit")
	for _, in := range []input{
		patchInput("*** Update File: a", "-one", "+two"), patchInput("*** Update File: a", "-none", "+two"),
		patchInput("*** Delete File: missing"), patchInput("*** Add File: a"),
	} {
		if _, err := b.run(t, "apply_patch", in); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("apply_patch(%v) = %v, want a denial", in, err)
		}
	}
	if len(b.shown) != 0 || b.content(t, "a") != "one\n" {
		t.Errorf("a denied patch shows %v", b.shown)
	}
}

func TestPatchShowsEveryDiff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "m", "a\n")
	b.put(t, "d", "b\n")
	b.put(t, "r", "c\n")
	if err := os.Link(filepath.Join(b.dir, "m"), b.outside+"/m"); err != nil {
		t.Fatal(err)
	}
	b.decide = refuse("edit")
	run := func(in input) domain.Preview {
		b.shown = nil
		if _, err := b.run(t, "apply_patch", in); !errors.Is(err, domain.ErrDenied) || len(b.shown) != 1 {
			t.Fatalf("apply_patch = %v, shows %v", err, b.shown)
		}
		return b.shown[0]
	}
	got := run(patchInput("*** Update File: m", "-a", "+A", "*** Delete File: d", "*** Update File: r", "*** Move to: r2", "*** Add File: n", "+new"))
	want := "The file has 2 names (hard links), and all of them change.\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n+A\n" +
		"deleted file d\n--- a/d\n+++ b/d\n@@ -1 +0,0 @@\n-b\n" +
		"rename from r\nrename to r2\n" +
		"new file n\n--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+new\n"
	if got.Kind != domain.PreviewDiff || got.Text != want {
		t.Errorf("the question shows %s %q, want %q", got.Kind, got.Text, want)
	}
	in := patchInput("*** Update File: m", "-x", "+A")
	got = run(in)
	if got.Kind != domain.PreviewContent || !strings.HasPrefix(got.Text, "The patch changes nothing: m: line 3 of the patch") || !strings.HasSuffix(got.Text, in["patchText"].(string)) {
		t.Errorf("the question shows %s %q", got.Kind, got.Text)
	}
}

// A patch that does not fit when a person is asked is not applied, even if it fits later.
func TestPatchAppliesOnlyTheDiffThatWasShown(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"one\ntwo\n", "two\n"} {
		b := newBench(t)
		b.put(t, "a", before)
		b.decide = func(permission.Ask) error { b.put(t, "a", "one\n"); return nil }
		_, err := b.run(t, "apply_patch", patchInput("*** Update File: a", "-one", "+1"))
		if _, ok := errors.AsType[*domain.Failure](err); !ok || !strings.HasPrefix(err.Error(), "apply_patch verification failed: a: ") || b.content(t, "a") != "one\n" {
			t.Errorf("apply_patch = %v, and the file holds %q", err, b.content(t, "a"))
		}
	}
}

// exchanges replace the file a, or put a file at the path new, as another process can.
var exchanges = map[string]func(at func(string) string) error{
	"a link": func(at func(string) string) error {
		return errors.Join(os.Rename(at("a"), at("was")), os.Symlink("secret", at("a")))
	},
	"another file": func(at func(string) string) error { return os.Rename(at("secret"), at("a")) },
	"a file of the same content": func(at func(string) string) error {
		return errors.Join(os.WriteFile(at("copy"), []byte("one\n"), 0o644), os.Rename(at("copy"), at("a")))
	},
	"other content": func(at func(string) string) error { return os.WriteFile(at("a"), []byte("two\n"), 0o644) },
	"longer content": func(at func(string) string) error {
		return os.WriteFile(at("a"), []byte("one\none\n"), 0o644)
	},
	"no file": func(at func(string) string) error { return os.Remove(at("a")) },
	"a directory": func(at func(string) string) error {
		return errors.Join(os.Remove(at("a")), os.Mkdir(at("a"), 0o755))
	},
	"new file": func(at func(string) string) error { return os.WriteFile(at("new"), []byte("theirs"), 0o644) },
	"new link": func(at func(string) string) error { return os.Symlink("secret", at("new")) },
}

// exchanged has a patch for each kind of change that concerns the files a and new.
var exchanged = map[string]input{
	"update":            patchInput("*** Add File: other", "+x", "*** Update File: a", "-one", "+1", "*** Add File: new", "+x"),
	"delete":            patchInput("*** Add File: other", "+x", "*** Delete File: a", "*** Add File: new", "+x"),
	"move":              patchInput("*** Add File: other", "+x", "*** Update File: a", "*** Move to: new"),
	"move and update":   patchInput("*** Add File: other", "+x", "*** Update File: a", "*** Move to: new", "-one", "+1"),
	"in other order":    patchInput("*** Add File: new", "+x", "*** Add File: other", "+x", "*** Delete File: a"),
	"below a directory": patchInput("*** Add File: deep/other", "+x", "*** Update File: a", "*** Move to: new", "-one", "+1"),
}

func TestFileThatIsExchangedDuringTheAnswerEndsThePatch(t *testing.T) {
	t.Parallel()
	for what, exchange := range exchanges {
		for kind, in := range exchanged {
			b := newBench(t)
			b.put(t, "a", "one\n")
			b.put(t, "secret", "secret\n")
			var before map[string]string
			b.decide = func(permission.Ask) error {
				err := exchange(func(name string) string { return filepath.Join(b.dir, name) })
				before = b.tree(t)
				return err
			}
			_, err := b.run(t, "apply_patch", in)
			if _, ok := errors.AsType[*domain.Failure](err); !ok || !strings.HasPrefix(err.Error(), "apply_patch verification failed: ") {
				t.Errorf("%s, %s: apply_patch = %v, want a failed verification", kind, what, err)
			}
			if diff := cmp.Diff(before, b.tree(t)); diff != "" {
				t.Errorf("%s, %s: %s", kind, what, diff)
			}
		}
	}
}

// preparedPlan returns the plan of a patch whose changes are prepared and allowed by a
// rule.
func (b *bench) preparedPlan(t *testing.T, in input) *patchPlan {
	t.Helper()
	changes, err := patch.Parse(in["patchText"].(string))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := b.config.openPlan(changes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plan.release)
	if err := plan.prepare(t.Context(), (*acquiredPath).latestHandle); err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestFileThatIsExchangedBeforeTheCommitIsNotChanged(t *testing.T) {
	t.Parallel()
	for what, exchange := range exchanges {
		for kind, in := range exchanged {
			b := newBench(t)
			b.put(t, "a", "one\n")
			b.put(t, "secret", "secret\n")
			plan := b.preparedPlan(t, in)
			if err := plan.verify(); err != nil {
				t.Fatalf("%s: verify = %v", kind, err)
			}
			if err := exchange(func(name string) string { return filepath.Join(b.dir, name) }); err != nil {
				t.Fatal(err)
			}
			if err := plan.verify(); !errors.Is(err, errFileChanged) {
				t.Errorf("%s, %s: verify = %v, want errFileChanged", kind, what, err)
			}
			before := b.tree(t)
			for _, step := range plan.steps {
				if name := step.path; name == "a" && !strings.HasPrefix(what, "new") || name == "new" && strings.HasPrefix(what, "new") {
					if err := step.commit(); !isChangedFile(err) {
						t.Errorf("%s, %s: commit of %s = %v, want ErrChanged", kind, what, name, err)
					}
				}
			}
			if diff := cmp.Diff(before, b.tree(t)); diff != "" {
				t.Errorf("%s, %s: %s", kind, what, diff)
			}
		}
	}
}

// patchToolOf returns apply_patch with a function that runs before each commit.
func (b *bench) patchToolOf(t *testing.T, before func(step *patchStep) error) (patchTool, domain.Tool) {
	t.Helper()
	c, err := b.config.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	p := newPatchTool(c)
	p.commit = func(step *patchStep) error {
		if err := before(step); err != nil {
			return err
		}
		return step.commit()
	}
	tool, err := p.tool()
	if err != nil {
		t.Fatal(err)
	}
	return p, tool
}

func TestFailureAfterSomeCommitsIsToldExactly(t *testing.T) {
	t.Parallel()
	in := patchInput("*** Add File: n", "+x", "*** Update File: m", "-a", "+b", "*** Delete File: d", "*** Update File: r", "*** Move to: r2")
	change := func(name string) func(b *bench, t *testing.T) error {
		return func(b *bench, t *testing.T) error { b.put(t, name, "theirs"); return nil }
	}
	full := func(*bench, *testing.T) error { return &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC} }
	const changed = "file changed after permission approval. Read it again before patching."
	for _, c := range []struct {
		at   string
		do   func(b *bench, t *testing.T) error
		want string
		tree map[string]string
	}{
		{"n", change("n"), "apply_patch verification failed: n: file changed after permission approval. Read it again before patching", map[string]string{"n": "theirs", "m": "a\n", "d": "d\n", "r": "r\n"}},
		{"n", full, "Unable to apply patch at n: no space left on device. No other file was changed.", map[string]string{"m": "a\n", "d": "d\n", "r": "r\n"}},
		{"m", full, "Patch partially applied before failing at m: no space left on device. Applied: A n. Not applied: M m, D d, R r -> r2.", map[string]string{"n": "x\n", "m": "a\n", "d": "d\n", "r": "r\n"}},
		{"d", change("d"), "Patch partially applied before failing at d: " + changed + " Applied: A n, M m. Not applied: D d, R r -> r2.", map[string]string{"n": "x\n", "m": "b\n", "d": "theirs", "r": "r\n"}},
		{"r", change("r2"), "Patch partially applied before failing at r: " + changed + " Applied: A n, M m, D d. Not applied: R r -> r2.", map[string]string{"n": "x\n", "m": "b\n", "r": "r\n", "r2": "theirs"}},
	} {
		b := newBench(t)
		b.put(t, "m", "a\n")
		b.put(t, "d", "d\n")
		b.put(t, "r", "r\n")
		p, tool := b.patchToolOf(t, func(step *patchStep) error {
			if step.path == c.at {
				return c.do(b, t)
			}
			return nil
		})
		_, err := call(t.Context(), t, tool, in, domain.Invocation{})
		if _, ok := errors.AsType[*domain.Failure](err); !ok || err.Error() != c.want {
			t.Errorf("at %s: apply_patch = %v, want %q", c.at, err, c.want)
		}
		if diff := cmp.Diff(c.tree, b.tree(t)); diff != "" {
			t.Errorf("at %s: %s", c.at, diff)
		}
		if len(p.commits) != 0 {
			t.Error("the next call would wait")
		}
	}
}

func TestInterruptionBeforeTheCommitChangesNothing(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	in := patchInput("*** Update File: a", "-one", "+1", "*** Add File: new", "+x")
	for _, during := range []string{"start", "answer", "load", "wait"} {
		b := newBench(t)
		b.put(t, "a", "one\n")
		ctx, cancel := context.WithCancelCause(t.Context())
		b.config.FileVersions = func(context.Context, domain.SessionID) (map[string]string, error) {
			if during == "load" {
				cancel(stop)
			}
			return nil, nil
		}
		b.decide = func(permission.Ask) error {
			if during == "answer" {
				cancel(stop)
			}
			return nil
		}
		if during != "start" {
			b.rules = domain.Rules{{Action: "*", Resource: "*", Effect: domain.Allow}}
		}
		p, tool := b.patchToolOf(t, func(*patchStep) error { t.Error("a change was committed"); return nil })
		switch during {
		case "start":
			cancel(stop)
		case "wait":
			p.commits <- struct{}{} // another call commits and does not end
			go cancel(stop)
		}
		if _, err := call(ctx, t, tool, in, domain.Invocation{}); !errors.Is(err, stop) {
			t.Errorf("during %s: apply_patch = %v, want the cause of the interruption", during, err)
		}
		if diff := cmp.Diff(map[string]string{"a": "one\n"}, b.tree(t)); diff != "" {
			t.Errorf("during %s: %s", during, diff)
		}
		cancel(nil)
	}
}

func TestInterruptionDuringTheCommitFinishesThePatch(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"a", "new", "b"} {
		b := newBench(t)
		b.put(t, "a", "one\n")
		b.put(t, "b", "two\n")
		ctx, cancel := context.WithCancel(t.Context())
		_, tool := b.patchToolOf(t, func(step *patchStep) error {
			if step.path == at {
				cancel()
			}
			return nil
		})
		in := patchInput("*** Update File: a", "-one", "+1", "*** Add File: new", "+x", "*** Update File: b", "*** Move to: c")
		if _, err := call(ctx, t, tool, in, domain.Invocation{}); err != nil {
			t.Errorf("interrupted at %s: apply_patch = %v", at, err)
		}
		if diff := cmp.Diff(map[string]string{"a": "1\n", "new": "x\n", "c": "two\n"}, b.tree(t)); diff != "" {
			t.Errorf("interrupted at %s: %s", at, diff)
		}
		cancel()
	}
}

// A contextAtCommit is a context whose Done runs a function when a call, after it loaded
// the file versions, waits for its turn to commit.
type contextAtCommit struct {
	context.Context
	loaded *bool
	act    func()
}

// Done runs the function once.
func (c contextAtCommit) Done() <-chan struct{} {
	if *c.loaded {
		*c.loaded = false
		c.act()
	}
	return c.Context.Done()
}

// All files are compared before the first commit, so a change of the last file leaves the
// first one as it is.
func TestChangeOfTheLastFileBeforeTheCommitChangesNothing(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for _, interrupted := range []bool{false, true} {
		loaded := false
		b := newBench(t)
		b.put(t, "a", "one\n")
		b.put(t, "b", "two\n")
		b.config.FileVersions = func(context.Context, domain.SessionID) (map[string]string, error) { loaded = true; return nil, nil }
		_, tool := b.patchToolOf(t, func(*patchStep) error { t.Error("a change was committed"); return nil })
		base, cancel := context.WithCancelCause(t.Context())
		ctx := contextAtCommit{base, &loaded, func() {
			if interrupted {
				cancel(stop)
			} else {
				b.put(t, "b", "two\ntheirs\n")
			}
		}}
		_, err := call(ctx, t, tool, patchInput("*** Update File: a", "-one", "+1", "*** Update File: b", "-two", "+2"), domain.Invocation{})
		if want := "apply_patch verification failed: b: file changed after permission approval."; interrupted != errors.Is(err, stop) || !interrupted && !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("interrupted %v: apply_patch = %v, want %q or the interruption", interrupted, err, want)
		}
		if loaded || b.content(t, "a") != "one\n" {
			t.Errorf("interrupted %v: the call did not wait for its turn, or a holds %q", interrupted, b.content(t, "a"))
		}
		cancel(nil)
	}
}

// Scenario 152.
func TestOneOfManyPatchesOfTheSameBytesSucceeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one\n")
	b.put(t, "b", "two\n")
	ids := sessions(16)
	var won atomic.Int32
	var callers sync.WaitGroup
	for i, session := range ids {
		lines := []string{"*** Update File: a", "-one", fmt.Sprintf("+1 by %d", i), "*** Update File: b", "-two", fmt.Sprintf("+2 by %d", i)}
		if i%2 == 1 {
			lines = append(lines[3:], lines[:3]...)
		}
		callers.Go(func() {
			_, err := b.runIn(t, session, "apply_patch", patchInput(lines...))
			if err == nil {
				won.Add(1)
			} else if !strings.HasPrefix(err.Error(), "apply_patch verification failed: ") {
				t.Errorf("apply_patch = %v, want a failed verification", err)
			}
		})
	}
	callers.Wait()
	if a, b := strings.TrimPrefix(b.content(t, "a"), "1"), strings.TrimPrefix(b.content(t, "b"), "2"); won.Load() != 1 || a != b {
		t.Errorf("%d patches succeeded, and the files are%q and%q", won.Load(), a, b)
	}
}

func TestPatchRefusesAFileThatTheSessionKnowsOtherwise(t *testing.T) {
	t.Parallel()
	for _, lines := range []string{"*** Update File: a\n-one\n+1", "*** Delete File: a", "*** Update File: a\n*** Move to: b"} {
		b := newBench(t)
		b.put(t, "a", "one\n")
		must[readResult](t, b, "read", input{"path": "a"})
		b.put(t, "a", "one\ntheirs\n")
		b.fails(t, "apply_patch", patchInput(lines), "apply_patch verification failed: a: "+changedText)
		if diff := cmp.Diff(map[string]string{"a": "one\ntheirs\n"}, b.tree(t)); diff != "" {
			t.Error(diff)
		}
		must[readResult](t, b, "read", input{"path": "a"})
		must[patchResult](t, b, "apply_patch", patchInput(lines))
	}
}

func TestPatchKnowsItsOwnChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must[patchResult](t, b, "apply_patch", patchInput("*** Add File: a", "+one"))
	must[editResult](t, b, "edit", input{"path": "a", "oldString": "one", "newString": "two"})
	must[patchResult](t, b, "apply_patch", patchInput("*** Update File: a", "*** Move to: b", "-two", "+three"))
	must[patchResult](t, b, "apply_patch", patchInput("*** Add File: a", "+four", "*** Delete File: b"))
	must[writeResult](t, b, "write", input{"path": "a", "content": "five"})
	must[writeResult](t, b, "write", input{"path": "b", "content": "six"})
	b.put(t, "a", "theirs")
	b.fails(t, "apply_patch", patchInput("*** Delete File: a"), changedText)
}

func TestPatchIsOfferedInPlaceOfEdit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for model, want := range map[string]bool{
		"gpt-5": true, "openai/gpt-5-codex": true, "gpt-4o": false, "openai/gpt-4.1": false, "gpt-oss-120b": false, "claude-sonnet": false, "": false,
	} {
		facts := domain.TurnFacts{Model: model}
		if hidden := b.tools["apply_patch"].Available().Unmet(facts); (len(hidden) == 0) != want {
			t.Errorf("apply_patch for model %q: hidden by %v, want offered %v", model, hidden, want)
		}
		if hidden := b.tools["edit"].Available().Unmet(facts); (len(hidden) == 0) == want {
			t.Errorf("edit for model %q: hidden by %v, want offered %v", model, hidden, !want)
		}
	}
	if hidden := b.tools["apply_patch"].Available().Unmet(domain.TurnFacts{Model: "other", Flags: []string{"apply_patch"}}); len(hidden) > 0 {
		t.Errorf("with the flag apply_patch is hidden by %v", hidden)
	}
	if !b.tools["apply_patch"].AsksFirst() {
		t.Error("apply_patch does not ask first")
	}
}

func TestPatchTitleNamesTheFirstFile(t *testing.T) {
	t.Parallel()
	for want, lines := range map[string][]string{
		"a": {"*** Delete File: a"}, "a and 1 more file": {"*** Delete File: a", "*** Delete File: b"},
		"x y and 2 more files": {"*** Update File: x y", "*** Move to: z", "*** Add File: b", "*** Add File: c"}, "": {"nonsense"},
	} {
		if got := (patchArgs{patchInput(lines...)["patchText"].(string)}).title(); got != want {
			t.Errorf("the title is %q, want %q", got, want)
		}
	}
}
