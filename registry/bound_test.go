package registry_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// presents returns a tool that returns value. Its presentation is content; without
// content the model reads the value.
func presents(t testing.TB, value any, content ...domain.Content) domain.Tool {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return made(t, domain.Spec[empty, json.RawMessage]{
		Execute: func(context.Context, empty, domain.Invocation) (json.RawMessage, error) { return data, nil },
		Present: func(empty, domain.Encoded[json.RawMessage]) []domain.Content { return content },
	})
}

// settlesIn settles one call of a tool under limits and returns its settlement.
func (w *world) settlesIn(l registry.Limits, tool domain.Tool) domain.Settlement {
	w.t.Helper()
	layer := w.application()
	w.register(layer, registry.Tools{"a": tool})
	return w.settle(w.materialize(w.registry(registry.Config{Limits: l}, layer)), "c", "a", `{}`)
}

// checkRetained fails the test unless the outputs that a settlement names are exactly
// want, by channel, and the store has them in full.
func (w *world) checkRetained(s domain.Settlement, want map[domain.Channel]string) {
	w.t.Helper()
	kept := w.outputs.kept()
	if len(kept) != len(want) || len(s.Retained) != len(want) {
		w.t.Errorf("kept are %d outputs, the settlement names %d, want %d", len(kept), len(s.Retained), len(want))
	}
	for _, r := range s.Retained {
		text := kept[r.Ref.Channel()]
		if text != want[r.Ref.Channel()] {
			w.t.Errorf("kept as %s are %d bytes, want %d", r.Ref, len(text), len(want[r.Ref.Channel()]))
		}
		if r.Ref.Settlement() != s.ID || r.Bytes != int64(len(text)) || r.Lines != int64(1+strings.Count(text, "\n")) {
			w.t.Errorf("retained is %+v for %d bytes of %s", r, len(text), s.ID)
		}
	}
	confirmed := len(w.outputs.mu.confirmed) == 1 && w.outputs.mu.confirmed[0] == s.ID
	if confirmed != (len(want) > 0) {
		w.t.Errorf("confirmed are %v, want the settlement if it retains anything", w.outputs.mu.confirmed)
	}
}

func (w *world) checkPreview(text string, s domain.Settlement, c domain.Channel) {
	w.t.Helper()
	var r domain.Retained
	for _, kept := range s.Retained {
		if kept.Ref.Channel() == c {
			r = kept
		}
	}
	marker := fmt.Sprintf("... output truncated (%d lines, %d bytes); full output at %s ...", r.Lines, r.Bytes, r.Ref)
	if strings.Count(text, marker) != 1 || len(text) > 51200 || strings.Count(text, "\n") >= 2000 {
		w.t.Errorf("preview of %d bytes has %d markers %q", len(text), strings.Count(text, marker), marker)
	}
}

// A text over the limit is stored in full, and the settlement has its preview as its
// only text.
// Scenario 50.
func TestTextOverTheLimitIsKeptWholeAndPreviewedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := strings.Repeat("f", 30005), strings.Repeat("s", 30005)
	got := w.settlesIn(registry.Limits{}, presents(t, map[string]string{"kind": "report"}, domain.Text(first), domain.Text(second)))
	w.checkRetained(got, map[domain.Channel]string{domain.TextChannel: first + second})
	w.checkPreview(got.ToolResult().Text, got, domain.TextChannel)
	if string(got.Structured) != `{"kind":"report"}` || len(got.Content) != 1 {
		t.Errorf("settlement holds %s and %d parts, want the value as it is and one part", got.Structured, len(got.Content))
	}
}

// An output within the limits is in the settlement unchanged, and the store has no
// copy.
func TestOutputWithinLimitsIsShownAsItIsAndKeptNowhere(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"bytes": strings.Repeat("x", 51200), "lines": strings.Repeat("\n", 1999), "nothing": "",
	} {
		w := newWorld(t)
		got := w.settlesIn(registry.Limits{}, presents(t, name, domain.Text(text)))
		w.want(got, domain.Succeeded, text)
		w.checkRetained(got, nil)
	}
}

