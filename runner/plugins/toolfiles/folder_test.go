package toolfiles_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner/plugins/toolfiles"
)

const answersOne = `echo '{"output":1}'`

// Each kind of unusable manifest is a refusal with a reason that names the fault. It is on
// record once, and costs no other tool.
func TestUnusableManifestIsRefusedOnceWithItsReason(t *testing.T) {
	t.Parallel()
	manifest := func(keys string) string {
		return `{"description":"d","input":{"type":"object"},"command":["sh","./good.sh"]` + keys + `}`
	}
	cases := map[string]struct{ content, reason string }{
		"no_json":       {`{"description":`, "unexpected EOF"},
		"latin":         {"{\"description\":\"\xe9\"}", "UTF-8"},
		"two":           {manifest("") + "{}", "after top-level value"},
		"unknown_key":   {manifest(`,"colour":"red"`), `unknown key "colour" in "/colour": `},
		"key_case":      {`{"Description":"d"}`, `"Description"`},
		"twice":         {manifest(`,"title":"a","title":"b"`), `duplicate object member name "title"`},
		"number":        {manifest(`,"timeout":30`), "/timeout: a JSON number does not fit this key"},
		"empty":         {`{}`, "description: it is missing or blank"},
		"list":          {`[]`, "it is a JSON array: write one object"},
		"no_input":      {`{"description":"d","command":["sh"]}`, "input: the schema is missing"},
		"bad_schema":    {`{"description":"d","input":{"type":"object","properties":{"a":{"type":"strin"}}},"command":["sh"]}`, "schema is not supported"},
		"array_input":   {`{"description":"d","input":{"type":"array"},"command":["sh"]}`, `input: the schema must have "type": "object"`},
		"remote_schema": {`{"description":"d","input":{"type":"object","properties":{"a":{"$ref":"http://example.com/a"}}},"command":["sh"]}`, "schema is not supported"},
		"no_command":    {`{"description":"d","input":{"type":"object"}}`, "command: it names no program"},
		"outside":       {`{"description":"d","input":{"type":"object"},"command":["../x"]}`, "no path of a file in the folder"},
		"outside_file":  {manifest(`,"files":["/etc/passwd"]`), "files: "},
		"absent_file":   {manifest(`,"files":["absent.py"]`), "absent.py"},
		"absent":        {`{"description":"d","input":{"type":"object"},"command":["no-such-program-here"]}`, "the program no-such-program-here is not in PATH"},
		"no_exec":       {`{"description":"d","input":{"type":"object"},"command":["./good.sh"]}`, "not executable"},
		"timeout":       {manifest(`,"timeout":"2h"`), "timeout: "},
		"limit":         {manifest(`,"limits":{"line":-1}`), "limits.line: "},
		"limit_key":     {manifest(`,"limits":{"lines":1}`), `unknown key "lines" in "/limits/lines": `},
		"title":         {manifest(`,"title":"path"`), `title: the input has no property "path"`},
		"text":          {manifest(`,"text":"path"`), `text: the output has no property "path"`},
		"env":           {manifest(`,"env":["LEDGER_STORE"]`), "env: "},
		"action":        {manifest(`,"action":"*"`), "action: "},
		"needs":         {manifest(`,"available":[{"needs":["git"]}]`), "KIND:NAME"},
		"large":         {manifest(`,"invalid_input":"` + strings.Repeat("x", 70_000) + `"`), "over the limit of 65536 bytes"},
		"bash":          {manifest(""), "reserved"},
		"no.dots":       {manifest(""), "Invalid tool name"},
	}
	w := newWorld(t, domain.Application)
	w.write("good.sh", answersOne)
	w.write("good.json", manifest(""))
	w.write(".draft.json", "{")
	for name, c := range cases {
		w.write(name+".json", c.content)
	}
	w.wantOffered("good")
	w.wantOffered("good")
	got := w.refusals()
	if len(got) != len(cases) {
		t.Errorf("%d refusals are on record, want one for each of %d manifests: %q", len(got), len(cases), got)
	}
	for name, c := range cases {
		i := slices.IndexFunc(got, func(r string) bool { return strings.HasPrefix(r, name+": ") })
		if i < 0 || !strings.Contains(got[i], c.reason) {
			t.Errorf("refusals %q have none of %s with %q", got[max(i, 0)], name, c.reason)
		}
	}
	w.want(w.call("good", `{}`), domain.Succeeded, "1")
}

