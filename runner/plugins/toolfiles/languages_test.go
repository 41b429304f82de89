package toolfiles_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// A language is a language in which a tool is written: it doubles a number, after it has
// asked for a permission.
type language struct {
	name, interpreter, file, source string
}

var languages = []language{
	{"python", "python3", "double.py", `import json, sys
request = json.loads(sys.stdin.readline())
print(json.dumps({"progress": {"step": 1}}), flush=True)
print(json.dumps({"ask": {"action": "compute", "resources": ["double"]}}), flush=True)
answer = json.loads(sys.stdin.readline())
if answer["answer"] != "allow":
    print(json.dumps({"failure": answer["reason"]}))
    sys.exit(0)
print(json.dumps({"output": {"doubled": FACTOR * request["input"]["number"], "call": request["call"]["call"]}}))
`},
	{"shell", "sh", "double.sh", `read -r request
number=$(printf '%s' "$request" | sed 's/.*"number":\([0-9]*\).*/\1/')
call=$(printf '%s' "$request" | sed 's/.*"call":"\([^"]*\)".*/\1/')
echo '{"progress":{"step":1}}'
echo '{"ask":{"action":"compute","resources":["double"]}}'
read -r answer
case $answer in
*allow*) echo "{\"output\":{\"doubled\":$((FACTOR * number)),\"call\":\"$call\"}}" ;;
*) echo '{"failure":"refused"}' ;;
esac
`},
	{"javascript", "node", "double.js", `const lines = require("readline").createInterface({ input: process.stdin });
let request;
lines.on("line", (line) => {
  const message = JSON.parse(line);
  if (!request) {
    request = message;
    console.log(JSON.stringify({ progress: { step: 1 } }));
    console.log(JSON.stringify({ ask: { action: "compute", resources: ["double"] } }));
    return;
  }
  if (message.answer !== "allow") {
    console.log(JSON.stringify({ failure: message.reason }));
  } else {
    console.log(JSON.stringify({ output: { doubled: FACTOR * request.input.number, call: request.call.call } }));
  }
  lines.close();
});
`},
}

// write writes the tool of a language, which multiplies by a factor.
func (l language) write(t *testing.T, w *world, factor string) {
	t.Helper()
	if _, err := exec.LookPath(l.interpreter); err != nil {
		t.Skipf("%s is not installed", l.interpreter)
	}
	w.write(l.file, strings.ReplaceAll(l.source, "FACTOR", factor))
	w.write("double.json", `{"description":"Doubles a number.","title":"number","asks_first":true,
		"input":{"type":"object","properties":{"number":{"type":"integer"}},"required":["number"],"additionalProperties":false},
		"output":{"type":"object","properties":{"doubled":{"type":"integer"},"call":{"type":"string"}},"required":["doubled","call"]},
		"command":["`+l.interpreter+`","./`+l.file+`"]}`)
}

// A tool in any language gets its input and its call, reports progress, asks, and answers.
func TestToolInEachLanguageAsksAndAnswers(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, domain.Application)
			l.write(t, w, "2")
			var s domain.Settlement
			asked := w.answering(func() { s = w.call("double", `{"number":21}`) }, permission.Once)
			w.want(s, domain.Succeeded, `"doubled":42`)
			if r := asked[0]; r.Action != "compute" || r.Resources[0] != "double" || !strings.Contains(reads(s), string(r.Invocation.Call)) {
				t.Errorf("asked %+v, want compute double for the call in %s", r, reads(s))
			}
			w.answering(func() { s = w.call("double", `{"number":21}`) }, permission.Reject)
			w.want(s, domain.DeclinedByUser, "not today")
			w.want(w.call("double", `{"number":"many"}`), domain.InvalidInput, "Invalid tool input")
		})
	}
}

// A call that was offered before a file of its tool changed runs neither form: it is stale
// if the change was registered meanwhile, and fails if it was not. The next turn runs the
// new form. Each language is changed in its program.
func TestChangedToolIsStaleAndRunsInTheNextTurn(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, domain.Application)
			l.write(t, w, "2")
			before := w.offer()
			l.write(t, w, "3")
			w.want(w.settle(t.Context(), before, "double", `{"number":2}`), domain.Failed, "changed after it was offered")
			w.refresh()
			w.want(w.settle(t.Context(), before, "double", `{"number":2}`), domain.Stale, "Stale tool call: double")
			var s domain.Settlement
			w.answering(func() { s = w.call("double", `{"number":2}`) }, permission.Once)
			w.want(s, domain.Succeeded, `"doubled":6`)
		})
	}
}

// A call that runs while its tool changes ends as the generation with which it began.
func TestRunningCallKeepsItsGeneration(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, domain.Application)
			l.write(t, w, "2")
			m := w.offer()
			ended := make(chan domain.Settlement, 1)
			go func() { ended <- w.settle(t.Context(), m, "double", `{"number":2}`) }()
			question := <-w.person
			l.write(t, w, "3")
			w.refresh()
			question.reply(permission.Once, "")
			w.want(<-ended, domain.Succeeded, `"doubled":4`)
		})
	}
}
