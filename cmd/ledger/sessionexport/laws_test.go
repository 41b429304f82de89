package sessionexport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// source returns a Source with the events of a history, and its sessions.
func source(t testing.TB, history []events.Envelope) (Source, []calls.Session) {
	t.Helper()
	store := eventstest.NewSlice()
	l := events.NewLedger(store, projectionstest.NewLog(3).Mint, time.Now)
	if err := projectionstest.Append(context.Background(), store, history); err != nil {
		t.Fatal(err)
	}
	state, p := calls.New(), calls.Projection()
	for _, v := range history {
		state = p.Apply(state, v)
	}
	all := state.Sessions()
	children := func(parent domain.SessionID) (below []calls.Session, _ error) {
		for _, s := range all {
			if s.Parent == parent {
				below = append(below, s)
			}
		}
		return below, nil
	}
	return Source{Ledger: l, Children: children}, all
}

// export returns a session in a format.
func export1(t testing.TB, from Source, s calls.Session, opts Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(context.Background(), &out, from, s, opts, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// callsIn has, for each format, the function that reads the calls of an export: for each
// its tool, its ID and its outcome.
var callsIn = map[Format]func(t *testing.T, text string) []string{
	JSONLines: func(t *testing.T, text string) (found []string) {
		for line := range strings.Lines(text) {
			var l struct {
				Calls []struct{ Tool, Call, Outcome string }
			}
			if json.Unmarshal([]byte(line), &l) != nil && strings.Contains(line, `"type":"entry"`) {
				t.Fatalf("not a line of JSON: %s", line)
			}
			for _, c := range l.Calls {
				found = append(found, c.Tool+" "+c.Call+" "+c.Outcome)
			}
		}
		return found
	},
	Markdown: func(_ *testing.T, text string) (found []string) {
		for _, m := range markdownCall.FindAllStringSubmatch(text, -1) {
			found = append(found, m[1]+" "+m[3]+" "+m[2])
		}
		return found
	},
}

// markdownCall matches the heading of a call and the field with its ID.
var markdownCall = regexp.MustCompile("(?m)^####* [-+][0-9.]+ s `call` `([^`]+)`: (\\w+)\n\n(?:- made by: .*\n)?- call: `([^`]+)`$")

// wantedCalls returns the calls of a session up to its revision, as its timeline has them.
func wantedCalls(t *testing.T, from Source, s calls.Session) (want []string) {
	t.Helper()
	for e, err := range timeline.Read(context.Background(), from.Ledger, s.ID, s.Revision) {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range e.Calls {
			want = append(want, c.Tool()+" "+string(c.Asked.ID)+" "+outcomeOf(c))
		}
	}
	slices.Sort(want)
	return want
}

func TestEachFormatHasEachCallOnceWithItsOutcome(t *testing.T) {
	t.Parallel()
	outcomes := map[string]bool{}
	for seed := range uint64(6) {
		history := projectionstest.History(seed, 300)
		from, sessions := source(t, history[:len(history)-40]) // some calls are open
		for _, s := range sessions {
			want := wantedCalls(t, from, s)
			for _, c := range want {
				outcomes[c[strings.LastIndexByte(c, ' ')+1:]] = true
			}
			for _, f := range Formats {
				text := export1(t, from, s, Options{Format: Format(f), Redactor: redaction.New()})
				got := callsIn[Format(f)](t, text)
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Fatalf("seed %d, session %s as %s has the calls\n%q, want\n%q", seed, s.ID, f, got, want)
				}
				if again := export1(t, from, s, Options{Format: Format(f), Redactor: redaction.New()}); again != text {
					t.Errorf("seed %d, session %s as %s has other bytes the second time", seed, s.ID, f)
				}
			}
		}
	}
	for _, o := range []string{"open", "lost", "succeeded", "stale", "denied", "interrupted"} {
		if !outcomes[o] {
			t.Errorf("no call of the histories is %s", o)
		}
	}
}

// secretToken is a secret that all rules of its kind find.
var secretToken = "ghp" + "_" + strings.Repeat("aZ4kQ9", 6)

// secretSession returns a history of one session with the secret in each text.
func secretSession() []events.Envelope {
	l := projectionstest.NewLog(1)
	id := l.Mint.Session()
	s := events.SessionStream(id)
	x := "<" + secretToken + ">"
	raw := json.RawMessage(`{"k":"` + x + `","password":"hunter2-` + `hunter2"}`)
	l.Add(s, events.SessionOpened{Session: id, Agent: "build", Location: "/home/adalovelace/" + x, Model: x, Origin: events.Origin{Kind: events.RunHere, Source: x}})
	l.Add(s, events.PromptAdmitted{Message: l.Mint.Message(), Text: x, Media: domain.Contents{domain.Text(x), domain.Media{MIME: "text/plain", Name: x, Data: []byte("x")}}})
	l.Add(s, events.SettingChanged{Setting: "location", Value: "/home/adalovelace"})
	l.Add(s, events.TextRecorded{Digest: strings.Repeat("ab", 32), Text: x})
	turn, message, permission := l.Mint.Turn(), l.Mint.Message(), l.Mint.Permission()
	offered := domain.Offered{Name: "bash", Registration: domain.RegistrationOf(l.Mint.Event()), Layer: l.Mint.Layer()}
	l.Add(s, events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Model: x, Provider: x, Client: x, Flags: []string{x}, Tools: []domain.Offered{offered},
		Hidden: []events.HiddenTool{{Offered: offered, Rule: domain.Rule{Action: "*", Resource: x, Effect: domain.Deny, Source: x}}}})
	l.Add(s, events.ReplyReceived{Turn: turn, Message: message, Text: x, Thinking: x, Model: x, Finish: x, Items: []events.ProviderItem{{Provider: x, Model: x, Data: raw}},
		Calls: []domain.Call{{ID: "call_1", Name: "bash", Input: raw}, {ID: "call_2", Name: "bash", Input: json.RawMessage(`"not an object ` + x + `"`)}}})
	l.Add(s, events.CallStarted{Turn: turn, Message: message, Call: "call_1", Tool: "bash", Offered: offered, Effective: offered, Input: raw, Title: x})
	l.Add(s, events.PermissionRequested{Permission: permission, Message: message, Call: "call_1", Agent: "build", Action: "bash", Resources: []string{x}, Save: []string{x}, Metadata: raw,
		Shown: domain.NewPreview(domain.PreviewDiff, "+"+x)})
	l.Add(s, events.PermissionDecided{Permission: permission, Effect: domain.Allow, By: events.ByPerson, Scope: "once", Feedback: x, Person: "adalovelace"})
	question := l.Mint.Permission()
	l.Add(s, events.QuestionAsked{Question: question, Message: message, Call: "call_1", Agent: "build", Questions: []domain.Question{{Question: x, Header: x, Options: []domain.QuestionOption{{Label: x, Description: x}}}}})
	l.Add(s, events.QuestionAnswered{Question: question, Answers: []events.AnsweredQuestion{{Chosen: []string{x}}}, By: events.ByPerson, Person: "adalovelace"})
	settlement := l.Add(s, events.CallSettled{Turn: turn, Message: message, Call: "call_1", Tool: "bash", Outcome: domain.Succeeded, Began: true, Detail: x, Input: raw, Structured: raw,
		Content: domain.Contents{domain.Text(x), domain.Media{MIME: "text/x", Name: x}}, Files: []domain.FileAccess{{Path: "/home/adalovelace/x", Access: domain.FileRead}}, Offered: offered, Effective: offered,
		Allowed: []domain.Rule{{Action: "bash", Resource: x, Effect: domain.Allow, Source: "/home/adalovelace/rules:1"}}})
	l.Add(s, events.LateResultObserved{Message: message, Call: "call_1", Tool: "bash", Settlement: settlement.ID, Outcome: domain.Failed, Text: x, Structured: raw})
	l.Add(s, events.CallSettled{Turn: turn, Message: message, Call: "call_2", Tool: "bash", Outcome: domain.Failed, Text: x, Detail: x, Progress: &domain.Progress{Structured: raw, Content: domain.Contents{domain.Text(x)}}})
	l.Add(s, events.ContextAdded{Source: "hook", Text: x})
	l.Add(s, events.CommandRan{By: events.ByUser, Name: "!", Command: x, Output: x})
	l.Add(s, events.ContextCompacted{Trigger: "auto", Summary: x, Detail: x})
	l.Add(s, events.ProviderFailed{Detail: x, Request: x})
	l.Add(s, events.ReplyRefused{Turn: turn, Message: message, Reason: x, Text: x, Thinking: x, Calls: []domain.Call{{ID: "z", Name: x, Input: raw}}})
	l.Add(s, events.TodosReplaced{Message: message, Call: "call_1", Todos: []domain.Todo{{Content: x, Status: "pending", Priority: "high"}}})
	l.Add(s, events.ApprovalSaved{Permission: permission, Location: "/home/adalovelace", Action: "bash", Resource: x, Person: "adalovelace"})
	l.Add(s, events.Unknown{Name: "WeatherChanged", Version: 2, Data: raw})
	l.Add(s, events.SessionInterrupted{Reason: domain.ByUser, Detail: x})
	return l.Envelopes()
}