// A pipe or a file in the place of the folder is a refusal, and blocks no call.
func TestPipeInPlaceOfTheFolderIsRefused(t *testing.T) {
	t.Parallel()
	for _, placement := range []domain.Placement{domain.Application, domain.Location} {
		w := newWorld(t, placement)
		w.tool("good", answersOne, "")
		w.wantOffered("good")
		must(t, os.RemoveAll(w.folder))
		must(t, syscall.Mkfifo(w.folder, 0o644))
		w.wantOffered()
		must(t, os.Remove(w.folder))
		must(t, os.WriteFile(w.folder, nil, 0o644))
		w.wantOffered()
		if got := w.refusals(); len(got) != 1 || !strings.HasPrefix(got[0], "folder "+w.folder) || !strings.Contains(got[0], "not a directory") {
			t.Errorf("refusals = %q, want one of the folder", got)
		}
	}
}

// Links and files that everyone may write to are refused, in each place of the folder.
func TestFilesThatOthersControlAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "p.sh"), []byte(answersOne), 0o644))
	w.tool("good", answersOne, "")
	must(t, os.Symlink("good.json", filepath.Join(w.folder, "link.json")))
	for name, file := range map[string]string{"linked_program": "inner.sh", "linked_outside": "outer.sh", "linked_folder": "sub/p.sh", "open": "open.sh", "open_folder": "shared/p.sh", "pipe": "pipe.sh"} {
		w.write(name+".json", `{"description":"d","input":{"type":"object"},"command":["sh","./`+file+`"]}`)
	}
	must(t, os.Symlink("good.sh", filepath.Join(w.folder, "inner.sh")))
	must(t, os.Symlink(filepath.Join(outside, "p.sh"), filepath.Join(w.folder, "outer.sh")))
	must(t, os.Symlink(outside, filepath.Join(w.folder, "sub")))
	w.write("open.sh", answersOne)
	must(t, os.Chmod(filepath.Join(w.folder, "open.sh"), 0o646))
	w.write("shared/p.sh", answersOne)
	must(t, os.Chmod(filepath.Join(w.folder, "shared"), 0o757))
	must(t, syscall.Mkfifo(filepath.Join(w.folder, "pipe.sh"), 0o644))
	must(t, syscall.Mkfifo(filepath.Join(w.folder, "fifo.json"), 0o644))
	must(t, os.Mkdir(filepath.Join(w.folder, "dir.json"), 0o755))
	w.wantOffered("good")
	for name, reason := range map[string]string{
		"link": "link.json is a link", "linked_program": "inner.sh is a link", "linked_outside": "outer.sh is a link", "linked_folder": "sub is a link",
		"open": "everyone may write to open.sh", "open_folder": "everyone may write to shared", "pipe": "no regular file", "fifo": "no regular file", "dir": "no regular file",
	} {
		if !slices.ContainsFunc(w.refusals(), func(r string) bool {
			return strings.HasPrefix(r, name+": ") && strings.Contains(r, toolfiles.ErrUnsafeFile.Error()) && strings.Contains(r, reason)
		}) {
			t.Errorf("%s is not refused as unsafe, %s: %q", name, reason, w.refusals())
		}
	}
	must(t, os.Chmod(w.folder, 0o757))
	w.wantOffered()
	must(t, os.Chmod(w.folder, 0o755))
	w.wantOffered("good")
}

// A link on the way to the folder of a project is refused, and one to a folder that the
// user chose is followed.
func TestFolderOfAProjectIsReachedByNoLink(t *testing.T) {
	t.Parallel()
	for placement, want := range map[domain.Placement][]string{domain.Location: {}, domain.PerSession: {"good"}} {
		w := newWorld(t, placement)
		w.tool("good", answersOne, "")
		w.wantOffered("good")
		away := filepath.Join(w.project, "away")
		must(t, os.Rename(w.folder, away))
		w.wantOffered()
		must(t, os.Symlink(away, w.folder))
		w.wantOffered(want...)
	}
}

