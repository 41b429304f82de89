package registry_test

import (
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
)

// A call of a tool that closed hundreds of registrations ago names the event that made its
// offer stale, which the registry reads from the log.
func TestACallOfALongClosedToolNamesItsClosing(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	low, high := w.application(), w.location("/w")
	scope := w.register(low, registry.Tools{"a": p.Tool})
	r := w.registry(registry.Config{}, low, high)
	m := w.materialize(r)
	w.close(scope)
	closing := w.last(low)
	hidden := w.register(low, registry.Tools{"a": p.Tool})
	hiding := w.materialize(r)
	hider := w.register(high, registry.Tools{"a": p.Tool})
	hid := w.last(high)
	w.close(hidden)
	w.close(hider)
	for range 300 {
		w.close(w.register(low, registry.Tools{"a": p.Tool}))
	}
	w.register(low, registry.Tools{"a": p.Tool})
	for id, c := range map[string]struct {
		m    *registry.Materialization
		want domain.EventID
	}{"c": {m, closing}, "d": {hiding, hid}} {
		got := w.settle(c.m, id, "a", `{}`)
		w.want(got, domain.Stale, "Stale tool call: a")
		if got.ChangedBy != c.want {
			t.Errorf("call %s is changed by %s, want %s", id, got.ChangedBy, c.want)
		}
	}
	p.ran(t, 0)
}
