package calls_test

import (
	"fmt"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// register registers a tool in a layer and returns it as a turn would offer it.
func (d *desk) register(layer domain.LayerID, name domain.Name) domain.Offered {
	tool := projectionstest.Tool(name, "another")
	r := d.log.Add(events.LayerStream(layer), events.ToolsRegistered{Scope: d.log.Mint.Scope(), Tools: []events.RegisteredTool{tool}})
	return domain.Offered{Name: name, Registration: domain.RegistrationOf(r.ID), Layer: layer, Fingerprint: tool.Fingerprint}
}

// open opens a layer of a placement and returns its ID.
func (d *desk) open(p domain.Placement) domain.LayerID {
	layer := d.log.Mint.Layer()
	d.log.Add(events.LayerStream(layer), events.LayerOpened{Layer: layer, Placement: p})
	return layer
}

// prompt appends a prompt.
func (d *desk) prompt() events.Envelope {
	return d.add(events.PromptAdmitted{Message: d.log.Mint.Message(), Text: "go on"})
}

// offer appends a turn that offers tools.
func (d *desk) offer(tools ...domain.Offered) events.Envelope {
	return d.add(events.TurnMaterialized{Turn: d.log.Mint.Turn(), Message: d.log.Mint.Message(), Tools: tools})
}

// notLive checks that the exceptions of the history are breaches of NotLive at these
// events, and no others.
func (d *desk) notLive(t *testing.T, at ...events.Envelope) {
	t.Helper()
	found := d.state().Exceptions()
	ok := len(found) == len(at)
	for i := range found {
		ok = ok && found[i].Law == calls.NotLive && found[i].Event == at[i].ID
	}
	if !ok {
		t.Errorf("Exceptions = %+v, want %d of %q", found, len(at), calls.NotLive)
	}
}

// A turn that offers a tool which a later registration of its layer, or a higher
// layer that the turn names, had hidden before is a breach.
func TestOfferingAHiddenToolIsAnException(t *testing.T) {
	t.Parallel()
	for name, offer := range map[string]func(*desk) events.Envelope{
		"a later registration in its layer": func(d *desk) events.Envelope {
			d.register(d.layer, "read")
			d.prompt()
			return d.offer(d.offers...)
		},
		"one of several later ones": func(d *desk) events.Envelope {
			hides := d.register(d.layer, "read")
			d.register(d.layer, "read")
			d.log.Add(events.LayerStream(d.layer), events.RegistrationClosed{Registration: hides.Registration})
			d.prompt()
			return d.offer(d.offers...)
		},
		"a layer above that the turn offers from": func(d *desk) events.Envelope {
			hidden := d.register(d.open(domain.Application), "read")
			d.prompt()
			return d.offer(hidden, d.offers[1])
		},
		"a layer above whose tool the turn hides": func(d *desk) events.Envelope {
			hidden := d.register(d.open(domain.Application), "read")
			d.prompt()
			// The turn names no higher layer, so the log does not show that the tool
			// is hidden.
			d.offer(hidden)
			d.prompt()
			return d.add(events.TurnMaterialized{
				Turn: d.log.Mint.Turn(), Message: d.log.Mint.Message(), Tools: []domain.Offered{hidden},
				Hidden: []events.HiddenTool{{Offered: d.offers[1]}},
			})
		},
		"a later one that the turn before could not know": func(d *desk) events.Envelope {
			d.register(d.layer, "read")
			d.offer(d.offers...)
			return d.offer(d.offers...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk()
			d.notLive(t, offer(d))
		})
	}
}

// A turn may offer a tool that was in effect at some time after the event that caused
// the turn. An observed turn may offer any tool.
func TestATurnMayOfferAToolThatWasInEffectWhenItWasMaterialized(t *testing.T) {
	t.Parallel()
	for name, offer := range map[string]func(*desk){
		"registered beside the turn": func(d *desk) {
			d.register(d.layer, "read")
			d.offer(d.offers...)
		},
		"revealed again": func(d *desk) {
			hides := d.register(d.layer, "read")
			d.prompt()
			d.log.Add(events.LayerStream(d.layer), events.RegistrationClosed{Registration: hides.Registration})
			d.offer(d.offers...)
		},
		"revealed by the end of a layer": func(d *desk) {
			hidden := d.register(d.open(domain.Application), "read")
			d.log.Add(events.LayerStream(d.layer), events.LayerClosed{Layer: d.layer})
			d.prompt()
			d.offer(hidden)
		},
		"another location has the name": func(d *desk) {
			d.register(d.open(domain.PerSession), "read")
			d.prompt()
			d.offer(d.offers...)
		},
		"a layer below has the name": func(d *desk) {
			below := d.open(domain.Application)
			d.register(below, "read")
			grep := d.register(below, "grep")
			d.prompt()
			d.offer(append([]domain.Offered{grep}, d.offers...)...)
		},
		"the later registration itself": func(d *desk) {
			again := d.register(d.layer, "read")
			d.prompt()
			d.offer(again, d.offers[1])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk()
			offer(d)
			d.notLive(t)
		})
	}
	t.Run("only observed", func(t *testing.T) {
		t.Parallel()
		d := newImport()
		d.register(d.layer, "read")
		d.prompt()
		d.materialize()
		d.notLive(t)
	})
}

