package mcp_test

import (
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