// One byte or one line over the limit is enough to retain an output; at the limit it is
// not retained.
func TestOneByteOrLineOverTheLimitIsRetained(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("x", 51201), strings.Repeat("\n", 2000)} {
		w := newWorld(t)
		got := w.settlesIn(registry.Limits{}, presents(t, "v", domain.Text(text)))
		w.checkRetained(got, map[domain.Channel]string{domain.TextChannel: text})
		w.checkPreview(got.ToolResult().Text, got, domain.TextChannel)
	}
}

// A structured value over the limit is stored as indented JSON, the form that a model
// reads, and previewed once.
// Scenario 52.
func TestValueOverTheLimitIsKeptAsIndentedJSONAndPreviewedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	value := map[string]string{"a": strings.Repeat("x", 60000)}
	got := w.settlesIn(registry.Limits{}, presents(t, value))
	var back map[string]string
	if err := json.Unmarshal([]byte(w.outputs.kept()[domain.StructuredChannel]), &back); err != nil || back["a"] != value["a"] {
		t.Errorf("what is kept is not the value: %v", err)
	}
	w.checkRetained(got, map[domain.Channel]string{domain.StructuredChannel: "{\n  \"a\": \"" + value["a"] + "\"\n}"})
	w.checkPreview(got.ToolResult().Text, got, domain.StructuredChannel)
	if got.Structured != nil || len(got.Content) != 1 {
		t.Errorf("settlement holds %d bytes of value and %d parts, want none and one", len(got.Structured), len(got.Content))
	}
}

// Text and structured output have separate limits, and each is retained on its own.
func TestChannelsAreBoundedApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text, value := strings.Repeat("t", 60000), strings.Repeat("v", 60000)
	got := w.settlesIn(registry.Limits{}, presents(t, value, domain.Text(text)))
	w.checkRetained(got, map[domain.Channel]string{domain.TextChannel: text, domain.StructuredChannel: `"` + value + `"`})
	w.checkPreview(got.ToolResult().Text, got, domain.TextChannel)
	if got.Structured != nil || len(got.Content) != 1 {
		t.Errorf("settlement holds %d bytes of value and %d parts, want none and one", len(got.Structured), len(got.Content))
	}
}

func picture(n int) domain.Media {
	return domain.Media{MIME: "image/png", Name: "p.png", Data: []byte(strings.Repeat("p", n))}
}

// Media up to the limit reach the model unchanged. Over the limit the call ends as
// MediaTooLarge.
// Scenario 53.
// Scenario 55.
func TestMediaAreNativeUpToTheirLimit(t *testing.T) {
	t.Parallel()
	if got, want := registry.DefaultLimits.Media, int64(5<<20); got != want {
		t.Errorf("the default limit of media is %d bytes, want %d", got, want)
	}
	unit, limits := 64<<10, registry.DefaultLimits // the limit is five units
	if long() {
		unit = 1 << 20
	}
	limits.Media = int64(5 * unit)
	for name, c := range map[string]struct {
		media []domain.Media
		want  domain.Outcome
	}{
		"the limit":        {[]domain.Media{picture(5 * unit / 4 * 3)}, domain.Succeeded},
		"the text's limit": {[]domain.Media{picture(51200)}, domain.Succeeded},
		"in all":           {[]domain.Media{picture(3 * unit / 4 * 3), picture(2 * unit / 4 * 3)}, domain.Succeeded},
		"one byte over":    {[]domain.Media{picture(5*unit/4*3 + 1)}, domain.MediaTooLarge},
		"a fifth over":     {[]domain.Media{picture(6 * unit / 4 * 3)}, domain.MediaTooLarge},
		"over in all":      {[]domain.Media{picture(3 * unit / 4 * 3), picture(2*unit/4*3 + 1)}, domain.MediaTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, size := newWorld(t), 0
			var content []domain.Content
			for _, m := range c.media {
				content, size = append(content, m), size+base64.StdEncoding.EncodedLen(len(m.Data))
			}
			got := w.settlesIn(limits, presents(t, "v", content...))
			w.checkRetained(got, nil)
			if c.want == domain.MediaTooLarge {
				w.want(got, c.want, fmt.Sprintf("Tool execution failed: media of %d bytes in base64 is over the limit of %d bytes", size, 5*unit))
				return
			}
			if got.Outcome != c.want || len(got.Content) != len(c.media) || got.Structured != nil {
				t.Errorf("settlement = %v with %d parts and the value %s, want all media and no value", got.Outcome, len(got.Content), got.Structured)
			}
		})
	}
}

