package modelapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// emitted returns the parts that reach the reader of an attempt that emits parts and ends
// with an error, and their text and thinking. It checks that less than the secret is kept
// while the attempt goes on.
func emitted(t *testing.T, end error, parts ...runner.Part) (got []runner.Part, text, thinking string) {
	t.Helper()
	caller, given := modelapi.NewCaller("acme", modelapi.Policy{Attempts: 1}, secrets.New(secret)), 0
	run := func(_ context.Context, a modelapi.Attempt) error {
		for _, part := range parts {
			switch part := part.(type) {
			case runner.TextPart:
				given += len(part)
			case runner.ThinkingPart:
				given += len(part)
			}
			if !a.Emit(part) {
				return modelapi.ErrStopped
			}
			// Base64 is the longest form of the secret.
			if all := text + thinking; !strings.Contains(all, secrets.Redacted) && given-len(all) >= len(secret)*4/3+4 {
				t.Errorf("of %d bytes %d are kept", given, given-len(all))
			}
		}
		return end
	}
	for part, err := range caller.Stream(t.Context(), "m-1", run) {
		switch part := part.(type) {
		case runner.TextPart:
			text += string(part)
		case runner.ThinkingPart:
			thinking += string(part)
		}
		if part != nil {
			got = append(got, part)
		}
		if (err != nil) != (end != nil && part == nil) {
			t.Errorf("the reply has the error %v, want one for %v", err, end)
		}
	}
	return got, text, thinking
}

// A secret is replaced in text and thinking wherever it is cut, and the rest of them is
// passed on whole, also if the stream breaks off or a part of the other kind is between.
func TestASecretAcrossPartsIsRedacted(t *testing.T) {
	t.Parallel()
	whole := "say " + secret + " and sk-01"
	want := secrets.New(secret).Redact(whole)
	for i := range len(whole) + 1 {
		a, b := whole[:i], whole[i:]
		for _, end := range []error{nil, modelapi.ErrCut} {
			if _, text, thinking := emitted(t, end, runner.ThinkingPart(a), runner.ThinkingPart(b), runner.TextPart(a), runner.TextPart(b)); text != want || thinking != want {
				t.Errorf("cut at %d the text is %q and the thinking %q, want %q", i, text, thinking, want)
			}
		}
		_, text, thinking := emitted(t, nil, runner.TextPart(a), runner.ThinkingPart(a), runner.TextPart(b), runner.CallPart{}, runner.ThinkingPart(b))
		if strings.Contains(text+" "+thinking, secret) || !strings.HasPrefix(text, "say ") || !strings.HasSuffix(text, " and sk-01") || thinking != text {
			t.Errorf("cut at %d by a part of the other kind the text is %q and the thinking %q", i, text, thinking)
		}
	}
}

// A text without the beginning of a secret at its end is passed on before the next part,
// and any other text before a part of another kind.
func TestTextWithoutASecretIsNotKept(t *testing.T) {
	t.Parallel()
	got, _, _ := emitted(t, nil, runner.TextPart("one"), runner.TextPart("two s"), runner.ThinkingPart("hm, s"), runner.TextPart("k"), runner.FinishPart{})
	want := []runner.Part{runner.TextPart("one"), runner.TextPart("two "), runner.TextPart("s"), runner.ThinkingPart("hm, "), runner.ThinkingPart("s"), runner.TextPart("k"), runner.FinishPart{}}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("the parts are %q, want %q", got, want)
		}
	}
}

// Every field of a call and of the end is passed on without the secret. An input stays JSON,
// and one without a secret stays as it is.
func TestFieldsWithASecretAreRedacted(t *testing.T) {
	t.Parallel()
	escaped := `\u0073` + secret[1:]
	for input, want := range map[string]string{
		`{"a": "` + secret + `"}`:    `{"a":"[redacted]"}`,
		`{"` + escaped + `": 1.0}`:   `{"[redacted]":1.0}`,
		`"{\"a\":\"x` + secret + `"`: `"{\"a\":\"x[redacted]"`,
		`{"a": ` + secret:            `{"a": [redacted]`,
		`{"a" :  1}`:                 `{"a" :  1}`,
		``:                           ``,
	} {
		got, _, _ := emitted(t, nil, runner.CallPart{ID: "id-" + secret, Name: secret, Input: json.RawMessage(input)}, runner.FinishPart{Reason: "a " + secret, Model: secret + "-x"})
		call, ok := got[0].(runner.CallPart)
		if !ok || call.ID != "id-[redacted]" || call.Name != "[redacted]" || string(call.Input) != want {
			t.Errorf("the call with %s is %v, want %s", input, got[0], want)
		}
		if got[1] != (runner.FinishPart{Reason: "a [redacted]", Model: "[redacted]-x"}) {
			t.Errorf("the end is %v", got[1])
		}
	}
}

// An item with a secret is left out, and so is an item behind a text with a secret. The
// other items are passed on unchanged.
func TestAnItemWithASecretIsLeftOut(t *testing.T) {
	t.Parallel()
	item := func(text string) runner.ProviderPart {
		return runner.ProviderPart{Provider: "acme", Model: "m-1", Data: json.RawMessage(`{"signed" : "` + text + `"}`)}
	}
	got, _, _ := emitted(t, nil, item(secret), item(`\u0073`+secret[1:]), item("kept"), runner.TextPart(secret), item("behind"))
	if len(got) != 2 {
		t.Fatalf("the parts are %v, want an item and a text", got)
	}
	if kept, ok := got[0].(runner.ProviderPart); !ok || string(kept.Data) != string(item("kept").Data) || got[1] != runner.TextPart("[redacted]") {
		t.Errorf("the parts are %v, want the item without a secret and the text", got)
	}
}

// A reader that stops at the text that was kept gets no part behind it.
func TestAReaderStopsAtTheKeptText(t *testing.T) {
	t.Parallel()
	caller, n := modelapi.NewCaller("acme", quick, secrets.New(secret)), 0
	var stopped error
	for part := range caller.Stream(t.Context(), "m-1", func(_ context.Context, a modelapi.Attempt) error {
		if a.Emit(runner.TextPart("sk-")); !a.Emit(runner.FinishPart{}) {
			stopped = modelapi.ErrStopped
		}
		return stopped
	}) {
		if n++; part != runner.TextPart("sk-") {
			t.Errorf("the part is %v, want the kept text", part)
		}
		break
	}
	if n != 1 || !errors.Is(stopped, modelapi.ErrStopped) {
		t.Errorf("the reader got %d parts, and the attempt %v", n, stopped)
	}
}
