package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
)

// A spot is a place in the execution of a call at which foreign code runs.
type spot struct {
	name  string
	began bool // the start is on record when it runs
	// tool returns a tool and a config in which do runs at the spot. An error of
	// do is returned at it.
	tool func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config)
}

// A doing codec runs do in Decode or in Encode.
type doing struct{ decode, encode func(context.Context) error }

func (doing) Schema() json.RawMessage { return json.RawMessage(`{}`) }

func (d doing) Decode(json.RawMessage) (string, error) {
	if d.decode != nil {
		return "", d.decode(context.Background())
	}
	return "", nil
}

func (d doing) Encode(string) (json.RawMessage, error) {
	if d.encode != nil {
		return json.RawMessage(`""`), d.encode(context.Background())
	}
	return json.RawMessage(`""`), nil
}

// An odd error runs do when its text is requested.
type odd struct{ do func(context.Context) error }

func (o odd) Error() string { _ = o.do(context.Background()); return "odd" }

// A hung store of outputs runs do in place of storing an output.
type hung struct {
	*drawer
	do func(context.Context) error
}

func (h hung) Keep(ctx context.Context, _ domain.Ref, _ string, _ io.Reader) (domain.Retained, error) {
	return domain.Retained{}, errors.Join(h.do(ctx), errFull)
}

func spots() []spot {
	plain := func(t testing.TB) domain.Tool { return answers(t, "a").Tool }
	return []spot{
		{"before", false, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return plain(t), registry.Config{Before: []registry.Before{
				func(ctx context.Context, _ domain.Invocation, call domain.Call) (json.RawMessage, error) {
					return call.Input, do(ctx)
				},
			}}
		}},
		{"decode", false, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return made(t, domain.Spec[string, string]{Input: doing{decode: do}, Execute: func(context.Context, string, domain.Invocation) (string, error) {
				return "", nil
			}}), registry.Config{}
		}},
		{"execute", true, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return does(t, func(ctx context.Context, _ empty, _ domain.Invocation) (string, error) { return "", do(ctx) }), registry.Config{}
		}},
		{"encode", true, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return made(t, domain.Spec[empty, string]{Output: doing{encode: do}, Execute: func(context.Context, empty, domain.Invocation) (string, error) {
				return "", nil
			}}), registry.Config{}
		}},
		{"present", true, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return made(t, domain.Spec[empty, string]{
				Execute: func(context.Context, empty, domain.Invocation) (string, error) { return "", nil },
				Present: func(empty, domain.Encoded[string]) []domain.Content { _ = do(context.Background()); return nil },
			}), registry.Config{}
		}},
		{"the text of an error", true, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return does(t, func(context.Context, empty, domain.Invocation) (string, error) { return "", odd{do} }), registry.Config{}
		}},
		{"after", true, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return plain(t), registry.Config{After: []registry.After{
				func(ctx context.Context, _ domain.Invocation, _ domain.Call, out domain.Output) (domain.Contents, error) {
					return out.Content(), do(ctx)
				},
			}}
		}},
		{"keep", true, func(t testing.TB, do func(context.Context) error) (domain.Tool, registry.Config) {
			return answers(t, strings.Repeat("t", 60000)).Tool, registry.Config{Outputs: hung{newDrawer(), do}}
		}},
	}
}

func (s spot) materialize(w *world, do func(context.Context) error) *registry.Materialization {
	tool, config := s.tool(w.t, do)
	l := w.application()
	w.register(l, registry.Tools{"a": tool})
	m := w.materialize(w.registry(config, l))
	w.take(m, ask("c", "a", `{}`))
	return m
}