// A text over the limit is previewed, and the media of the same output are unchanged.
// Scenario 56.
func TestMediaBesideTextOverTheLimitAreAsTheyWere(t *testing.T) {
	t.Parallel()
	w, text := newWorld(t), strings.Repeat("t", 51201)
	got := w.settlesIn(registry.Limits{}, presents(t, strings.Repeat("v", 60000), picture(4), domain.Text(text), picture(5)))
	w.checkRetained(got, map[domain.Channel]string{domain.TextChannel: text})
	if len(got.Content) != 3 {
		t.Fatalf("settlement has %d parts, want a preview and two media", len(got.Content))
	}
	w.checkPreview(string(got.Content[0].(domain.Text)), got, domain.TextChannel)
	for i, n := range []int{4, 5} {
		if m := got.Content[i+1].(domain.Media); string(m.Data) != string(picture(n).Data) || m.MIME != "image/png" || m.Name != "p.png" {
			t.Errorf("part %d is %v, want the picture of %d bytes", i+1, m, n)
		}
	}
}

// A call whose output cannot be stored ends as RetentionFailed and not as a success.
// Scenario 58.
// Scenario 64.
func TestOutputThatCannotBeKeptWholeIsNoSuccess(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("t", 60000)
	for name, tool := range map[string]domain.Tool{
		"text": presents(t, "v", domain.Text(text)), "structured": presents(t, text[2:]),
	} {
		w := newWorld(t)
		w.outputs.refuse = errFull
		got := w.settlesIn(registry.Limits{}, tool)
		w.want(got, domain.RetentionFailed, "Tool execution failed: keep "+name+" output of 60000 bytes, over the limit of 51200: disk full")
		w.checkRetained(got, nil)
		if got.Content != nil || got.Structured != nil || !got.Began {
			t.Errorf("settlement shows %v and %s, began %t, want nothing of what began", got.Content, got.Structured, got.Began)
		}
	}
}

// Without a store of outputs, a call with an output over the limits ends as
// RetentionFailed.
func TestWithoutStorageWhatIsTooLargeIsNoSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.register(l, registry.Tools{"a": presents(t, "v", domain.Text(strings.Repeat("t", 60000))), "b": answers(t, "b").Tool})
	r, err := w.layers.Registry(registry.Config{}, l)
	if err != nil {
		t.Fatal(err)
	}
	m := w.materialize(r)
	want := "Tool execution failed: keep text output of 60000 bytes, over the limit of 51200: there is no storage for outputs"
	w.want(w.settle(m, "1", "a", `{}`), domain.RetentionFailed, want)
	w.want(w.settle(m, "2", "b", `{}`), domain.Succeeded, "b")
}

// The limits of the Config apply, and not the default limits.
// Scenario 61.
func TestLimitsAreThoseOfTheConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine"
	got := w.settlesIn(registry.Limits{Lines: 8, Bytes: 1000}, presents(t, "v", domain.Text(text)))
	w.checkRetained(got, map[domain.Channel]string{domain.TextChannel: text})
	want := "one\ntwo\n\n... output truncated (9 lines, 44 bytes); full output at " + got.Retained[0].Ref.String() + " ...\n\neight\nnine"
	w.want(got, domain.Succeeded, want)
}

