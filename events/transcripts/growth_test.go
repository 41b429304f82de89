package transcripts_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// randomFile draws a file whose records share a few IDs, so that replies are split
// and interleaved, calls and results repeated, and sub-agents interleaved. The call
// of a result is in an earlier line or absent.
func randomFile(t *rapid.T) []byte {
	var all bytes.Buffer
	pick := func(what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }
	asked, inner := []string{"gone"}, map[string]bool{} // inner: the records of sub-agents so far, by uuid
	for n := range rapid.IntRange(1, 18).Draw(t, "lines") {
		head := pick("uuid", "", fmt.Sprintf(`"uuid":"u%d",`, n), `"uuid":"u1",`) +
			pick("time", "", fmt.Sprintf(`"timestamp":"2026-03-01T10:00:%02dZ",`, n), `"timestamp":"2026-03-01T09:00:00Z",`) +
			pick("session", "", `"sessionId":"s",`, `"sessionId":"r",`) +
			pick("setting", "", "", `"gitBranch":"main",`, `"gitBranch":"try",`, `"cwd":"/a",`, `"cwd":"/b",`) +
			pick("chain", "", "", "", `"isSidechain":true,`, `"isSidechain":true,"agentId":"a",`, `"isSidechain":true,"parentUuid":"u1",`)
		switch pick("kind", "prompt", "stop", "text", "call", "call", "result", "result", "progress", "torn", "other", "agent", "agent", "hook", "mode", "meta", "command", "compacted", "thought", "fork") {
		case "prompt":
			fmt.Fprintf(&all, `{"type":"user",%s"message":{"content":"%d"}}`, head, n%3)
		case "stop":
			fmt.Fprintf(&all, `{"type":"user",%s"message":{"content":"[Request interrupted by user]"}}`, head)
		case "text":
			fmt.Fprintf(&all, `{"type":"assistant",%s"message":{%s"usage":{"output_tokens":%d},"content":"%d"}}`,
				head, pick("message", "", `"id":"m",`, `"id":"n",`), n, n%4)
		case "call":
			id := pick("call", "c", "d", "e")
			asked = append(asked, id)
			fmt.Fprintf(&all, `{"type":"assistant",%s"message":{%s"content":[{"type":"tool_use","id":"%s","name":"%s","input":{"<":%d}}]}}`,
				head, pick("message", "", `"id":"m",`, `"id":"n",`), id, pick("tool", "Bash", "Read", "no name"), n%2)
		case "result":
			fmt.Fprintf(&all, `{"type":"user",%s"message":{"content":[{"type":"tool_result","tool_use_id":"%s",%s"content":"%s"}]}}`,
				head, pick("of", asked...), pick("error", "", `"is_error":true,`), pick("words", "x", "[Request interrupted by user]", "Permission to use x denied"))
		case "progress":
			fmt.Fprintf(&all, `{"type":"progress",%s"toolUseID":"%s","data":{"type":"bash_progress"}}`, head, pick("of", asked...))
		case "torn":
			all.WriteString(`{"type":"user","message":{"content":"`)
		case "agent":
			id := pick("call", "c", "d", "e")
			record := pick("inner", fmt.Sprintf(`{"type":"assistant","uuid":"i%d","message":{"id":"im","content":[{"type":"tool_use","id":"%s","name":"Read"}]}}`, n%4, id),
				fmt.Sprintf(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"%s","content":"y"}]}}`, pick("of", asked...)),
				`{"type":"user","uuid":"i9","message":{"content":"count"}}`)
			if strings.Contains(record, "tool_use\"") {
				// A repeated record is ignored, so a result could be before its call.
				if uuid := fmt.Sprint(n % 4); !inner[uuid] {
					inner[uuid] = true
					asked = append(asked, id)
				}
			}
			fmt.Fprintf(&all, `{"type":"progress",%s"parentToolUseID":"%s","data":{"type":"agent_progress","agentId":"%s","message":%s}}`, head, pick("spawner", asked...), pick("agent", "a", "b"), record)
		case "hook":
			fmt.Fprintf(&all, `{"type":"progress",%s"toolUseID":"%s","data":{"type":"hook_progress","hookEvent":"%s","command":"x"}}`, head, pick("of", asked...), pick("hook", "PreToolUse", "PostToolUse"))
		case "mode":
			fmt.Fprintf(&all, `{"type":"permission-mode",%s"permissionMode":"%s"}`, head, pick("mode", "plan", "default"))
		case "meta":
			fmt.Fprintf(&all, `{"type":"user",%s"isMeta":true,"message":{"content":"<system-reminder>%d</system-reminder>"}}`, head, n%3)
		case "command":
			fmt.Fprintf(&all, `{"type":"user",%s"message":{"content":"<command-name>/x</command-name> hello"}}`, head)
		case "compacted":
			fmt.Fprintf(&all, `{"type":"system",%s"subtype":"compact_boundary"}`, head)
		case "thought":
			fmt.Fprintf(&all, `{"type":"assistant",%s"message":{"id":"m","content":[{"type":"thinking","thinking":"%d"}]}}`, head, n%4)
		case "fork":
			fmt.Fprintf(&all, `{"type":"user",%s"forkedFrom":{"sessionId":"s","messageUuid":"u%d"},"message":{"content":"%d"}}`, head, n%5, n%3)
		default:
			fmt.Fprintf(&all, `{"type":"summary",%s"summary":"x"}`, head)
		}
		all.WriteString("\n")
	}
	return all.Bytes()
}

// TestMain has rapid draw fewer files than its default of 100, unless the environment
// sets LEDGER_TEST_LONG or the command line a number.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(repeats(30, 100))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Random files, imported repeatedly while they grow, give the content of one import.
func TestRandomFilesGrowToTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// The first line makes the file one of the format.
		data := append([]byte(`{"type":"summary","summary":"x"}`+"\n"), randomFile(t)...)
		l := newLedger()
		importAll(t, l, data)
		wantCounts(t, factsOf(t, l), readFile(t, data).Report)
		grow(t, data, rapid.IntRange(repeats(4, 1), 9).Draw(t, "stride"))
	})
}

// An orphan result that an import recorded stays on record when a longer file has its
// call; the call is settled by an event of its own.
func TestAnOrphanWhoseCallComesLaterStaysOnRecord(t *testing.T) {
	t.Parallel()
	rows := []string{
		`{"type":"user","uuid":"a","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]}}`,
		`{"type":"user","uuid":"b","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"2"}]}}`,
		`{"type":"assistant","uuid":"d","sessionId":"s","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}`,
	}
	l := newLedger()
	importAll(t, l, []byte(strings.Join(rows[:2], "\n")))
	whole := []byte(strings.Join(rows, "\n"))
	importAll(t, l, whole)
	f := factsOf(t, l)
	if len(f.Settled) != 2 || len(f.Asked) != 1 || f.Late != 2 {
		t.Errorf("%d settlements, %d calls, %d late results, want the orphan and its late one beside the call's", len(f.Settled), len(f.Asked), f.Late)
	}
	if added := importAll(t, l, whole); added != 0 {
		t.Errorf("importing again adds %d events, want 0", added)
	}
}

// repeats returns how often a test repeats: short, or long if the environment sets
// LEDGER_TEST_LONG.
func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}