// Foreign code that ignores its interruption delays its call by no more than the grace
// period, wherever it runs.
func TestForeignCodeThatHangsHoldsNoCallBeyondTheGrace(t *testing.T) {
	t.Parallel()
	for _, s := range spots() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, release := newWorld(t), make(chan struct{})
				m := s.materialize(w, func(context.Context) error { <-release; return nil })
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(domain.ByUser) })
				began := time.Now()
				got := w.settleIn(ctx, m, ask("c", "a", `{}`))
				want := domain.InterruptedBefore(domain.ByUser)
				if s.began {
					want = domain.InterruptedWhile(domain.ByUser)
				}
				w.want(got, domain.Interrupted, want.Text)
				if took := time.Since(began); took != time.Minute+registry.DefaultGrace || got.Began != s.began || got.Interruption != domain.ByUser {
					t.Errorf("Settle took %v, began %t, by %v, want a minute and the grace, %t, by the user", took, got.Began, got.Interruption, s.began)
				}
				short, stop := context.WithTimeoutCause(t.Context(), time.Hour, errFull)
				defer stop()
				wantIs(t, "Wait while foreign code hangs", w.layers.Wait(short), errFull)
				close(release)
				if err := w.layers.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				w.wantLawful()
			})
		})
	}
}

// Foreign code that returns when its context ends is interrupted without waiting for
// the grace period.
func TestForeignCodeThatHeedsItsContextIsInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range spots() {
		if s.name != "before" && s.name != "execute" && s.name != "after" && s.name != "keep" {
			continue // the others are given no context
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				m := s.materialize(w, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(domain.Superseded) })
				got := w.settleIn(ctx, m, ask("c", "a", `{}`))
				if got.Outcome != domain.Interrupted || got.Interruption != domain.Superseded || got.Began != s.began {
					t.Errorf("the call ended %v by %v, began %t, want an interruption", got.Outcome, got.Interruption, got.Began)
				}
				if err := w.layers.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				w.wantLawful()
			})
		})
	}
}

// A panic, an exit of the goroutine or an error of foreign code gives the call one end
// and does not affect the next call.
func TestForeignCodeThatBreaksLeavesOneEnd(t *testing.T) {
	t.Parallel()
	var none map[string]int
	ways := map[string]func(context.Context) error{
		"ends its goroutine":                  func(context.Context) error { runtime.Goexit(); return nil },
		"panics":                              func(context.Context) error { panic("boom") },
		"panics with nothing":                 func(context.Context) error { panic(nil) },
		"writes to a nil map":                 func(context.Context) error { none["a"]++; return nil },
		"panics with what panics":             func(context.Context) error { panic(odd{func(context.Context) error { panic("again") }}) },
		"panics with what ends its goroutine": func(context.Context) error { panic(odd{func(context.Context) error { runtime.Goexit(); return nil }}) },
	}
	for _, s := range spots() {
		for way, do := range ways {
			t.Run(s.name+" "+way, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				m := s.materialize(w, do)
				got := w.settle(m, "c", "a", `{}`)
				want := domain.Defective
				if s.name == "keep" {
					want = domain.RetentionFailed
				}
				if got.Outcome != want || got.Began != s.began || got.ToolResult().Type() != "error" {
					t.Errorf("the call ended %v %q, began %t, want %v, %t", got.Outcome, got.Text, got.Began, want, s.began)
				}
				again := w.settle(m, "d", "a", `{}`) // the registry continues to settle calls
				if again.Outcome != want {
					t.Errorf("the next call ended %v, want %v", again.Outcome, want)
				}
				if err := w.layers.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// An error that claims an interruption while the context is live is a defect of the
// tool.
func TestErrorThatClaimsAnInterruptionIsADefect(t *testing.T) {
	t.Parallel()
	for _, claimed := range []error{domain.ErrInterrupted, domain.ByUser, domain.ByDeadline, context.Canceled} {
		w := newWorld(t)
		m := w.offered(registry.Tools{"a": does(t, func(context.Context, empty, domain.Invocation) (string, error) { return "", claimed })})
		if got := w.settle(m, "c", "a", `{}`); got.Outcome != domain.Defective || got.Interruption != 0 {
			t.Errorf("%v of a call that nothing interrupted ended %v, want a defect", claimed, got.Outcome)
		}
	}
}
