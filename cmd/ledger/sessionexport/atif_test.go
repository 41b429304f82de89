package sessionexport

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/timeline"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

// A readStep is a step as another program reads it.
type readStep struct {
	StepID    int `json:"step_id"`
	Source    string
	Message   json.RawMessage
	ToolCalls []atifCall `json:"tool_calls"`
	Extra     struct {
		AddedCalls []atifCall `json:"added_calls"`
	}
}

func init() {
	callsIn[ATIF] = func(t *testing.T, text string) (found []string) {
		var d struct {
			SchemaVersion string `json:"schema_version"`
			Steps         []readStep
			FinalMetrics  struct {
				TotalSteps int `json:"total_steps"`
			} `json:"final_metrics"`
		}
		if err := json.Unmarshal([]byte(text), &d); err != nil || d.SchemaVersion != "ATIF-v1.8" || d.FinalMetrics.TotalSteps != len(d.Steps) {
			t.Fatalf("not a document: %v\n%.300s", err, text)
		}
		for i, step := range d.Steps {
			if step.StepID != i+1 || step.Message == nil {
				t.Fatalf("step %d has the ID %d and the message %s", i+1, step.StepID, step.Message)
			}
			for _, c := range append(step.ToolCalls, step.Extra.AddedCalls...) {
				found = append(found, fmt.Sprint(c.Name, " ", c.ID, " ", c.Extra.Outcome))
			}
		}
		return found
	}
}

// A replayed is a reply with the prompts before it.
type replayed struct {
	prompts []string
	text    string
	calls   []string
}

// replay returns the replies of a script, each as the runner receives it.
func replay(t *testing.T, s *script.Script, c conversation.State) (all []replayed) {
	t.Helper()
	for n := range s.Len() {
		c.Replies = n
		r := replayed{prompts: s.Prompts(n)}
		for part, err := range s.Reply(t.Context(), runner.Turn{Conversation: &c}) {
			if err != nil {
				t.Fatal(err)
			}
			switch p := part.(type) {
			case runner.TextPart:
				r.text = string(p)
			case runner.CallPart:
				r.calls = append(r.calls, fmt.Sprintf("%s %s %s", p.ID, p.Name, p.Input))
			}
		}
		all = append(all, r)
	}
	return all
}

// recorded returns the replies of a session as a script has them: one that follows a reply
// without calls, and no prompt, continues it.
func recorded(t *testing.T, from Source, s calls.Session) (all []replayed) {
	t.Helper()
	var prompts []string
	for e, err := range timeline.Read(t.Context(), from.Ledger, s.ID, s.Revision) {
		if err != nil {
			t.Fatal(err)
		}
		switch v := e.Event.(type) {
		case events.PromptAdmitted:
			prompts = append(prompts, v.Text)
		case events.ReplyReceived:
			r := replayed{prompts: prompts, text: v.Text}
			for _, c := range v.Calls {
				r.calls = append(r.calls, fmt.Sprintf("%s %s %s", c.ID, c.Name, c.Input))
			}
			if n := len(all); n > 0 && len(prompts) == 0 && len(all[n-1].calls) == 0 {
				all[n-1].text, all[n-1].calls = strings.TrimPrefix(all[n-1].text+"\n\n"+r.text, "\n\n"), r.calls
			} else {
				all = append(all, r)
			}
			prompts = nil
		}
	}
	return all
}

// The script provider replays an exported session: the same prompts, texts and calls, also
// in its subsessions.
func TestAnATIFExportIsReplayed(t *testing.T) {
	t.Parallel()
	replies, below := 0, 0
	for seed := range uint64(8) {
		from, sessions := source(t, projectionstest.History(seed, 400))
		for _, s := range sessions {
			if s.Replies == 0 {
				continue
			}
			text := export1(t, from, s, Options{Format: ATIF})
			parsed, err := script.Parse("export", strings.NewReader(text))
			if err != nil {
				t.Fatalf("seed %d, session %s: %v\n%s", seed, s.ID, err, text)
			}
			got, want := replay(t, parsed, conversation.State{Session: s.ID}), recorded(t, from, s)
			if !slices.EqualFunc(got, want, func(a, b replayed) bool {
				return slices.Equal(a.prompts, b.prompts) && a.text == b.text && slices.Equal(a.calls, b.calls)
			}) {
				t.Fatalf("seed %d, session %s is replayed as\n%q, want\n%q", seed, s.ID, got, want)
			}
			replies += len(got)
			children, err := (&export{ctx: t.Context(), from: from}).subsessionsOf(s)
			if err != nil {
				t.Fatal(err)
			}
			for key, child := range children {
				c := conversation.State{Session: child.ID}
				c.Parent, c.ParentCall = s.ID, key.call
				_ = replay(t, parsed, conversation.State{Session: s.ID})
				for _, err := range parsed.Reply(t.Context(), runner.Turn{Conversation: &c}) {
					if err != nil {
						t.Fatalf("seed %d: the subsession %s of %s is not replayed: %v", seed, child.ID, s.ID, err)
					}
				}
				below++
			}
		}
	}
	if replies < 50 || below == 0 {
		t.Errorf("the histories have %d replies and %d subsessions", replies, below)
	}
}

// subsessionsOf returns the subsessions of a session.
func (e *export) subsessionsOf(s calls.Session) (map[callKey]calls.Session, error) {
	found, _, err := e.subsessions(session{Session: s})
	return found, err
}

// Results, images and tokens are in the document.
func TestAnATIFExportHasResults(t *testing.T) {
	t.Parallel()
	from, sessions := source(t, secretSession())
	text := export1(t, from, sessions[0], Options{Format: ATIF, Redactor: redaction.New()})
	for _, want := range []string{
		`"observation":{"results":[{"source_call_id":"call_1","content":[{"type":"text","text":"<[hidden: github-token 1]>"},{"type":"text","text":"[<[hidden: github-token 1]> text/x, 0 B]\n"}]}`,
		`"reasoning_content":"<[hidden: github-token 1]>"`, `"outcome":"failed"`, `"hidden":[{"rule":"github-token"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document does not have %s:\n%s", want, text)
		}
	}
	image := domain.Media{MIME: "image/png", Data: []byte("x")}
	if got := withoutFiles(domain.Contents{image}); len(got) != 1 || got[0].(domain.Media).MIME != "image/png" {
		t.Errorf("without files an image is %v", got)
	}
	if got := message("a", domain.Contents{image, domain.Media{MIME: "text/x"}}); len(got.([]atifPart)) != 2 {
		t.Errorf("the message is %v", got)
	}
}