// Refresh registers exactly what changed: an unchanged tool keeps its registration, a
// removed one is gone, a broken one is refused, and a repaired one is back.
func TestRefreshRegistersExactlyWhatChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.tool("a", answersOne, "")
	w.tool("b", answersOne, "")
	w.wantOffered("a", "b")
	first := w.offer()
	registered := w.registered()
	w.refresh()
	w.write("a.sh", answersOne) // the same content at another time
	w.refresh()
	if got := w.registered(); !slices.Equal(got, registered) {
		t.Errorf("registered %v after a refresh without a change, want %v", got, registered)
	}
	w.tool("b", `echo '{"output":2}'`, "")
	w.wantOffered("a", "b")
	if got := w.registered()[len(registered):]; !slices.Equal(got, []string{"b"}) {
		t.Errorf("a change of b registered %v", got)
	}
	w.want(w.settle(t.Context(), first, "a", `{}`), domain.Succeeded, "1")
	w.want(w.settle(t.Context(), first, "b", `{}`), domain.Stale, "")
	w.write("b.json", `{"description":`)
	w.wantOffered("a")
	w.write("b.json", `{"description": `)
	w.wantOffered("a")
	if got := len(w.refusals()); got != 2 {
		t.Errorf("%d refusals of b are on record, want one for each content: %q", got, w.refusals())
	}
	w.tool("b", `echo '{"output":3}'`, "")
	w.want(w.call("b", `{}`), domain.Succeeded, "3")
	must(t, os.Remove(filepath.Join(w.folder, "a.json")))
	w.wantOffered("b")
	must(t, os.RemoveAll(w.folder))
	w.wantOffered()
}

// registered returns the names of the registered tools in order.
func (w *world) registered() []string {
	w.t.Helper()
	var all []string
	for _, e := range w.layerEvents() {
		if e, ok := e.(events.ToolsRegistered); ok {
			for _, tool := range e.Tools {
				all = append(all, string(tool.Name))
			}
		}
	}
	return all
}

// A change that leaves size and time of a file as they were is found by the next call, and
// registered by the refresh after it.
func TestChangeThatHidesFromTheStampNeverRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.tool("a", `echo '{"output":1}'`, "")
	old := time.Now().Add(-time.Hour)
	file := filepath.Join(w.folder, "a.sh")
	for _, f := range []string{file, filepath.Join(w.folder, "a.json")} {
		must(t, os.Chtimes(f, old, old))
	}
	w.want(w.call("a", `{}`), domain.Succeeded, "1")
	w.write("a.sh", `echo '{"output":2}'`)
	must(t, os.Chtimes(file, old, old))
	w.want(w.call("a", `{}`), domain.Failed, "changed after it was offered")
	w.want(w.call("a", `{}`), domain.Succeeded, "2")
}

// A change in the same step of the file system's clock as the registration is found by
// the next refresh, although size and time of the file are as they were.
func TestChangeInTheSameClockStepIsRegistered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.tool("a", `echo '{"output":1}'`, "")
	now := time.Now()
	file := filepath.Join(w.folder, "a.sh")
	must(t, os.Chtimes(file, now, now))
	w.wantOffered("a")
	w.write("a.sh", `echo '{"output":2}'`)
	must(t, os.Chtimes(file, now, now))
	w.want(w.call("a", `{}`), domain.Succeeded, "2")
}

// The manifests over the limit are refused by name, and a folder with too many entries is
// refused whole.
func TestFolderHasLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.write("p.sh", answersOne)
	for i := range toolfiles.MaxTools + 2 {
		w.write(fmt.Sprintf("t%03d.json", i), `{"description":"d","input":{"type":"object"},"command":["sh","./p.sh"]}`)
	}
	if got := names(w.offer()); len(got) != toolfiles.MaxTools || got[len(got)-1] != "t199" {
		t.Errorf("offered %d tools, the last %s, want t000 to t199", len(got), got[len(got)-1])
	}
	w.refresh()
	if got := w.refusals(); len(got) != 2 || !strings.HasPrefix(got[0], "t200: ") || !strings.HasPrefix(got[1], "t201: ") {
		t.Errorf("refusals = %q, want t200 and t201", got)
	}
	for i := range 10_000 {
		must(t, os.Link(filepath.Join(w.folder, "p.sh"), filepath.Join(w.folder, fmt.Sprintf("x%d", i))))
	}
	w.wantOffered()
}

