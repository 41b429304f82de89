package mcp_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// The results of a server reach the model: text, media, resources, links, structured
// content and failures, without secrets.
func TestResultsReachTheModel(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"sdk", "old"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			wantResults(newWorld(t, map[string]entry{"a": process(era)}), era)
		})
	}
}

// wantResults calls the tools of a server of the SDK.
func wantResults(w *world, era string) {
	w.want(w.call("a_echo", `{"text":"hi"}`), domain.Succeeded, "echo hi")
	w.want(w.call("a_count", `{"text":"four"}`), domain.Succeeded, `{"count":4}`)
	w.want(w.call("a_fail", `{"text":"grace"}`), domain.Failed, "it failed with grace [redacted]")
	w.want(w.call("a_media", `{}`), domain.Succeeded, "one\ntwo", "<image/png image 3>", "<audio/wav audio 4>", "[resource mem://a]\ninner", "<x/y mem://b 5>", "mem://c see")
	if era == "old" {
		w.want(w.call("a_roots", `{}`), domain.Succeeded, "file://"+w.project)
	}
	w.want(w.call("a_echo", `{"text":7}`), domain.InvalidInput, "/text")
	w.want(w.call("a_echo", `{"text":"x","other":1}`), domain.InvalidInput, "other")
}

// Whatever a server answers to a call, the call has one end that tells the truth about it,
// and the server serves the next call.
func TestEachAnswerHasItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("raw").with("timeout", "30s")})
	for _, row := range []struct {
		tool    string
		outcome domain.Outcome
		texts   []string
	}{
		{"twice", domain.Succeeded, []string{"first"}},
		{"late", domain.Succeeded, []string{"own"}},
		{"babble", domain.Succeeded, []string{"after the noise"}},
		{"flood", domain.Succeeded, []string{"after the flood"}},
		{"errs", domain.Succeeded, []string{"after the errors"}},
		{"pings", domain.Succeeded, []string{"pinged"}},
		{"panics", domain.Succeeded, []string{"still here"}},
		{"plain", domain.Succeeded, []string{"hologram", "does not know"}},
		{"task", domain.Failed, []string{"MCP server a", "started a task", "does not poll", "outcome is unknown"}},
		{"task25", domain.Failed, []string{"MCP server a", "started a task"}},
		{"tasked", domain.Failed, []string{"MCP server a", "started a task", "outcome is unknown"}},
		{"noresult", domain.Failed, []string{"MCP server a", "neither content nor structuredContent"}},
		{"error", domain.Failed, []string{"MCP server a", "answered with the error -32050: no [redacted]"}},
		{"again", domain.Failed, []string{"MCP server a", "it is busy"}},
		{"asks", domain.Failed, []string{"MCP server a", "asked for input more than 9 times"}},
		{"odd", domain.Failed, []string{"MCP server a", `resultType "partial" is unknown`}},
		{"strange", domain.Failed, []string{"MCP server a", "resultType is no string"}},
		{"dup", domain.Failed, []string{"MCP server a", "key occurs twice"}},
		{"empty", domain.Failed, []string{"MCP server a", "neither content nor structuredContent"}},
		{"null", domain.Failed, []string{"MCP server a", "no JSON object"}},
		{"nothing", domain.Failed, []string{"MCP server a", "no JSON object"}},
		{"text", domain.Failed, []string{"MCP server a", "/content"}},
		{"inputs", domain.Failed, []string{"MCP server a", "sampling/createMessage", "does not do"}},
		{"lies", domain.InvalidOutput, []string{"/n"}},
		{"forgets", domain.InvalidOutput, []string{"n"}},
		{"list", domain.Succeeded, []string{"[1,20000000000000000001]"}},
		{"beside", domain.Succeeded, []string{`{"n":1}`}},
		{"same", domain.Succeeded, []string{`{"value":"as text"}`}},
		{"picture", domain.Succeeded, []string{"<image/png image 3>"}},
		{"secret", domain.Succeeded, []string{"<[redacted]>"}},
	} {
		s := w.call("a_"+row.tool, `{}`)
		w.want(s, row.outcome, row.texts...)
		if (s.Lost > 0) != (row.tool == "beside") {
			t.Errorf("%s: %d bytes are reported as lost, want only those of the image beside a structured output", row.tool, s.Lost)
		}
	}
	if r := w.refusals(); len(r) > 0 {
		t.Errorf("refused %q, want none: the server has not ended", r)
	}
}

