package views

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/index"
)

// The change of a file is the diff of what the input of an edit, a write or a patch says.
func TestAnInputHasTheChangeOfItsFile(t *testing.T) {
	t.Parallel()
	patch := `*** Begin Patch\n*** Update File: a.go\n@@\n-x\n+y\n*** Add File: b.go\n+new\n*** End Patch\n`
	for _, c := range []struct{ name, input, want string }{
		{"/w/a.go", `{"path":"a.go","oldString":"one\ntwo\n","newString":"one\n2\n"}`, " one\n-two\n+2\n"},
		{"/w/a.go", `{"file_path":"/w/a.go","old_string":"$# -gt 1","new_string":"$# -gt 0"}`, "-$# -gt 1\n+$# -gt 0\n"},
		{"/w/a.go", `{"edits":[{"old_string":"a\n","new_string":"b\n"},{"old_string":"c\n","new_string":""}]}`, "-a\n+b\n-c\n"},
		{"/w/a.go", `{"path":"a.go","content":"x\ny\n"}`, "+x\n+y\n"},
		{"/w/a.go", `{"patchText":"` + patch + `"}`, "*** Update File: a.go\n@@\n-x\n+y\n"},
		{"/w/b.go", `{"patchText":"` + patch + `"}`, "*** Add File: b.go\n+new\n"},
		{"/w/c.go", `{"patchText":"` + patch + `"}`, ""},
		{"/w/a.go", `{"path":"a.go","oldString":1,"newString":"b"}`, ""},
		{"/w/a.go", `"no object"`, ""},
		{"/w/a.go", `null`, ""},
	} {
		if got := inputDiff("/w", c.name, []byte(c.input)); got != c.want {
			t.Errorf("%s of %s changes\n%s\nwant\n%s", c.name, c.input, got, c.want)
		}
	}
}

// A diff of a history is cut behind its first lines.
func TestALongChangeIsCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines int
		full  bool
		want  int
		cut   bool
	}{{diffLines, false, diffLines, false}, {diffLines + 1, false, diffLines, true}, {diffLines + 1, true, diffLines + 1, false}} {
		var u fileUse
		u.setDiff(strings.Repeat("+x\n", c.lines), c.full)
		if got := strings.Count(*u.Diff, "\n"); got != c.want || u.Cut != c.cut {
			t.Errorf("of %d lines %d are left, cut %v", c.lines, got, u.Cut)
		}
	}
}

// Hostile characters of a found text do not reach the terminal.
func TestASnippetShowsHostileTextHarmlessly(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &render.Printer{Out: bufio.NewWriter(&b), Err: &b, Env: os.LookupEnv, Now: time.Now, Format: render.AsTable, Color: "never"}
	got := snippetText(p, index.Text{Before: strings.Repeat("y", 90) + "\x1b[31m\u202e ", Match: "rm\x07", After: "\r\n\t x\x00" + strings.Repeat("z", 90)})
	if strings.ContainsAny(got, "\x1b\x07\x00\r\n\t\u202e") || !strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "z…") || !strings.Contains(got, " rm␇ x␀z") {
		t.Errorf("the snippet is %q", got)
	}
}
