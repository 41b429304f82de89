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

// A Log builds a history by hand, in memory. It encodes and decodes each event and gives it a
// revision and a position, so that its envelopes equal those that a reader of a store gets.
// Its seed determines its times, IDs and random numbers. It is not safe for concurrent use.
type Log struct {
	Mint      *domain.Mint      // of IDs, with the clock and the randomness of the log
	Rand      *rand.Rand        // for callers as well
	now       time.Time         // of the last event; each Add advances it by up to 900 ms
	envelopes []events.Envelope // in the order of positions
	lengths   map[events.Stream]events.Revision
}

// NewLog returns an empty log. Two logs of one seed with the same calls have equal envelopes.
func NewLog(seed uint64) *Log {
	l := &Log{
		Rand: rand.New(rand.NewPCG(seed, 0)), lengths: map[events.Stream]events.Revision{},
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	l.Mint = domain.NewMint(func() time.Time { return l.now }, source{l.Rand})
	return l
}

// A source is an io.Reader of the random bytes of a generator.
type source struct{ rand *rand.Rand }

// Read fills p with random bytes. It never fails.
func (s source) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.rand.Uint32())
	}
	return len(p), nil
}

var _ io.Reader = source{}

// Envelopes returns the envelopes of the log in the order in which they were added. The caller
// does not change the slice.
func (l *Log) Envelopes() []events.Envelope { return l.envelopes }

// Add appends an event to a stream under a new ID and returns its envelope. It panics if the
// event has no encoding or the record is invalid, because no store would accept it.
func (l *Log) Add(s events.Stream, e events.Event) events.Envelope {
	return l.AddAs(l.Mint.Event(), s, e)
}

// AddAs is Add with a given event ID. A settlement with retained outputs needs it: their
// references contain its ID.
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
	seq := uint64(len(l.envelopes)+1) * 3 // not consecutive: a projection may not rely on that
	v, err := events.Decode(events.Entry{Record: record, Stream: s, Revision: l.lengths[s], Position: events.NewPosition(seq, seq)})
	if err != nil {
		panic(fmt.Sprintf("projectionstest: add to %s: %v", s, err))
	}
	l.envelopes = append(l.envelopes, v)
	return v
}

// Tool returns a registered tool with a name and the description words. Two tools with equal
// arguments have equal fingerprints.
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

// Append appends the events of a history to a store, each to its stream, with their IDs,
// times and revisions. The store assigns new positions. The streams of the history must be
// empty in the store.
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
