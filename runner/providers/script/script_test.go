package script_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

const trajectory = `{
 "schema_version": "ATIF-v1.4",
 "agent": {"name": "build", "version": "1", "model_name": "m-1"},
 "steps": [
  {"step_id": 1, "source": "system", "message": "be good"},
  {"step_id": 2, "source": "user", "message": "list, then stop"},
  {"step_id": 3, "source": "agent", "message": "I will", "tool_calls": [
    {"tool_call_id": "a", "function_name": "glob", "arguments": {"pattern": "*"}},
    {"tool_call_id": "b", "function_name": "grep", "arguments": {"pattern": "x"}}],
   "observation": {"results": [{"source_call_id": "a", "content": "not used"}]}},
  {"step_id": 4, "source": "agent", "message": "one"},
  {"step_id": 5, "source": "agent", "message": [{"type": "text", "text": "two"}], "model_name": "m-2"},
  {"step_id": 6, "source": "user", "message": "more"},
  {"step_id": 7, "source": "agent", "message": "three"}
 ]}`

func parse(t *testing.T, text string) *script.Script {
	t.Helper()
	s, err := script.Parse("t.json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// session returns a conversation with n replies.
func session(n int) *conversation.State {
	s := &conversation.State{Replies: n}
	for range n {
		s.Messages = append(s.Messages, conversation.Message{Prompt: &conversation.Prompt{}}, conversation.Message{Reply: &conversation.Reply{}})
	}
	return s
}

func reply(t *testing.T, s *script.Script, n int) (parts []runner.Part, err error) {
	t.Helper()
	for part, err := range s.Reply(t.Context(), runner.Turn{Conversation: session(n)}) {
		if err != nil {
			return parts, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func TestASessionIsGivenTheReplyThatFollowsItsOwn(t *testing.T) {
	t.Parallel()
	s := parse(t, trajectory)
	first, err := reply(t, s, 0)
	if err != nil || len(first) != 4 || first[0] != runner.TextPart("I will") {
		t.Fatalf("reply 0 = %v, %v; want a text, two calls and a finish", first, err)
	}
	if c := first[2].(runner.CallPart); c.ID != "b" || c.Name != "grep" || string(c.Input) != `{"pattern": "x"}` {
		t.Fatalf("second call = %+v, want b as the document has it", domain.Call(c))
	}
	second, err := reply(t, s, 1)
	if err != nil || second[0] != runner.TextPart("one\n\ntwo") {
		t.Fatalf("reply 1 = %v, %v; want the two texts as one", second, err)
	}
	if _, err := reply(t, s, 3); !errors.Is(err, script.ErrExhausted) {
		t.Fatalf("reply 3 = %v, want ErrOver", err)
	}
}

func TestPromptsComeBeforeTheirReply(t *testing.T) {
	t.Parallel()
	s := parse(t, trajectory)
	want := [][]string{{"list, then stop"}, nil, {"more"}, nil}
	for n := range want {
		if got := s.Prompts(n); !slices.Equal(got, want[n]) {
			t.Errorf("Prompts(%d) = %q, want %q", n, got, want[n])
		}
	}
	if s.Len() != 3 || s.Model() != "m-1" {
		t.Fatalf("script = %d replies on %s, want 3 on m-1", s.Len(), s.Model())
	}
}

func TestPromptsBehindTheLastReplyAreNotLost(t *testing.T) {
	t.Parallel()
	s := parse(t, "\ufeff"+`{"schema_version":"ATIF-v1.0","agent":{},"steps":[{"source":"agent","message":"hi"},{"source":"user","message":"and now?"}]}`)
	if got := s.Prompts(s.Len()); !slices.Equal(got, []string{"and now?"}) || s.Prompts(s.Len()+1) != nil {
		t.Fatalf("Prompts behind the last reply = %q, want the one", got)
	}
}

func TestADocumentThatIsNoTrajectoryIsRefusedWithThePlace(t *testing.T) {
	t.Parallel()
	head := `{"schema_version":"ATIF-v1.7","agent":{"name":"a"},"steps":[`
	for want, text := range map[string]string{
		"line 2":                     "{\n\"schema_version\" \"x\"}",
		"schema_version is \"\"":     `{}`,
		"ATIF-v2.0":                  `{"schema_version":"ATIF-v2.0","steps":[]}`,
		"no step has the source":     head + `{"source":"user","message":"x"}]}`,
		"step 1: call 1 has no tool": head + `{"source":"agent","message":"","tool_calls":[{"function_name":"x"}]}]}`,
		"has no function_name":       head + `{"source":"agent","tool_calls":[{"tool_call_id":"x"}]}]}`,
		"of another call":            head + `{"source":"agent","tool_calls":[{"tool_call_id":"x","function_name":"f"},{"tool_call_id":"x","function_name":"f"}]}]}`,
		"step 2: source \"robot\"":   head + `{"source":"agent","message":"a"},{"source":"robot"}]}`,
		"unexpected end":             head,
		"step 1: message is neither": head + `{"source":"user","message":5},{"source":"agent","message":"a"}]}`,
		"step 2: message is neither": head + `{"source":"user","message":"x"},{"source":"agent","message":{"text":"a"}}]}`,
		"line 1: steps.tool_calls.tool_call_id is of the JSON type number": head + `{"source":"agent","tool_calls":[{"tool_call_id":1}]}]}`,
		"the document is of the JSON type array":                           `[]`,
	} {
		_, err := script.Parse("t.json", strings.NewReader(text))
		if !errors.Is(err, script.ErrNotATIF) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "t.json") {
			t.Errorf("Parse(%s) = %v, want ErrNotATIF with %q and the file", text, err, want)
		}
	}
}

// TestRealTrajectories reads files of other programs.
func TestRealTrajectories(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("LEDGER_TRANSCRIPTS")
	if folder == "" {
		folder = "../../../../shared/transcripts"
	}
	files, _ := filepath.Glob(filepath.Join(folder, "atif", "*.json"))
	if len(files) == 0 {
		t.Skipf("no trajectories in %s: set LEDGER_TRANSCRIPTS", folder)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := script.Parse(name, f); err != nil || s.Len() == 0 {
			t.Errorf("Parse(%s) = %v", filepath.Base(name), err)
		}
		f.Close()
	}
}

func FuzzParse(f *testing.F) {
	f.Add(trajectory)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := script.Parse("t.json", strings.NewReader(text))
		if (s == nil) == (err == nil) {
			t.Fatalf("Parse = %v, %v; want one of the two", s, err)
		}
	})
}
