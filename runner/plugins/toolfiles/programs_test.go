package toolfiles_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// A program that breaks the protocol, or never ends, gives its call a clear end that names
// the tool and the line. The other tools of the folder still run.
func TestBrokenProgramEndsItsCallOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	cases := []struct {
		name, script, keys string
		outcome            domain.Outcome
		reads, detail      string
	}{
		{"garbage", "echo why >&2; echo 'Traceback: no such thing'", "", domain.Defective, `tool garbage: line 1 is no answer`, "why"},
		{"bytes", `printf '{"output":"\377"}\n'`, "", domain.Defective, "tool bytes: line 1 is no answer", "UTF-8"},
		{"blank", `echo; echo '{"output":1}'`, "", domain.Defective, "tool blank: line 1 is no answer", ""},
		{"unknown", `echo '{"outptu":1}'`, "", domain.Defective, "tool unknown: line 1 is no answer", "outptu"},
		{"both", `echo '{"output":1,"failure":"x"}'`, "", domain.Defective, "it has 2 of the keys", ""},
		{"duplicate", `echo '{"output":1,"output":2}'`, "", domain.Defective, "line 1 is no answer", "duplicate"},
		{"twice", `echo '{"output":1}'; echo '{"output":2}'`, "", domain.Defective, "line 2 follows the result in line 1", ""},
		{"late_ask", `echo '{"output":1}'; echo '{"ask":{"action":"free","resources":["x"]}}'`, "", domain.Defective, "line 2 follows the result in line 1", ""},
		{"middle", `printf '{"progress":1}\n{"output":{"a"'; exec >&-; sleep 60`, "", domain.Defective, "tool middle: line 2 is no answer", ""},
		{"silent", `exit 3`, "", domain.Defective, "tool silent: it ended without writing a line (its exit status is 3)", ""},
		{"orphan", `sleep 300 & exit 2`, `,"timeout":"30s"`, domain.Defective, "it ended without writing a line (its exit status is 2)", ""},
		{"closed", `echo '{"progress":1}'; exec >&-; exec sleep 60`, "", domain.Defective, "it ended after line 1 without an output", ""},
		{"killed", `echo '{"progress":1}'; kill -9 $$`, "", domain.Defective, "it was ended by the signal killed", ""},
		{"long_line", `head -c 300 /dev/zero | tr '\0' x; echo`, `,"limits":{"line":256}`, domain.Defective, "line 1 is over the limit of 256 bytes", ""},
		{"long_output", `yes '{"progress":1}'`, `,"limits":{"output":1000}`, domain.Defective, "over the limit of 1000 bytes for the whole output", ""},
		{"flood", `yes '{"progress":1}'`, `,"limits":{"progress":5}`, domain.Defective, "line 6 is over the limit of 5 progress lines", ""},
		{"endless", `exec sleep 60`, `,"timeout":"200ms"`, domain.Failed, "The tool endless was ended: it gave no result within 200ms.", ""},
		{"schema", `echo '{"output":"text"}'`, `,"output":{"type":"integer"}`, domain.InvalidOutput, "invalid value for its output schema", ""},
		{"failing", `echo '{"failure":"there is no such page"}'`, "", domain.Failed, "there is no such page", ""},
		{"bad_ask", `echo '{"ask":{"action":"free","resources":[]}}'; read -r answer`, "", domain.Defective, "ask.resources is missing or empty", ""},
	}
	for _, c := range cases {
		w.tool(c.name, c.script, c.keys)
	}
	w.tool("good", `echo '{"output":"fine"}'`, "")
	m := w.offer()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := w.settle(t.Context(), m, c.name, `{}`)
			if got := reads(s); s.Outcome != c.outcome || !strings.Contains(got, c.reads) || !strings.Contains(s.Detail+got, c.detail) {
				t.Errorf("settlement = %v reading %q, detail %q, want %v with %q, detail %q", s.Outcome, got, s.Detail, c.outcome, c.reads, c.detail)
			}
			if s := w.settle(t.Context(), m, "good", `{}`); reads(s) != "fine" {
				t.Errorf("the other tool = %v reading %q, want fine", s.Outcome, reads(s))
			}
		})
	}
}

