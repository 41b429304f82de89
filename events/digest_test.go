package events_test

import (
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

func digestOf(entries ...events.Entry) string {
	d := events.NewDigest()
	for _, e := range entries {
		d.Add(e)
	}
	return d.String()
}

// The digest sees every field but the position, and the order.
func TestDigestCoversEveryFieldButThePosition(t *testing.T) {
	t.Parallel()
	base := events.Entry{
		Record: events.Record{Kind: "A", Version: 1, Time: time.Unix(1, 0).UTC(), Data: []byte(`{"a":1}`), Metadata: []byte(`{}`)},
		Stream: "session-x", Revision: 1, Position: events.NewPosition(7, 7),
	}
	want := digestOf(base)
	const fixed = "0868d015d21024059023716346b5130139f66965c0b7b67567d1d88c5794039f"
	if want != fixed {
		t.Errorf("digest = %s, want %s for ever", want, fixed)
	}
	moved := base
	moved.Position = events.NewPosition(9, 8)
	if got := digestOf(moved); got != want {
		t.Errorf("digest at another position = %s, want %s", got, want)
	}
	for name, change := range map[string]func(*events.Entry){
		"stream":   func(e *events.Entry) { e.Stream = "session-y" },
		"revision": func(e *events.Entry) { e.Revision++ },
		"id":       func(e *events.Entry) { e.ID = domain.NewMint(time.Now, zeros{}).Event() },
		"kind":     func(e *events.Entry) { e.Kind = "B" },
		"version":  func(e *events.Entry) { e.Version++ },
		"time":     func(e *events.Entry) { e.Time = e.Time.Add(time.Microsecond) },
		"data":     func(e *events.Entry) { e.Data = []byte(`{"a":2}`) },
		"metadata": func(e *events.Entry) { e.Metadata = nil },
		"border":   func(e *events.Entry) { e.Data, e.Metadata = []byte(`{"a":1}{`), []byte(`}`) },
		"names":    func(e *events.Entry) { e.Stream, e.Kind = "session-", "xA" },
	} {
		other := base
		change(&other)
		if digestOf(other) == want {
			t.Errorf("digest with another %s is the same", name)
		}
	}
	other := base
	other.Revision = 2
	if digestOf(base, other) == digestOf(other, base) {
		t.Error("digest in another order is the same")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