// A program of a project's folder starts only with a permission for its generation. The
// answer "always" covers that generation and no other.
func TestProgramOfAProjectNeedsPermissionForItsContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Location)
	ran := filepath.Join(t.TempDir(), "ran")
	w.tool("hostile", `echo x >> `+ran+`; echo '{"output":1}'`, `,"action":"free","env":["SECRET_FOR_TOOLS"]`)
	var s domain.Settlement
	asked := w.answering(func() { s = w.call("hostile", `{}`) }, permission.Reject)
	w.want(s, domain.DeclinedByUser, "not today")
	q := asked[0]
	if q.Action != toolfiles.ProjectAction || !strings.HasPrefix(q.Resources[0], "hostile sha256:") || !slices.Equal(q.Save, q.Resources) ||
		!strings.Contains(q.Shown.Text, "SECRET_FOR_TOOLS") || !strings.Contains(q.Shown.Text, "hostile.sh") {
		t.Errorf("asked %+v, want project_tool for the content, showing command, variables and files", q)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program ran before it was allowed")
	}
	w.answering(func() { s = w.call("hostile", `{}`) }, permission.Always)
	w.want(s, domain.Succeeded, "1")
	w.answering(func() { s = w.call("hostile", `{}`) })
	w.want(s, domain.Succeeded, "1")
	w.tool("hostile", `echo '{"output":2}'`, "")
	w.answering(func() { s = w.call("hostile", `{}`) }, permission.Once)
	w.want(s, domain.Succeeded, "2")
}

// Files of a project that change while a person reads the question do not run.
func TestApprovedContentIsTheContentThatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Location)
	w.tool("shifty", answersOne, "")
	m := w.offer()
	ended := make(chan domain.Settlement, 1)
	go func() { ended <- w.settle(t.Context(), m, "shifty", `{}`) }()
	q := <-w.person
	w.tool("shifty", `echo '{"output":"hostile"}'`, "")
	q.reply(permission.Once, "")
	w.want(<-ended, domain.Failed, "changed after it was offered")
}

// A program of a project cannot have an approval saved under an action of its choice.
func TestProgramOfAProjectSavesNoApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Location)
	w.tool("greedy", `echo '{"ask":{"action":"edit","resources":["a"],"save":["*"]}}'; read -r input; read -r answer; echo '{"output":1}'`, "")
	var s domain.Settlement
	w.answering(func() { s = w.call("greedy", `{}`) }, permission.Once)
	w.want(s, domain.Defective, "line 1: a tool of a project cannot ask for an approval that is saved")
}

// The private copy of the files is removed after a call.
func TestCallLeavesNoCopyBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	w := newWorld(t, domain.Application)
	w.write("direct", "#!/bin/sh\n"+`echo "{\"output\":\"$0\"}"`+"\n")
	w.write("direct.json", `{"description":"d","input":{"type":"object"},"command":["./direct"]}`)
	w.want(w.call("direct", `{}`), domain.Succeeded, "ledger-tool-")
	left, err := filepath.Glob(filepath.Join(dir, "ledger-tool-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A folder of tools needs a name, an absolute path and a placement.
func TestIncompleteConfigIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []toolfiles.Config{
		{Folder: "/tools", Placement: domain.Location}, {Name: "files", Folder: "tools", Placement: domain.Location}, {Name: "files", Folder: "/tools"},
	} {
		if _, err := toolfiles.New(c); err == nil || !strings.Contains(err.Error(), toolfiles.ErrBadConfig.Error()) {
			t.Errorf("New(%+v) = %v, want ErrBadConfig", c, err)
		}
	}
}