// The last progress of a call that fails is kept, and the program may close its input.
func TestProgressIsKeptWithAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.tool("moving", `exec <&-; echo '{"progress":{"done":1}}'; echo '{"progress":"half"}'; echo '{"failure":"stuck"}'`, "")
	s := w.call("moving", `{"text":"`+strings.Repeat("x", 200_000)+`"}`)
	w.want(s, domain.Failed, "stuck")
	if s.Progress == nil || s.Progress.Content.Text() != "half" {
		t.Errorf("progress = %+v, want the last one, half", s.Progress)
	}
}

// A refused permission ends the call with exactly that outcome if the program gives no
// output, and does not if it gives one.
func TestRefusedPermissionEndsACallWithoutOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	ask := func(action, then string) string {
		return `read -r input; echo '{"ask":{"action":"` + action + `","resources":["x"]}}'; read -r answer; ` + then
	}
	w.tool("fails", ask("forbidden", `echo '{"failure":"no"}'`), "")
	w.tool("ends", ask("forbidden", `exit 1`), "")
	w.tool("hangs", ask("forbidden", `sleep 60`), `,"timeout":"1500ms"`)
	w.tool("goes_on", ask("forbidden", `echo "{\"output\":$answer}"`), "")
	w.tool("allowed", ask("free", `echo "{\"output\":$answer}"`), "")
	for _, name := range []string{"fails", "ends", "hangs"} {
		w.want(w.call(name, `{}`), domain.DeniedByRule, "Permission denied: forbidden x")
	}
	w.want(w.call("goes_on", `{}`), domain.Succeeded, `{"answer":"deny","reason":"Permission denied: forbidden x"}`)
	w.want(w.call("allowed", `{}`), domain.Succeeded, `{"answer":"allow"}`)
}

// A question is withdrawn if its program ends before the answer.
func TestQuestionOfAnEndedProgramIsWithdrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.tool("gone", `echo '{"ask":{"action":"compute","resources":["x"]}}'`, "")
	m := w.offer()
	ended := make(chan domain.Settlement, 1)
	go func() { ended <- w.settle(t.Context(), m, "gone", `{}`) }()
	for {
		select {
		case <-w.person: // and does not answer
		case s := <-ended:
			w.want(s, domain.Defective, "it ended while its question in line 1 was open")
			return
		}
	}
}

// A program gets the inherited variables and those that its manifest names, and no others.
// It runs in the folder of the location.
func TestProgramGetsItsEnvironmentAndFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	script := `echo "{\"output\":\"$(pwd) [$SECRET_FOR_TOOLS]\"}"`
	w.tool("plain", script, "")
	w.tool("trusted", script, `,"env":["SECRET_FOR_TOOLS"]`)
	project, err := filepath.EvalSymlinks(w.project)
	must(t, err)
	w.want(w.call("plain", `{}`), domain.Succeeded, project+" []")
	w.want(w.call("trusted", `{}`), domain.Succeeded, project+" [s3]")
}

// The title, the text for the model and the message for invalid input are those of the
// manifest, and a file that the manifest lists is beside the program.
func TestManifestDecidesWhatPeopleAndModelsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, domain.Application)
	w.write("lib/words.txt", "hello")
	w.write("greet.sh", `echo "{\"output\":{\"text\":\"$(cat "$(dirname "$0")/lib/words.txt")\",\"size\":5}}"`)
	w.write("greet.json", `{"description":"Greets.","title":"name","text":"text","invalid_input":"Give a name. {faults}",
		"input":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]},
		"output":{"type":"object","properties":{"text":{"type":"string"}}},
		"command":["sh","./greet.sh"],"files":["lib/words.txt"]}`)
	if s := w.call("greet", `{"name":"Ada"}`); reads(s) != "hello" {
		t.Errorf("settlement = %v reading %q, want hello", s.Outcome, reads(s))
	}
	w.want(w.call("greet", `{}`), domain.InvalidInput, "Give a name. ")
	if got := w.titles(); len(got) != 1 || got[0] != "Ada" {
		t.Errorf("titles = %q, want Ada", got)
	}
}
