package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// maxEvent bounds the bytes of an event with a text and a value within the default
// limits.
const maxEvent = 256 << 10

// checkEvent fails the test if an event of the session has more than maxEvent bytes.
func (w *world) checkEvent() {
	w.t.Helper()
	for _, v := range w.read(w.session()) {
		r, err := events.Encode(events.Draft{ID: v.ID, Event: v.Event})
		if err != nil {
			w.t.Fatal(err)
		}
		if _, asked := v.Event.(events.ReplyReceived); !asked && len(r.Data) > maxEvent {
			w.t.Errorf("%s has %d bytes, want at most %d", v.Event.Kind(), len(r.Data), maxEvent)
		}
	}
}

func fails(t testing.TB, err error) domain.Tool {
	t.Helper()
	return does(t, func(context.Context, empty, domain.Invocation) (string, error) { return "", err })
}

const mega = 1 << 20

// unknownKeys returns an input with n keys that no schema has.
func unknownKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"key_%d":%d`, i, i)
	}
	return "{" + strings.Join(keys, ",") + "}"
}

// The text of every unsuccessful end is within the limits, whether it comes from a
// tool, a hook, a codec or the model.
func TestTextThatStandsForAnOutputIsBounded(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", mega)
	lines := strings.Repeat("\n", 3000)
	for name, c := range map[string]struct {
		tool        domain.Tool
		call, input string
		want        domain.Outcome
		reads       []string // parts of the text that the model reads
		kept        string   // whole, in the outputs; empty: nothing
	}{
		"unknown tool":      {nil0, huge, `{}`, domain.UnknownTool, []string{"Unknown tool: xxx", "(1048576 bytes)"}, ""},
		"invalid input":     {answers(t, "a").Tool, "a", unknownKeys(20000), domain.InvalidInput, []string{"Invalid tool input: ", "Rewrite the input"}, ""},
		"input of one text": {answers(t, "a").Tool, "a", `{"` + huge + `":1}`, domain.InvalidInput, []string{"Invalid tool input: ", "Rewrite the input"}, ""},
		"failure":           {fails(t, domain.Fail("%s", huge)), "a", `{}`, domain.Failed, []string{"xxx", "full output at output://"}, huge},
		"failure of lines":  {fails(t, domain.Fail("a%sb", lines)), "a", `{}`, domain.Failed, []string{"a\n", "\nb", "3001 lines"}, "a" + lines + "b"},
		"defect":            {fails(t, errors.New(huge)), "a", `{}`, domain.Defective, []string{"Tool execution failed: xxx", "full output at"}, "Tool execution failed: " + huge},
		"panic": {does(t, func(context.Context, empty, domain.Invocation) (string, error) { panic(huge) }), "a", `{}`, domain.Defective,
			[]string{"Tool execution failed: xxx", "full output at"}, "Tool execution failed: " + huge},
		"invalid output": {made(t, domain.Spec[empty, map[string]int]{
			Output: refusing{},
			Execute: func(context.Context, empty, domain.Invocation) (map[string]int, error) {
				return nil, nil
			},
		}), "a", `{}`, domain.InvalidOutput, []string{"Tool returned an invalid value", "full output at"}, "Tool returned an invalid value for its output schema: " + unwieldy},
		"denied":   {fails(t, &domain.Denied{Action: "bash", Resource: huge, Rule: deny("bash", huge)}), "a", `{}`, domain.DeniedByRule, []string{"Permission denied: bash xxx", "left out here"}, ""},
		"declined": {fails(t, &domain.Declined{Feedback: huge}), "a", `{}`, domain.DeclinedByUser, []string{"xxx", "left out here"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.application()
			if !c.tool.IsZero() {
				w.register(l, registry.Tools{"a": c.tool})
			}
			m := w.materialize(w.registry(registry.Config{}, l))
			w.take(m, ask("c", c.call, c.input))
			got := w.settle(m, "c", c.call, c.input)
			text := got.ToolResult().Error
			if got.Outcome != c.want || len(text) > 51200 || strings.Count(text, "\n") >= 2000 {
				t.Errorf("the call ended %v and reads %d bytes, want %v within the limits", got.Outcome, len(text), c.want)
			}
			for _, part := range c.reads {
				if !strings.Contains(text, part) {
					t.Errorf("the model reads %.200q…, want %q in it", text, part)
				}
			}
			want := map[domain.Channel]string{}
			if c.kept != "" {
				want[domain.TextChannel] = c.kept
			}
			w.checkRetained(got, want)
			w.checkEvent()
			w.wantLawful()
		})
	}
}

// nil0 is the zero Tool.
var nil0 domain.Tool

// A refusing codec returns a long error for every value to encode.
type refusing struct{}

var unwieldy = strings.Repeat("no ", 30000) + "."

func (refusing) Schema() json.RawMessage                        { return json.RawMessage(`{}`) }
func (refusing) Decode(json.RawMessage) (map[string]int, error) { return nil, errors.New(unwieldy) }
func (refusing) Encode(map[string]int) (json.RawMessage, error) { return nil, errors.New(unwieldy) }

// A text over the limits that cannot be stored is cut, with the number of bytes left
// out.
func TestTextThatCannotBeKeptWholeSaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.outputs.refuse = errFull
	m := w.offered(registry.Tools{"a": fails(t, domain.Fail("%s%s", strings.Repeat("x", 60000), "end"))})
	got := w.settle(m, "c", "a", `{}`)
	text, left := got.Text, 0
	marker := text[strings.Index(text, "... text"):]
	marker = marker[:strings.Index(marker, "\n")]
	if _, err := fmt.Sscanf(marker, "... text truncated (1 lines, 60003 bytes); %d bytes are left out", &left); err != nil {
		t.Fatalf("the marker is %q: %v", marker, err)
	}
	shown := len(text) - len(marker) - 4
	if got.Outcome != domain.Failed || shown+left != 60003 || !strings.HasSuffix(text, "end") || len(text) > 51200 {
		t.Errorf("the call ended %v, shows %d bytes and leaves %d out, want all 60003 of a failure", got.Outcome, shown, left)
	}
	if !strings.Contains(got.Detail, "disk full") || !strings.Contains(got.Detail, "over the limit of 51200") {
		t.Errorf("detail is %.200q, want why it was not kept", got.Detail)
	}
	w.checkRetained(got, nil)
}

// The text of a RetentionFailed names the limit that the output exceeds.
func TestRetentionFailureNamesTheLimitThatWasBroken(t *testing.T) {
	t.Parallel()
	limits := registry.Limits{Lines: 10, Bytes: 1000, Media: 100}
	for want, tool := range map[string]domain.Tool{
		"keep text output of 1001 bytes, over the limit of 1000: disk full":                                       answers(t, strings.Repeat("t", 1001)).Tool,
		"keep text output of 11 lines, over the limit of 10: disk full":                                           answers(t, strings.Repeat("\n", 10)).Tool,
		"keep text output of 2000 bytes, over the limit of 1000, and 2001 lines, over the limit of 10: disk full": answers(t, strings.Repeat("\n", 2000)).Tool,
		"keep structured output of 12 lines, over the limit of 10: disk full":                                     presents(t, make([]int, 10)),
		"media of 104 bytes in base64 is over the limit of 100 bytes":                                             presents(t, "v", domain.Media{MIME: "a/a", Data: make([]byte, 78)}),
		"media with types and names of 1004 bytes is over the limit of 1000 bytes":                                presents(t, "v", domain.Media{MIME: "a/a", Name: strings.Repeat("n", 1001)}),
		"media in 11 parts is over the limit of 10 parts":                                                         presents(t, "v", many(11, domain.Media{MIME: "a/a"})...),
	} {
		w := newWorld(t)
		w.outputs.refuse = errFull
		got := w.settlesIn(limits, tool)
		if got.Text != "Tool execution failed: "+want || !got.Began {
			t.Errorf("the call ended %v with %q, want %q", got.Outcome, got.Text, want)
		}
	}
}

func many(n int, c domain.Content) []domain.Content {
	all := make([]domain.Content, n)
	for i := range all {
		all[i] = c
	}
	return all
}

// Content with too many texts is joined, and content with too many media, or too long
// media types or names, ends the call as MediaTooLarge.
func TestPartsOfContentAreBounded(t *testing.T) {
	t.Parallel()
	picture := domain.Media{MIME: "image/png", Name: "a.png", Data: []byte("hello")}
	for name, c := range map[string]struct {
		content []domain.Content
		want    domain.Outcome
		text    string
	}{
		"empty texts":         {many(200_000, domain.Text("")), domain.Succeeded, ""},
		"short texts":         {many(40_000, domain.Text("t")), domain.Succeeded, strings.Repeat("t", 40_000)},
		"texts around media":  {append(many(30_000, domain.Text("t")), append([]domain.Content{picture}, many(10_000, domain.Text("t"))...)...), domain.Succeeded, strings.Repeat("t", 40_000)},
		"empty media":         {many(200_000, domain.Media{}), domain.MediaTooLarge, ""},
		"a name of megabytes": {[]domain.Content{domain.Media{MIME: "image/png", Name: strings.Repeat("n", mega)}}, domain.MediaTooLarge, ""},
		"a type of megabytes": {[]domain.Content{domain.Media{MIME: strings.Repeat("n", mega)}}, domain.MediaTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got := w.settlesIn(registry.Limits{}, presents(t, "v", c.content...))
			if got.Outcome != c.want || got.Content.Text() != c.text || len(got.Content) > 3 {
				t.Errorf("the call ended %v with %d bytes in %d parts, want %v with %d", got.Outcome, len(got.Content.Text()), len(got.Content), c.want, len(c.text))
			}
			w.checkEvent()
		})
	}
}

// Reported progress over the limits is cut, and a text names the parts left out.
func TestProgressIsBounded(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("p", mega)
	for name, p := range map[string]domain.Progress{
		"text":       {Content: domain.Contents{domain.Text(huge)}},
		"lines":      {Content: domain.Contents{domain.Text(strings.Repeat("\n", 5000))}},
		"structured": {Structured: json.RawMessage(`"` + huge + `"`)},
		"media":      {Content: domain.Contents{domain.Text("half"), domain.Media{MIME: "a/a", Data: make([]byte, 4<<20)}}},
		"a name":     {Content: domain.Contents{domain.Media{MIME: "a/a", Name: huge}}},
		"parts":      {Content: many(20_000, domain.Text(""))},
		"not JSON":   {Structured: json.RawMessage("{" + huge)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := w.offered(registry.Tools{"a": does(t, func(_ context.Context, _ empty, inv domain.Invocation) (string, error) {
				inv.Report(p)
				return "", domain.Fail("no luck")
			})})
			got := w.settle(m, "c", "a", `{}`)
			w.want(got, domain.Failed, "no luck")
			if got.Progress == nil || len(got.Progress.Content.Text()) > 51200+200 || len(got.Progress.Content) > 3 {
				t.Errorf("progress is %.100v, want one that is bounded", got.Progress)
			}
			w.checkEvent()
		})
	}
}

// The recorded progress does not change if the tool reuses the buffer that it reported.
func TestReportedProgressDoesNotChangeWithTheToolsBuffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"a": does(t, func(_ context.Context, _ empty, inv domain.Invocation) (string, error) {
		data := []byte("before")
		inv.Report(domain.Progress{Content: domain.Contents{domain.Media{MIME: "a/a", Data: data}}})
		copy(data, "AFTER!")
		return "", domain.Fail("no luck")
	})})
	got := w.settle(m, "c", "a", `{}`)
	if media := got.Progress.Content.Media(); len(media) != 1 || string(media[0].Data) != "before" {
		t.Errorf("progress is %q, want it as it was reported", media)
	}
}

// A deeply nested value is stored without indentation, which would make it 2,000 times
// as long.
func TestDeepValueIsKeptWithoutIndentation(t *testing.T) {
	t.Parallel()
	for name, deep := range map[string]string{
		"arrays":  strings.Repeat("[", 2000) + strings.Repeat("1,", 30_000) + "1" + strings.Repeat("]", 2000),
		"objects": strings.Repeat(`{"}":`, 2000) + "[" + strings.Repeat(`"\\\"]",`, 10_000) + "1]" + strings.Repeat("}", 2000),
	} {
		w := newWorld(t)
		got := w.settlesIn(registry.Limits{}, presents(t, json.RawMessage(deep)))
		if kept := w.outputs.kept()[domain.StructuredChannel]; got.Outcome != domain.Succeeded || kept != deep {
			t.Errorf("%s: the call ended %v and %d bytes are kept, want the %d of the value", name, got.Outcome, len(kept), len(deep))
		}
	}
	w := newWorld(t)
	got := w.settlesIn(registry.Limits{}, presents(t, json.RawMessage("["+strings.Repeat(`{"a":1},`, 10_000)+`{"a":1}]`)))
	if kept := w.outputs.kept()[domain.StructuredChannel]; got.Outcome != domain.Succeeded || !strings.HasPrefix(kept, "[\n  {\n    \"a\": 1\n  },") {
		t.Errorf("a flat value is kept as %.40q, want it indented", kept)
	}
}

// A call whose start or end is too large for the store still has exactly one end.
func TestCallWhoseInputIsTooLargeToRecordHasOneEnd(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]bool{"live": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			m := w.hooked(registry.Config{Before: []registry.Before{rewrites(`{"a":"` + strings.Repeat("x", 1000) + `"}`)}})
			w.take(m, ask("c", "echo", `{}`))
			w.journal.begin = func(context.Context) error {
				if cancelled {
					cancel(domain.ByUser)
				}
				return fmt.Errorf("%w: the limit is 100", events.ErrTooLarge)
			}
			got := w.settleIn(ctx, m, ask("c", "echo", `{}`))
			if got.Outcome != domain.Defective || got.Began || got.Input != nil || !strings.Contains(got.Text, "the limit is 100") {
				t.Errorf("the call ended %v %q, began %t, want a defect before it began that names the limit", got.Outcome, got.Text, got.Began)
			}
			w.wantLawful()
		})
	}
}

// If the input of the hooks makes an end too large for the store, the end is recorded
// without it.
func TestInputOfHooksIsLeftOutOfAnEndThatItMakesTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.hooked(registry.Config{Before: []registry.Before{rewrites(`{"a":1}`)}})
	tries := 0
	w.journal.end = func(context.Context) error {
		if tries++; tries == 1 {
			return events.ErrTooLarge
		}
		return nil
	}
	got := w.settle(m, "c", "echo", `{}`)
	w.want(got, domain.Succeeded, `{"a":1}`)
	if got.Input != nil {
		t.Errorf("the end has the input %s, want it in the start alone", got.Input)
	}
}

// The recorded name of a refused entry is bounded, however long the entry's name is.
func TestBadNameOfAListFromOutsideIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	refused, err := l.Scope().RegisterValid(t.Context(), registry.Tools{"good": answers(t, "good").Tool, strings.Repeat("!", mega): answers(t, "bad").Tool})
	if err != nil || len(refused) != 1 {
		t.Fatalf("RegisterValid = %d refused, %v, want 1", len(refused), err)
	}
	for _, v := range w.read(events.LayerStream(l.ID())) {
		if r, err := events.Encode(events.Draft{ID: v.ID, Event: v.Event}); err != nil || len(r.Data) > 10_000 {
			t.Errorf("%s has %d bytes, %v, want a name that is cut", v.Event.Kind(), len(r.Data), err)
		}
	}
	w.wantSays(w.registry(registry.Config{}, l), "good", "good")
}
