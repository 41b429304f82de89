package mcp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp"
)

// A server that does not come up is a refusal with its name and the reason, and costs no
// other server.
func TestServerThatDoesNotStartCostsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{
		"a":       process("sdk"),
		"absent":  entry{"command": "no-such-program-anywhere"},
		"exits":   process("exit"),
		"hangs":   process("silent").with("startup_timeout", "300ms"),
		"listed":  process("dielist"),
		"noisy":   process("noise"),
		"closed":  entry{"url": "http://127.0.0.1:1/mcp"},
		"refuses": process("refuses"), "ancient": process("ancient"), "vast": process("vast"), "blank": process("blank"),
		"nolist": process("nolist"), "vastlist": process("vastlist"), "tasklist": process("tasklist"), "absentlist": process("absentlist"),
	})
	w.want(w.call("a_echo", `{"text":"hi"}`), domain.Succeeded, "echo hi")
	w.wantRefusal("mcp server absent", "no-such-program-anywhere is not in PATH")
	w.wantRefusal("mcp server exits", "exit status 3", "cannot start with [redacted]")
	w.wantRefusal("mcp server hangs", "did not answer initialize", "300ms")
	w.wantRefusal("mcp server listed", "exit status 9")
	w.wantRefusal("mcp server noisy", "1000 lines in a row")
	w.wantRefusal("mcp server closed", "connection refused")
	w.wantRefusal("mcp server refuses", "no [redacted]")
	w.wantRefusal("mcp server ancient", "1999-01-01")
	w.wantRefusal("mcp server vast", "over the limit of 16777216 bytes")
	w.wantRefusal("mcp server blank")
	w.wantRefusal("mcp server nolist", "no list of tools")
	w.wantRefusal("mcp server absentlist", "no list of tools")
	w.wantRefusal("mcp server tasklist", `resultType "task"`)
	w.wantRefusal("mcp server vastlist", "over the limit of 16777216 bytes")
}

// An old server that ignores server/discover is initialized in the older protocol.
func TestServerThatIgnoresDiscoverIsInitialized(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("mute")})
	w.want(w.call("a_twice", `{}`), domain.Succeeded, "first")
}

// A list of tools without end, too long or with broken definitions gives the good tools and
// a reason for each other one.
func TestBrokenListsGiveTheirGoodTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("names"), "m": process("many"), "p": process("pages"), "c": process("cursor")})
	got := names(w.offer())
	count := func(prefix string) (n int) {
		for _, name := range got {
			if strings.HasPrefix(name, prefix) {
				n++
			}
		}
		return n
	}
	if count("m_") != mcp.MaxTools || !slices.Contains(got, "m_t0000") || slices.Contains(got, "m_t0200") {
		t.Errorf("%d tools of m, want the first %d", count("m_"), mcp.MaxTools)
	}
	if a := count("a_"); a != 1 || !slices.Contains(got, "a_good") {
		t.Errorf("offered %v of a, want a_good", got)
	}
	if count("p_") != 100 || count("c_") != 2 {
		t.Errorf("%d and %d tools of p and c, want 100 and 2", count("p_"), count("c_"))
	}
	for _, texts := range [][]string{
		{"m_t0200", "more than 200 tools"}, {"tools of mcp server m", "1750 more tools"},
		{"tools of mcp server p", "does not end after 100 pages"}, {"tools of mcp server c", "repeats the cursor"},
		{"a_good", "two tools of this name"}, {"a_with.dot", "not a letter"}, {"a_with space", "not a letter"}, {"a_bash", "reserved"},
		{"a tool without a definition", "no definition"}, {"a_noschema", "inputSchema is missing"}, {"a_nullschema", "no JSON Schema"},
		{"a_array", "no JSON Schema"}, {"a_text", `"type": "object"`}, {"a_regex", "chema"}, {"a_remote", "chema"},
		{"a_big", "over the limit of 262144"}, {"a_output", "outputSchema is no JSON Schema"}, {"a_talk", "description is over"}, {"a_annotated", "annotations are broken"},
		{"a_[redacted]", "not a letter"}, {"a_background", "starts a task"},
	} {
		w.wantRefusal(texts...)
	}
}

// The configuration chooses among the tools of a server.
func TestConfigurationChoosesTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("sdk").with("tools", map[string][]string{"allow": {"e*", "count"}, "deny": {"environ"}})})
	w.wantOffered("a_count", "a_echo")
}

// Two servers that make one name: the tool of one is refused, and the others are offered.
func TestNameOfTwoServersIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("pair"), "a_b": process("pair")})
	w.wantOffered("a_b_c", "a_c", "a_b_b_c")
	w.wantRefusal("a_b_c", "a tool of the name a_b_c", "rename")
}

// A list that changes: a changed tool has a new registration before the old one is closed,
// an unchanged tool keeps its registration, and a call of an old one is stale.
func TestChangedListIsAppliedMakeBeforeBreak(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"sdk", "old"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]entry{"a": process(era)})
			before := w.offer()
			w.want(w.settle(t.Context(), before, "a_change", `{"text":"twice"}`), domain.Succeeded, "changed")
			after := w.offer()
			for !slices.Contains(names(after), "a_extra") && t.Context().Err() == nil {
				after = w.offer() // the notification may come after the answer
			}
			if got := names(after); !slices.Contains(got, "a_extra") || slices.Contains(got, "a_echo") {
				t.Fatalf("offered %v, want a_extra and no a_echo", got)
			}
			for _, name := range []string{"a_die", "a_media"} {
				old, _ := before.Offer().Find(name)
				kept, _ := after.Offer().Find(name)
				if old != kept {
					t.Errorf("%s has the registration %v, want the old one %v", name, kept, old)
				}
			}
			w.want(w.settle(t.Context(), before, "a_count", `{"text":"four"}`), domain.Stale)
			w.want(w.settle(t.Context(), after, "a_count", `{"text":"four"}`), domain.Succeeded, `{"count":-4}`)
			w.want(w.settle(t.Context(), after, "a_extra", `{}`), domain.Succeeded, "new")
		})
	}
}
