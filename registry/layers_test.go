package registry_test

import (
	"context"
	"testing"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/registry"
)

// openLayers returns the number of layers that are open in the log, and the number of
// all layers.
func (w *world) openLayers() (open, all int) {
	w.t.Helper()
	p := catalog.Projection()
	s, err := projections.Fold(p, p.Init(), w.ledger.ReadAll(context.Background(), events.Position{}))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range s.Layers() {
		if all++; l.Closed.IsZero() {
			open++
		}
	}
	return open, all
}

// Layers.Close closes every layer that the process opened, also a layer whose opening had
// an unknown outcome, and no layer can be opened afterwards.
func TestClosedLayersLeaveNoLayerOpen(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mishap{"nothing was added": nothing, "everything was added": added, "refused": mistaken} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx := t.Context()
			kept, gone := w.location("/kept"), w.location("/gone")
			w.close(gone)
			w.store.suffer(always(m))
			if l, err := w.layers.Application(ctx); err == nil {
				t.Fatalf("Application = %v, want the error of the store", l)
			}
			want := 3
			if m == mistaken {
				want = 2
			} else if err := w.layers.Close(ctx); err == nil {
				t.Fatal("Close = nil while the store fails, want the error")
			}
			w.store.recover()
			w.close(w.layers)
			w.close(w.layers)
			if open, all := w.openLayers(); open != 0 || all != want {
				t.Errorf("%d of %d layers are open, want none of %d", open, all, want)
			}
			w.wantKinds(events.LayerStream(kept.ID()), "LayerOpened", "LayerClosed")
			_, err := w.layers.Location(ctx, "/late")
			wantIs(t, "Location after Close", err, registry.ErrClosed)
		})
	}
}
