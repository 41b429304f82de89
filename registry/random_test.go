package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// A chaos is a world in which tools, hooks and the store of outputs misbehave at
// random, while tools are registered and closed and calls are interrupted.
type chaos struct {
	*world
	random   *rand.Rand // of the goroutine that drives
	release  chan struct{}
	overlaid []*registry.Layer
	scopes   []*registry.Scope
	reg      []*registry.Registry
	asked    []domain.Call
	mu       sync.Mutex
	answers  map[domain.CallID][]domain.Settlement
}

// hostile returns foreign code with one behaviour, chosen at random now.
func (c *chaos) hostile() func(context.Context, domain.Invocation) (string, error) {
	huge := strings.Repeat("huge ", 20_000)
	wait := time.Duration(c.random.IntN(12)) * time.Second
	ways := []func(context.Context, domain.Invocation) (string, error){
		func(context.Context, domain.Invocation) (string, error) { return "fine", nil },
		func(context.Context, domain.Invocation) (string, error) { return huge, nil },
		func(context.Context, domain.Invocation) (string, error) { return "", domain.Fail("%s", huge) },
		func(context.Context, domain.Invocation) (string, error) { return "", domain.Fail("") },
		func(context.Context, domain.Invocation) (string, error) { return "", errors.New(huge) },
		func(context.Context, domain.Invocation) (string, error) { panic(huge) },
		func(context.Context, domain.Invocation) (string, error) { runtime.Goexit(); return "", nil },
		func(context.Context, domain.Invocation) (string, error) { <-c.release; return "late", nil },
		func(context.Context, domain.Invocation) (string, error) { <-c.release; panic("late") },
		func(ctx context.Context, _ domain.Invocation) (string, error) { <-ctx.Done(); return "", ctx.Err() },
		func(ctx context.Context, _ domain.Invocation) (string, error) {
			<-ctx.Done()
			return "all the same", nil
		},
		func(ctx context.Context, _ domain.Invocation) (string, error) {
			time.Sleep(wait)
			return "slow", ctx.Err()
		},
		func(ctx context.Context, _ domain.Invocation) (string, error) {
			<-ctx.Done()
			time.Sleep(wait)
			return "slow", nil
		},
		func(context.Context, domain.Invocation) (string, error) {
			return "", &domain.Denied{Action: "a", Resource: huge}
		},
		func(context.Context, domain.Invocation) (string, error) { return "", &domain.Declined{} },
		func(context.Context, domain.Invocation) (string, error) {
			return "", odd{func(context.Context) error { panic("odd") }}
		},
		func(_ context.Context, inv domain.Invocation) (string, error) {
			inv.Report(domain.Progress{Content: domain.Contents{domain.Text(huge), nil}})
			return "", domain.Fail("after progress")
		},
	}
	return ways[c.random.IntN(len(ways))]
}

func (c *chaos) tool() domain.Tool {
	c.t.Helper()
	do, present := c.hostile(), c.random.IntN(8)
	return made(c.t, domain.Spec[empty, string]{
		Execute: func(ctx context.Context, _ empty, inv domain.Invocation) (string, error) { return do(ctx, inv) },
		Present: func(_ empty, out domain.Encoded[string]) []domain.Content {
			switch present {
			case 0:
				panic("no presentation")
			case 1:
				return []domain.Content{nil}
			case 2:
				return many(5000, domain.Text(""))
			case 3:
				return []domain.Content{domain.Media{MIME: "a/a", Data: make([]byte, 6<<20)}}
			}
			return []domain.Content{domain.Text(out.JSON())}
		},
	})
}

// config returns a Config that sometimes has hostile hooks and storage.
func (c *chaos) config(policy registry.StalenessPolicy) registry.Config {
	config := registry.Config{Policy: policy}
	if c.random.IntN(3) == 0 {
		do := c.hostile()
		config.Before = []registry.Before{func(ctx context.Context, inv domain.Invocation, call domain.Call) (json.RawMessage, error) {
			_, err := do(ctx, inv)
			return call.Input, err
		}}
	}
	if c.random.IntN(3) == 0 {
		do := c.hostile()
		config.After = []registry.After{func(ctx context.Context, inv domain.Invocation, _ domain.Call, out domain.Output) (domain.Contents, error) {
			_, err := do(ctx, inv)
			return out.Content(), err
		}}
	}
	if c.random.IntN(3) == 0 {
		do := c.hostile()
		config.Outputs = hung{newDrawer(), func(ctx context.Context) error { _, err := do(ctx, c.as); return err }}
	}
	return config
}

var chaosNames = []string{"a", "b", "c"}

func (c *chaos) any() string { return chaosNames[c.random.IntN(len(chaosNames))] }

// step makes one random change, or takes a turn.
func (c *chaos) step(ctx context.Context, calls *sync.WaitGroup) {
	ways := []mishap{none, none, none, nothing, added}
	way := ways[c.random.IntN(len(ways))]
	c.store.suffer(func(s events.Stream) mishap {
		if s == c.session() {
			return none
		}
		return way
	})
	switch c.random.IntN(8) {
	case 0, 1, 2:
		s := c.overlaid[c.random.IntN(len(c.overlaid))].Scope()
		_ = s.Register(ctx, registry.Tools{c.any(): c.tool(), c.any(): c.tool()})
		c.scopes = append(c.scopes, s)
	case 3:
		if len(c.scopes) > 0 {
			_ = c.scopes[c.random.IntN(len(c.scopes))].Close(ctx)
		}
	case 4:
		time.Sleep(time.Duration(c.random.IntN(3000)) * time.Millisecond)
	default:
		c.ask(ctx, calls)
	}
}