// A server that ends during a call ends the call with a defect that says so, and is
// started again.
func TestServerThatEndsInACallIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ mode, tool, next, reason string }{
		{"sdk", "die", "echo", "exit status 7"},
		{"old", "die", "echo", "exit status 7"},
		{"raw", "half", "twice", "exit status 0"},
		{"raw", "huge", "twice", "over the limit of 16777216 bytes"},
	} {
		t.Run(row.mode+row.tool, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]entry{"a": process(row.mode), "b": process("sdk")})
			m := w.offer()
			w.want(w.settle(t.Context(), m, "a_"+row.tool, `{}`), domain.Defective, "MCP server a ended during a call of "+row.tool, row.reason, "outcome of the call is unknown")
			w.want(w.settle(t.Context(), m, "a_"+row.next, `{"text":"x"}`), domain.Failed, "MCP server a is not running", "was not sent")
			w.want(w.settle(t.Context(), m, "b_echo", `{"text":"other"}`), domain.Succeeded, "echo other")
			w.want(w.call("a_"+row.next, `{"text":"x"}`), domain.Succeeded)
			w.wantRefusal("mcp server a: it ended and is started again", row.reason)
		})
	}
}

// What a server sent in vain is counted in the reason of its end.
func TestDroppedMessagesAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("raw")})
	m := w.offer()
	for _, name := range []string{"late", "twice", "babble", "panics"} {
		w.want(w.settle(t.Context(), m, "a_"+name, `{}`), domain.Succeeded)
	}
	w.want(w.settle(t.Context(), m, "a_half", `{}`), domain.Defective, "902 lines that are no messages", "3 answers without a request")
}

// A call without an answer ends at its timeout, and the server serves the next call.
func TestSilentCallEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("raw").with("timeout", "300ms")})
	w.want(w.call("a_hang", `{}`), domain.Failed, "MCP server a", "did not answer within 300ms", "cancelled", "outcome of the call is unknown")
	for _, broken := range []string{"a_cursed", "a_misshapen"} {
		w.want(w.call(broken, `{}`), domain.Failed, "MCP server a", "did not answer within 300ms", "lines that are no messages")
	}
	w.want(w.call("a_twice", `{}`), domain.Succeeded, "first")
}

// A server that floods its outputs without end ends its call at the timeout, and harms no
// call of another server.
func TestEndlessFloodEndsAtTheTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("raw").with("timeout", "300ms"), "b": process("sdk")})
	m := w.offer()
	w.want(w.settle(t.Context(), m, "a_endless", `{}`), domain.Failed, "MCP server a", "did not answer within 300ms")
	w.want(w.settle(t.Context(), m, "b_echo", `{"text":"other"}`), domain.Succeeded, "echo other")
	w.want(w.settle(t.Context(), m, "a_twice", `{}`), domain.Failed, "MCP server a")
}

// The last progress of a call that fails is on record, without secrets.
func TestProgressOfAFailedCallIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("raw")})
	s := w.call("a_steps", `{}`)
	w.want(s, domain.Failed, "stopped")
	if p := s.Progress; p == nil || p.Content.Text() != "half [redacted]" || string(p.Structured) != `{"progress":1,"total":2}` {
		t.Errorf("progress = %+v, want the message without the secret, and the numbers", p)
	}
}

// awaitFile waits until a server has written a file.
func awaitFile(t *testing.T, file string) {
	t.Helper()
	for t.Context().Err() == nil {
		if _, err := os.Stat(file); err == nil {
			return
		}
		runtime.Gosched()
	}
}

// An interruption ends a call at once, and the server learns of it.
func TestInterruptionReachesTheServer(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"sdk", "old"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]entry{"a": process(era)})
			m := w.offer()
			seen := filepath.Join(t.TempDir(), "seen")
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan domain.Settlement, 1)
			go func() { ended <- w.settle(ctx, m, "a_slow", `{"text":`+quoted(seen)+`}`) }()
			awaitFile(t, seen+".began")
			cancel(domain.ByUser)
			w.want(<-ended, domain.Interrupted)
			awaitFile(t, seen)
			w.want(w.settle(t.Context(), m, "a_echo", `{"text":"on"}`), domain.Succeeded, "echo on")
		})
	}
}

// The environment of a server has its configured variables and those that every command
// inherits, and no other.
func TestServerGetsNoOtherEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("sdk")})
	got := reads(w.call("a_environ", `{}`))
	if !strings.Contains(got, "MCP_TEST=sdk") || !strings.Contains(got, "PATH=") || strings.Contains(got, "UNRELATED_SECRET") {
		t.Errorf("environment = %q, want MCP_TEST and PATH, and no UNRELATED_SECRET", got)
	}
	if !strings.Contains(got, "TOKEN=[redacted]") {
		t.Errorf("environment = %q, want a redacted TOKEN", got)
	}
}
