package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// hooked returns a materialization of one tool, echo, which returns its input.
func (w *world) hooked(c registry.Config) *registry.Materialization {
	w.t.Helper()
	l := w.application()
	w.register(l, registry.Tools{"echo": does(w.t, func(_ context.Context, in map[string]json.RawMessage, _ domain.Invocation) (string, error) {
		data, err := json.Marshal(in)
		return string(data), err
	})})
	return w.materialize(w.registry(c, l))
}

func rewrites(to string) registry.Before {
	return func(context.Context, domain.Invocation, domain.Call) (json.RawMessage, error) {
		if to == "" {
			return nil, nil
		}
		return json.RawMessage(to), nil
	}
}

// The tool runs with the input that the hooks return, and the settlement has that input
// if it differs from the requested one.
func TestInputOfHooksIsWhatRunsAndIsOnRecordWhereItDiffers(t *testing.T) {
	t.Parallel()
	inPlace := func(_ context.Context, _ domain.Invocation, call domain.Call) (json.RawMessage, error) {
		copy(call.Input[bytes.IndexByte(call.Input, '1'):], "2")
		return call.Input, nil
	}
	second := func(_ context.Context, _ domain.Invocation, call domain.Call) (json.RawMessage, error) {
		return bytes.ReplaceAll(call.Input, []byte("2"), []byte("3")), nil
	}
	for name, c := range map[string]struct {
		hooks              []registry.Before
		input, ran, record string
	}{
		"none":            {nil, `{"a": 1}`, `{"a":1}`, ""},
		"the same":        {[]registry.Before{rewrites(`{ "a":1 }`)}, `{"a": 1}`, `{"a":1}`, ""},
		"another":         {[]registry.Before{rewrites(`{"a":2}`)}, `{"a": 1}`, `{"a":2}`, `{"a":2}`},
		"in place":        {[]registry.Before{inPlace}, `{"a":1}`, `{"a":2}`, `{"a":2}`},
		"one by one":      {[]registry.Before{inPlace, second}, `{"a":1}`, `{"a":3}`, `{"a":3}`},
		"there and back":  {[]registry.Before{rewrites(`{"a":2}`), rewrites(`{"a":1}`)}, `{"a":1}`, `{"a":1}`, ""},
		"nothing":         {[]registry.Before{rewrites("")}, `{"a":1}`, `{}`, `{}`},
		"of a large one":  {[]registry.Before{rewrites(`{"a":9007199254740993}`)}, `{"a":9007199254740992}`, `{"a":9007199254740993}`, `{"a":9007199254740993}`},
		"of what was bad": {[]registry.Before{rewrites(`{"a":1}`)}, `not JSON`, `{"a":1}`, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got := w.settle(w.hooked(registry.Config{Before: c.hooks}), "c", "echo", c.input)
			w.want(got, domain.Succeeded, c.ran)
			start := w.read(w.session())[0].Event.(events.CallStarted)
			if string(got.Input) != c.record || string(start.Input) != c.record {
				t.Errorf("on record is the input %q, and %q of the start, want %q", got.Input, start.Input, c.record)
			}
		})
	}
}

// A hook before the tool that fails, panics or ends its goroutine ends the call as a
// defect, and the tool does not run.
func TestHookThatBreaksIsADefectAndRunsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hook registry.Before
		want string
	}{
		"error": {func(context.Context, domain.Invocation, domain.Call) (json.RawMessage, error) { return nil, errFull }, "run hook before echo: disk full"},
		"panic": {func(context.Context, domain.Invocation, domain.Call) (json.RawMessage, error) { panic("boom") }, "boom"},
		"input": {rewrites(`{"cut`), "run hooks before echo: the input that they made is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got := w.settle(w.hooked(registry.Config{Before: []registry.Before{c.hook}}), "c", "echo", `{}`)
			w.want(got, domain.Defective, "Tool execution failed: "+c.want)
			w.wantKinds(w.session(), "CallSettled")
		})
	}
}

// Hooks after the tool change the content that the model reads and not the structured
// value.
func TestHooksAfterRewriteWhatIsShownAndNotTheValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	add := func(text string) registry.After {
		return func(_ context.Context, _ domain.Invocation, _ domain.Call, out domain.Output) (domain.Contents, error) {
			return domain.Contents{domain.Text(out.Content().Text() + text)}, nil
		}
	}
	got := w.settle(w.hooked(registry.Config{After: []registry.After{add(" one"), add(" two")}}), "c", "echo", `{}`)
	w.want(got, domain.Succeeded, "{} one two")
	if string(got.Structured) != `"{}"` {
		t.Errorf("the value is %s, want it as it was", got.Structured)
	}
}

// A hook after the tool that breaks ends the call as a defect of a call that began.
func TestHookAfterThatBreaksIsADefectOfACallThatBegan(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]registry.After{
		"error": func(context.Context, domain.Invocation, domain.Call, domain.Output) (domain.Contents, error) {
			return nil, errFull
		},
		"panic": func(context.Context, domain.Invocation, domain.Call, domain.Output) (domain.Contents, error) {
			panic(errFull)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got := w.settle(w.hooked(registry.Config{After: []registry.After{hook}}), "c", "echo", `{}`)
			if got.Outcome != domain.Defective || !got.Began || !strings.Contains(got.Text, "disk full") {
				t.Errorf("settlement = %v %q, began %t, want a defect that began", got.Outcome, got.Text, got.Began)
			}
		})
	}
}

// Hooks receive the invocation and the call.
func TestHooksSeeTheInvocationOfTheCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var before, after domain.CallID
	c := registry.Config{
		Before: []registry.Before{func(_ context.Context, inv domain.Invocation, call domain.Call) (json.RawMessage, error) {
			before = inv.Call
			return call.Input, nil
		}},
		After: []registry.After{func(_ context.Context, inv domain.Invocation, _ domain.Call, out domain.Output) (domain.Contents, error) {
			after = inv.Call
			return out.Content(), nil
		}},
	}
	w.want(w.settle(w.hooked(c), "c9", "echo", `{}`), domain.Succeeded, "{}")
	if before != "c9" || after != "c9" {
		t.Errorf("the hooks saw the calls %q and %q, want c9", before, after)
	}
}