// ask takes a turn and settles the calls of its reply at once, some of them
// twice.
func (c *chaos) ask(ctx context.Context, calls *sync.WaitGroup) {
	r := c.reg[c.random.IntN(len(c.reg))]
	m, err := r.Materialize(ctx, registry.TurnSpec{ID: c.mint.Turn()})
	if err != nil {
		wantIs(c.t, "Materialize", err, registry.ErrUnrecorded)
		return
	}
	as := c.as
	as.Message = c.mint.Message()
	var asked []domain.Call
	for range 1 + c.random.IntN(3) {
		inputs := []string{`{}`, `{}`, `{}`, ``, `{"unknown":1}`, `{"cut`, `[]`}
		names := []string{c.any(), c.any(), c.any(), "missing", strings.Repeat("n", 100_000), ""}
		asked = append(asked, ask(c.mint.Turn().String(), names[c.random.IntN(len(names))], inputs[c.random.IntN(len(inputs))]))
	}
	offer := m.Offer()
	for i, a := range asked {
		if len(a.Input) > 0 && !json.Valid(a.Input) { // as a runner records it
			asked[i].Input, _ = json.Marshal(string(a.Input))
		}
	}
	for _, e := range []events.Event{
		events.TurnMaterialized{Turn: offer.Turn, Message: as.Message, Agent: "build", Tools: offer.Tools},
		events.ReplyReceived{Turn: offer.Turn, Message: as.Message, Calls: asked},
	} {
		if _, err := c.journal.writer.Append(ctx, c.ledger.Draft(e, domain.EventID{})); err != nil {
			c.t.Fatal(err)
		}
	}
	if c.random.IntN(3) == 0 {
		m = r.Recall(offer)
	}
	c.asked = append(c.asked, asked...)
	for _, a := range asked {
		c.journal.expect(as.Message, registry.Recorded{Call: a})
		for range 1 + c.random.IntN(2) {
			limited, cancel := context.WithTimeoutCause(ctx, time.Duration(c.random.IntN(8000))*time.Millisecond, domain.ByUser)
			calls.Go(func() {
				defer cancel()
				end, err := m.Settle(limited, c.journal, as, a)
				if err != nil {
					if !errors.Is(err, domain.ErrInterrupted) { // of one that joined and was interrupted
						c.t.Errorf("Settle(%s %.20q) = %v, want a settlement", a.ID, a.Name, err)
					}
					return
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				c.answers[a.ID] = append(c.answers[a.ID], end)
			})
		}
	}
}

// check fails the test unless the log keeps the laws of calls, after all calls have
// ended.
func (c *chaos) check() {
	ends := map[domain.CallID][]domain.Settlement{}
	for _, v := range c.read(c.session()) {
		if e, ok := v.Event.(events.CallSettled); ok {
			ends[e.Call] = append(ends[e.Call], e.Settlement(v.ID))
			if len(e.Text) > 51200 || e.Progress != nil && len(e.Progress.Content.Text()) > 51200+200 {
				c.t.Errorf("the end of %s has a text of %d bytes", e.Call, len(e.Text))
			}
		}
	}
	for _, a := range c.asked {
		if len(ends[a.ID]) != 1 {
			c.t.Errorf("call %s of %.20q has %d ends, want 1", a.ID, a.Name, len(ends[a.ID]))
			continue
		}
		end := ends[a.ID][0]
		if reading := end.ToolResult(); end.Outcome != domain.Succeeded && (reading.Type() != "error" || strings.TrimSpace(reading.Error) == "") {
			c.t.Errorf("call %s ended %v and reads as %s %q", a.ID, end.Outcome, reading.Type(), reading.Error)
		}
		for _, answer := range c.answers[a.ID] {
			if diff := cmp.Diff(end, answer, private, sameBytes); diff != "" {
				c.t.Errorf("call %s was answered otherwise than recorded (-record +answer):\n%.2000s", a.ID, diff)
			}
		}
	}
	c.wantLawful()
}

// Every call has exactly one end, with any behaviour of foreign code.
func TestEachCallHasOneEndWhateverForeignCodeDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rounds(4, 400)) {
		synctest.Test(t, func(t *testing.T) {
			c := &chaos{world: newProcess(t, newWorld(t).store, byte(seed)), random: rand.New(rand.NewPCG(seed, 18)), release: make(chan struct{}), answers: map[domain.CallID][]domain.Settlement{}}
			opened := events.SessionOpened{Session: c.as.Session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}
			if _, err := c.journal.writer.Append(t.Context(), c.ledger.Draft(opened, domain.EventID{})); err != nil {
				t.Fatal(err)
			}
			c.overlaid = []*registry.Layer{c.application(), c.location("/src"), c.layer(c.layers.Session(t.Context(), c.as.Session))}
			for _, policy := range []registry.StalenessPolicy{registry.Strict, registry.ByFingerprint, registry.Admitted} {
				c.reg = append(c.reg, c.registry(c.config(policy), c.overlaid...))
			}
			var calls sync.WaitGroup
			for range 60 {
				c.step(t.Context(), &calls)
			}
			c.store.recover()
			calls.Wait()
			close(c.release)
			if err := c.layers.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.check()
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}