// A prompt can be appended between the materialization of a turn and the event that
// records it. A change of layers before that prompt does not make the offer a breach
// if an earlier event caused the turn.
func TestATurnIsCheckedAgainstTheEventThatCausedIt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*desk){
		"a closing": func(d *desk) {
			d.log.Add(events.LayerStream(d.layer), events.RegistrationClosed{Registration: d.offers[0].Registration})
		},
		"a registration": func(d *desk) { d.register(d.layer, "read"); d.register(d.layer, "write") },
	} {
		for _, beside := range []bool{false, true} {
			d := newDesk()
			led := d.add(events.ReplyReceived{Turn: d.turn, Message: d.message, Text: "done"})
			change(d)
			prompt := d.prompt()
			turn := d.offer(d.offers...)
			history := d.log.Envelopes()
			cause, want := prompt.ID, len(d.offers)
			if beside {
				cause, want = led.ID, 0
			}
			for i := range history {
				if history[i].ID == turn.ID {
					history[i].Causation = cause
				}
			}
			if found := fold(history).Exceptions(); len(found) != want {
				t.Errorf("%s, with the prompt beside the turn %t: Exceptions = %+v, want %d", name, beside, found, want)
			}
		}
	}
}

// The texts of a turn are appended with it. A change of layers between the event that
// caused the turn and its texts is no breach, and a change before that event is one.
func TestTheTextsOfATurnDoNotMoveItsCause(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		d := newDesk()
		closing := func() {
			d.log.Add(events.LayerStream(d.layer), events.RegistrationClosed{Registration: d.offers[0].Registration})
		}
		if before {
			closing()
		}
		prompt := d.prompt()
		if !before {
			closing()
		}
		d.add(events.TextRecorded{Digest: "d", Text: "You are an agent."})
		turn := d.offer(d.offers...)
		history := d.log.Envelopes()
		for i := range history {
			if history[i].ID == turn.ID {
				history[i].Causation = prompt.ID
			}
		}
		want := 0
		if before {
			want = len(d.offers)
		}
		if found := fold(history).Exceptions(); len(found) != want {
			t.Errorf("closed before the cause %t: Exceptions = %+v, want %d", before, found, want)
		}
	}
}

// An offer that was in effect once is checked again after a change of layers or
// registrations.
func TestATurnIsCheckedAgainAfterAChange(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.offer(d.offers[0])
	d.log.Add(events.LayerStream(d.layer), events.RegistrationClosed{Registration: d.offers[0].Registration})
	d.prompt()
	d.notLive(t, d.offer(d.offers[0]))
}

// A state from a checkpoint finds hidden offers as the state before it.
func TestHiddenOffersAreFoundAfterACheckpoint(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.register(d.layer, "read")
	d.register(d.layer, "read")
	d.prompt()
	data, err := projections.Pack(d.state())
	if err != nil {
		t.Fatal(err)
	}
	s := calls.New()
	if err := s.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	s = calls.Projection().Apply(s, d.offer(d.offers...))
	if got, want := fmt.Sprint(s.Exceptions()), fmt.Sprint(d.state().Exceptions()); got != want || len(s.Exceptions()) != 1 {
		t.Errorf("from a checkpoint Exceptions = %s, want %s", got, want)
	}
}

// A layer ends at its first closing; a repeated one does not move the end.
func TestTheFirstClosingOfALayerCounts(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.log.Add(events.LayerStream(d.layer), events.LayerClosed{Layer: d.layer})
	d.prompt()
	d.log.Add(events.LayerStream(d.layer), events.LayerClosed{Layer: d.layer})
	d.notLive(t, d.offer(d.offers[0]))
}

// A registration ends at its first closing; a repeated one does not move the end.
func TestTheFirstClosingOfARegistrationCounts(t *testing.T) {
	t.Parallel()
	d := newDesk()
	closing := events.RegistrationClosed{Registration: d.offers[0].Registration}
	d.log.Add(events.LayerStream(d.layer), closing)
	d.prompt()
	d.log.Add(events.LayerStream(d.layer), closing)
	d.notLive(t, d.offer(d.offers[0]))
}
