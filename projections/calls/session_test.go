package calls_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// The first setting of the model or location fills a field that the opening left
// empty; the last spawn event sets the parent.
func TestASettingFillsAFieldThatTheOpeningLeftEmpty(t *testing.T) {
	t.Parallel()
	mint := domain.NewMint(time.Now, rand.Reader)
	id, parent, other := mint.Session(), mint.Session(), mint.Session()
	p := calls.Projection()
	s := p.Init()
	for i, e := range []events.Event{
		events.SessionOpened{Session: id, Agent: "a", Origin: events.Origin{Kind: events.Imported}},
		events.SettingChanged{Setting: events.SettingModel, Value: "m-1"},
		events.SettingChanged{Setting: events.SettingModel, Value: "m-2"},
		events.SettingChanged{Setting: events.SettingLocation, Value: "/w"},
		events.SettingChanged{Setting: events.SettingPermissionMode, Value: "plan"},
		events.SessionSpawned{Parent: other},
		events.SessionSpawned{Parent: parent, Message: mint.Message(), Call: "c"},
	} {
		s = p.Apply(s, events.Envelope{ID: mint.Event(), Stream: events.SessionStream(id), Revision: events.Revision(i + 1), Event: e})
	}
	got := s.Sessions()[0]
	if got.Model != "m-1" || got.Location != "/w" || got.Parent != parent {
		t.Errorf("the session is of model %q in %q with parent %v, want m-1, /w and %v", got.Model, got.Location, got.Parent, parent)
	}
}
