package catalog_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A state that forgets endings has the same tools in effect as one that keeps all, and names
// the same event that displaced a registration or none.
func TestForgettingChangesNothingInEffect(t *testing.T) {
	t.Parallel()
	const keep = 2
	forgot, known := 0, 0
	for seed := range uint64(repeats(20, 200)) {
		p := catalog.Projection()
		whole, short := p.Init(), p.Init()
		for _, v := range projectionstest.History(seed, 300) {
			if !slices.Contains(catalog.Kinds(), v.Event.Kind()) {
				continue
			}
			whole, short = p.Apply(whole, v), p.Apply(short, v)
			short.Forget(keep)
			var layers []domain.LayerID
			ended := 0
			for _, l := range short.Layers() {
				if l.Ended != 0 {
					ended++
					continue
				}
				for _, r := range l.Registrations {
					if r.Ended != 0 {
						ended++
					}
				}
			}
			if ended > 2*keep {
				t.Fatalf("seed %d: %d endings are kept, want %d at most", seed, ended, 2*keep)
			}
			for _, l := range whole.Layers() {
				layers = append(layers, l.ID)
			}
			if diff := cmp.Diff(whole.Catalog(layers), short.Catalog(layers), cmpopts.EquateEmpty(), cmp.AllowUnexported(domain.LayerID{}, domain.RegistrationID{}, domain.ScopeID{})); diff != "" {
				t.Fatalf("seed %d: the catalog (-all +forgetful)\n%s", seed, diff)
			}
			for _, l := range whole.Layers() {
				for _, r := range l.Registrations {
					for _, tool := range r.Tools {
						o := domain.Offered{Name: tool.Name, Registration: r.ID, Layer: l.ID, Fingerprint: tool.Fingerprint}
						want, stale := whole.Displaced(layers, o)
						got, is := short.Displaced(layers, o)
						switch {
						case is != stale, !got.IsZero() && got != want:
							t.Fatalf("seed %d: %s is displaced by %s, %v; want %s, %v", seed, o.Registration, got, is, want, stale)
						case got != want:
							forgot++
						case stale:
							known++
						}
					}
				}
			}
		}
	}
	if forgot == 0 || known == 0 {
		t.Errorf("%d answers were forgotten and %d known, want both", forgot, known)
	}
}

// The size of a state that forgets does not grow with registrations that come and go.
func TestAForgetfulStateDoesNotGrow(t *testing.T) {
	t.Parallel()
	size := func(registrations int) int {
		log := projectionstest.NewLog(1)
		p := catalog.Projection()
		s, layer := p.Init(), log.Mint.Layer()
		add := func(e events.Event) events.Envelope {
			v := log.Add(events.LayerStream(layer), e)
			s = p.Apply(s, v)
			s.Forget(8)
			return v
		}
		add(events.LayerOpened{Layer: layer, Placement: domain.Application})
		for range registrations {
			v := add(events.ToolsRegistered{Tools: []events.RegisteredTool{{Name: "a"}}})
			add(events.RegistrationClosed{Registration: domain.RegistrationOf(v.ID), Reason: events.ScopeClosed})
		}
		l, _ := s.Layer(layer)
		return len(l.Registrations)
	}
	if got := size(1000); got > 17 {
		t.Errorf("%d registrations are kept, want 17 at most", got)
	}
}
