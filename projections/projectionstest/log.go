package projectionstest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Log makes envelopes by hand, as a reader of a store would yield them:
// encoded, decoded, with revisions and positions. Its clock and its IDs follow
// from its seed. It is not safe for concurrent use.
type Log struct {
	Mint      *domain.Mint
	Rand      *rand.Rand
	now       time.Time
	envelopes []events.Envelope
	lengths   map[events.Stream]events.Revision
}

// NewLog returns an empty log.
func NewLog(seed uint64) *Log {
	l := &Log{
		Rand: rand.New(rand.NewPCG(seed, 0)), lengths: map[events.Stream]events.Revision{},
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	l.Mint = domain.NewMint(func() time.Time { return l.now }, source{l.Rand})
	return l
}

// source reads randomness from a generator.
type source struct{ rand *rand.Rand }

// Read fills p.
func (s source) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.rand.Uint32())
	}
	return len(p), nil
}

var _ io.Reader = source{}

// Envelopes returns what was added, in order.
func (l *Log) Envelopes() []events.Envelope { return l.envelopes }

// Add adds an event to a stream and returns its envelope. It panics if the
// event cannot be encoded, as nobody could have appended it.
func (l *Log) Add(s events.Stream, e events.Event) events.Envelope {
	return l.AddAs(l.Mint.Event(), s, e)
}

// AddAs adds an event under an ID of its own, as a settlement needs it whose
// outputs are named by it.
func (l *Log) AddAs(id domain.EventID, s events.Stream, e events.Event) events.Envelope {
	l.now = l.now.Add(time.Duration(1+l.Rand.IntN(900)) * time.Millisecond)
	session, _ := s.Session()
	record, err := events.Encode(events.Draft{ID: id, Time: l.now, Correlation: session, Event: e})
	if err == nil {
		err = record.Valid()
	}
	if err != nil {
		panic(fmt.Sprintf("projectionstest: add to %s: %v", s, err))
	}
	l.lengths[s]++
	seq := uint64(len(l.envelopes)+1) * 3 // positions increase, and that is all
	v, err := events.Decode(events.Entry{Record: record, Stream: s, Revision: l.lengths[s], Position: events.NewPosition(seq, seq)})
	if err != nil {
		panic(fmt.Sprintf("projectionstest: add to %s: %v", s, err))
	}
	l.envelopes = append(l.envelopes, v)
	return v
}

// Tool returns a registered tool of a name. Two with the same words are the
// same definition.
func Tool(name domain.Name, words string) events.RegisteredTool {
	d := domain.Definition{
		Name: name, Description: words, Input: json.RawMessage(`{"type":"object"}`), Output: json.RawMessage(`{}`),
	}
	fingerprint, err := d.Fingerprint(string(name))
	if err != nil {
		panic(fmt.Sprintf("projectionstest: fingerprint %s: %v", name, err))
	}
	return events.RegisteredTool{
		Name: name, Description: words, Input: d.Input, Output: d.Output, Action: string(name), Fingerprint: fingerprint,
	}
}

// Append appends the events of a history to a store, each to its stream, under
// the IDs that they have. Their positions are those that the store gives.
func Append(ctx context.Context, store events.Store, history []events.Envelope) error {
	for _, v := range history {
		r, err := events.Encode(events.Draft{ID: v.ID, Time: v.Time, Correlation: v.Correlation, Causation: v.Causation, Event: v.Event})
		if err != nil {
			return err
		}
		if err := store.Append(ctx, v.Stream, v.Revision-1, r); err != nil {
			return fmt.Errorf("append revision %d: %w", v.Revision, err)
		}
	}
	return nil
}