// The content that a hook after the tool returns is bounded like that of the tool.
func TestContentThatAHookMadeIsBoundedToo(t *testing.T) {
	t.Parallel()
	w, text := newWorld(t), strings.Repeat("h", 60000)
	l := w.application()
	w.register(l, registry.Tools{"a": answers(t, "short").Tool})
	r := w.registry(registry.Config{After: []registry.After{
		func(context.Context, domain.Invocation, domain.Call, domain.Output) (domain.Contents, error) {
			return domain.Contents{domain.Text(text)}, nil
		},
	}}, l)
	got := w.settle(w.materialize(r), "c", "a", `{}`)
	w.checkRetained(got, map[domain.Channel]string{domain.TextChannel: text})
}

// Every reference in a recorded settlement names a stored output.
func TestReferenceOnRecordResolvesInTheStoreOfOutputs(t *testing.T) {
	t.Parallel()
	store, err := outputs.Open("outputs", outputs.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w, text := newWorld(t), strings.Repeat("line\n", 100_000)
	l := w.application()
	w.register(l, registry.Tools{"a": presents(t, "v", domain.Text(text))})
	got := w.settle(w.materialize(w.registry(registry.Config{Outputs: store}, l)), "c", "a", `{}`)
	all := w.read(w.session())
	retained := all[1].Event.(events.CallSettled).Retained
	if len(retained) != 1 || retained[0].Ref.Settlement() != got.ID {
		t.Fatalf("on record are the outputs %v, want one of %s", retained, got.ID)
	}
	o, err := store.Open(t.Context(), retained[0].Ref)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if data, err := io.ReadAll(o); err != nil || string(data) != text || o.Retained() != retained[0] {
		t.Errorf("the output reads back as %d bytes of %+v, %v, want %d of %+v", len(data), o.Retained(), err, len(text), retained[0])
	}
	for id, err := range store.Unconfirmed(t.Context()) {
		t.Errorf("unconfirmed is %v, %v, want nothing", id, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := w.settle(w.materialize(w.registry(registry.Config{Outputs: store}, l)), "d", "a", `{}`); got.Outcome != domain.RetentionFailed {
		t.Errorf("with the outputs closed the call settles as %v, want retention failed", got.Outcome)
	}
}

// If the tool itself dropped bytes, the preview and the stored text give their number,
// and the marker does not call the output full.
func TestOutputOfWhichTheToolLostSomeIsNeverSaidToBeFull(t *testing.T) {
	t.Parallel()
	const lost, notice = 5_800_000, "[5800000 bytes of this output were lost and are kept nowhere]\n"
	text := strings.Repeat("line\n", 20_000)
	lossy := func(content ...domain.Content) domain.Tool {
		return made(t, domain.Spec[empty, string]{
			Execute: func(context.Context, empty, domain.Invocation) (string, error) { return text, nil },
			Present: func(empty, domain.Encoded[string]) []domain.Content { return content },
			Lost:    func(string) int64 { return lost },
		})
	}
	for name, tool := range map[string]domain.Tool{"text": lossy(domain.Text(text)), "structured": lossy()} {
		for _, limits := range []registry.Limits{{}, {Lines: 8, Bytes: 256}} {
			w := newWorld(t)
			got := w.settlesIn(limits, tool)
			read := got.ToolResult().Text
			if got.Outcome != domain.Succeeded || got.Lost != lost || !strings.HasPrefix(read, notice) || strings.Contains(read, "full output") {
				t.Errorf("%s: the settlement lost %d and reads %.200q, want %d and it on top", name, got.Lost, read, lost)
			}
			if !strings.Contains(read, "; 5800000 bytes lost; the rest at "+got.Retained[0].Ref.String()+" ...") {
				t.Errorf("%s: the preview %.300q does not say where the rest is", name, read)
			}
			if bytes, lines := len(read), strings.Count(read, "\n")+1; limits.Bytes > 0 && (bytes > limits.Bytes || lines > limits.Lines) {
				t.Errorf("%s: the preview has %d bytes and %d lines, over %+v", name, bytes, lines, limits)
			}
			if name == "text" {
				w.checkRetained(got, map[domain.Channel]string{domain.TextChannel: notice + text, domain.StructuredChannel: `"` + strings.Repeat(`line\n`, 20_000) + `"`})
			}
		}
	}
}
