package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// The input of a call names the paths of its members, of its patch and of its command line.
func TestAnInputNamesItsPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tool, input, want string }{
		{"read", `{"path":"a/b.go"}`, "/w/a/b.go read"},
		{"Edit", `{"file_path":"/x/../y.go","old_string":"o"}`, "/y.go write"},
		{"view", `{"filePath":"~/notes"}`, "~/notes read"},
		{"NotebookEdit", `{"notebook_path":"n.ipynb"}`, "/w/n.ipynb write"},
		{"read", `{"path":"output://evt_1/text"}`, ""},
		{"read", `{"path":["a"],"file_path":"b"}`, "/w/b read"},
		{"read", `not JSON`, ""},
		{"read", `{"path":"a\u0000b"}`, ""},
		{"apply_patch", `{"patchText":"*** Begin Patch\n*** Update File: a.go\n@@\n-x\n*** Move to: b/c.go\n*** Delete File: d.go\n*** End Patch"}`, "/w/a.go write, /w/b/c.go write, /w/d.go write"},
		{"bash", `{"command":"sh test.sh && cat 'x y/z' ../etc/hosts -n --f=a/b >out/log; ls https://x.y/z $HOME/a 1.2.3"}`, "/w/test.sh run, /etc/hosts run, /w/out/log run"},
		{"bash", `{"command":"go build ./cmd/ledger","workdir":"sub"}`, "/w/sub run, /w/sub/cmd/ledger run"},
		{"shell", `{"command":["bash","-lc","cat a/b"]}`, "/w/a/b run"},
		{"read", `{"command":"cat a/b"}`, ""},
	} {
		var got []string
		for _, use := range inputPaths(c.tool, "/w", []byte(c.input)) {
			got = append(got, use.path+" "+use.access)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s %s names %q, want %q", c.tool, c.input, strings.Join(got, ", "), c.want)
		}
	}
	if got := inputPaths("read", "", []byte(`{"path":"a//b"}`)); len(got) != 1 || got[0].path != "a/b" {
		t.Errorf("without a workspace: %v", got)
	}
	if got := inputPaths("bash", "/", []byte(`{"command":"`+strings.Repeat("cat a/b ", 200)+`"}`)); len(got) != maxCommandPaths {
		t.Errorf("a long command names %d paths, want %d", len(got), maxCommandPaths)
	}
}

// A settlement, an input and a permission request each add the paths of their call, once.
func TestThePathsOfCallsAreInTheIndex(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(5)
	session, message := log.Mint.Session(), log.Mint.Message()
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Agent: "build", Location: "/w"})
	log.Add(stream, events.ReplyReceived{Message: message, Calls: []domain.Call{
		{ID: "one", Name: "edit", Input: []byte(`{"path":"a.go"}`)}, {ID: "two", Name: "bash", Input: []byte(`{"command":"cat a.go /t/x.go"}`)},
	}})
	log.Add(stream, events.PermissionRequested{Permission: log.Mint.Permission(), Message: message, Call: "two", Action: "external_directory", Resources: []string{"/t/*"}})
	log.Add(stream, events.CallSettled{Message: message, Call: "one", Tool: "edit", Outcome: domain.Succeeded, Files: []domain.FileAccess{{Path: "/w/a.go", Access: domain.FileChanged}, {Path: "/w/c.go", Access: domain.FileRead}}})
	l, _ := newLedger(t, log.Envelopes())
	got := table(t, newIndex(t, l), "SELECT name, base, calls.call, access, source FROM path_uses JOIN paths USING (path) JOIN calls ON calls.id = path_uses.call ORDER BY 1, 3, 5")
	want := []string{
		"/t|t|two|run|request", "/t/x.go|x.go|two|run|input", "/w/a.go|a.go|one|write|input", "/w/a.go|a.go|one|write|result", "/w/a.go|a.go|two|run|input", "/w/c.go|c.go|one|read|result",
	}
	if !slices.Equal(got, want) {
		t.Errorf("paths are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := table(t, newIndex(t, l), "SELECT input_bytes, shown_bytes FROM calls ORDER BY id"), []string{"15|0", fmt.Sprintf("%d|0", len(`{"command":"cat a.go /t/x.go"}`))}; !slices.Equal(got, want) {
		t.Errorf("sizes are %q, want %q", got, want)
	}
}