func TestNoFormatHasASecret(t *testing.T) {
	t.Parallel()
	from, sessions := source(t, secretSession())
	secrets := []string{secretToken, "hunter2", "adalovelace"}
	for _, f := range Formats {
		for _, full := range []bool{false, true} {
			text := export1(t, from, sessions[0], Options{Format: Format(f), Full: full, Redactor: redaction.New()})
			for _, secret := range secrets {
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("%s has the secret %s: …%s", f, secret, text[max(0, i-200):i+20])
				}
			}
			if !strings.Contains(text, "[hidden: github-token 1]") {
				t.Errorf("%s has no mark", f)
			}
			raw := export1(t, from, sessions[0], Options{Format: Format(f), Full: full})
			if !strings.Contains(raw, secretToken) || !strings.Contains(raw, "hunter2") && (full || f != string(OTLP)) || strings.Contains(raw, "[hidden: ") {
				t.Errorf("%s with nothing hidden does not have the texts as they are", f)
			}
		}
	}
}

// A failing writer ends each format with its error.
func TestAWriteErrorIsReturned(t *testing.T) {
	t.Parallel()
	from, sessions := source(t, secretSession())
	for _, f := range Formats {
		err := Write(t.Context(), failing{}, from, sessions[0], Options{Format: Format(f)}, nil)
		if !errors.Is(err, io.ErrShortWrite) || !strings.Contains(err.Error(), sessions[0].ID.String()) {
			t.Errorf("%s to a failing writer returns %v", f, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Write(ctx, io.Discard, from, sessions[0], Options{Format: Format(f)}, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context returns %v", f, err)
		}
	}
	if err := Write(t.Context(), io.Discard, from, sessions[0], Options{Format: "pdf"}, nil); err == nil {
		t.Error("an unknown format is written")
	}
}

// failing is a writer that always fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// Fences are longer than the runs of backticks in the text, and code spans too.
func TestMarkdownTextsEndNoFence(t *testing.T) {
	t.Parallel()
	l := projectionstest.NewLog(1)
	id := l.Mint.Session()
	l.Add(events.SessionStream(id), events.SessionOpened{Session: id, Agent: "`a``", Origin: events.Origin{Kind: events.RunHere}})
	l.Add(events.SessionStream(id), events.PromptAdmitted{Message: l.Mint.Message(), Text: "````\n# heading\n`````x\n\x1b[31m\u202e"})
	from, sessions := source(t, l.Envelopes())
	text := export1(t, from, sessions[0], Options{Format: Markdown})
	want := "``````text\n````\n# heading\n`````x\n␛[31m\ufffd\n``````\n"
	if !strings.Contains(text, want) || !strings.Contains(text, "- agent: ``` `a`` ```\n") {
		t.Errorf("the page is\n%s", text)
	}
}

// Large texts are cut with the number of bytes left out, unless the page is to be full.
func TestLargeTextsAreBoundedUnlessFull(t *testing.T) {
	t.Parallel()
	l := projectionstest.NewLog(1)
	id := l.Mint.Session()
	l.Add(events.SessionStream(id), events.SessionOpened{Session: id, Agent: "a", Origin: events.Origin{Kind: events.RunHere}})
	l.Add(events.SessionStream(id), events.PromptAdmitted{Message: l.Mint.Message(), Text: strings.Repeat("é", 20_000)})
	from, sessions := source(t, l.Envelopes())
	b := &pageBuilder{session: session{Session: sessions[0]}}
	var it item
	b.text(&it, "x", strings.Repeat("é", 20_000))
	b.full = true
	b.text(&it, "x", strings.Repeat("é", 20_000))
	if len(it.Blocks[0].Text) != maxText || it.Blocks[0].More != 40_000-maxText || it.Blocks[1].More != 0 || len(it.Blocks[1].Text) != 40_000 {
		t.Errorf("the blocks have %d and %d bytes", len(it.Blocks[0].Text), len(it.Blocks[1].Text))
	}
	if text := export1(t, from, sessions[0], Options{Format: Markdown}); !strings.Contains(text, fmt.Sprintf("\n%d more bytes\n", 40_000-maxText)) {
		t.Error("the page does not say what it leaves out")
	}
}
