package eventstoredb

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// An Interference is an event by which somebody has the server hide records of the
// ledger, or delete them: metadata of a stream, or a tombstone. What is hidden is
// still in the log until the next scavenge, and Scan of all streams yields it.
type Interference struct {
	Stream   events.Stream
	Name     string // of the stream in the database, with the namespace
	Position events.Position
	Event    string    // the ID of the event, a UUID
	Time     time.Time // when the server took it
	Metadata string    // of the stream, as written; empty for a tombstone

	Tombstone bool            // the stream is deleted for good, all its records with it
	Before    events.Revision // the records through this one are hidden: $tb
	MaxCount  uint64          // but the last so many are hidden; 0: not limited
	MaxAge    time.Duration   // older ones are hidden; 0: not limited
	Undone    bool            // later metadata of the stream hide nothing
}

// Hides reports whether, at the time now, i hides the record of revision r of its
// stream. The record was appended at the time at, and length is that of the stream.
func (i Interference) Hides(r events.Revision, at time.Time, length events.Revision, now time.Time) bool {
	switch {
	case i.Undone:
		return false
	case i.Tombstone, r <= i.Before:
		return true
	case i.MaxCount > 0 && uint64(r)+i.MaxCount <= uint64(length):
		return true
	}
	return i.MaxAge > 0 && now.Sub(at) > i.MaxAge
}

// The types of the events that hide or delete records.
const (
	typeMetadata  = "$metadata"
	typeTombstone = "$streamDeleted"
)

// Interferences returns for each stream of the ledger the last event by which
// somebody hid or deleted records of it, in the order of the log. The server looks
// through all of its log for them.
func (s *Store) Interferences(ctx context.Context) ([]Interference, error) {
	ctx, free := s.bound(ctx)
	defer free()
	end, err := s.last(ctx)
	if err != nil {
		return nil, told(ctx, "look for deletions", err)
	}
	last, seen := map[events.Stream]Interference{}, events.Position{}
	filter := &esdb.SubscriptionFilter{Type: esdb.EventFilterType, Prefixes: []string{typeMetadata, typeTombstone}}
	err = s.drain(ctx, func() source { return subscribing(seen, filter) }, func(m message) (bool, error) {
		switch {
		case m.event != nil:
			seen = place(m.event.Position)
			s.interferes(last, m.event)
		case m.place != nil:
			seen = later(seen, place(*m.place))
		}
		return !m.caughtUp && seen.Compare(end) < 0, context.Cause(ctx)
	})
	if err != nil {
		return nil, told(ctx, "look for deletions", err)
	}
	var all []Interference
	for _, i := range last {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Interference) int { return a.Position.Compare(b.Position) })
	return all, nil
}

// tombstone reports whether an event is the end of a stream that was deleted for
// good. It has the number that no other event has.
func tombstone(e *esdb.RecordedEvent) bool {
	return e.EventType == typeTombstone && e.EventNumber == math.MaxInt64
}

// interferes takes in an event of metadata, or a tombstone.
func (s *Store) interferes(last map[events.Stream]Interference, e *esdb.RecordedEvent) {
	name, ofMetadata := strings.CutPrefix(e.StreamID, system+system)
	stream, ours := s.stream(name)
	if !ours || last[stream].Tombstone {
		return
	}
	i := Interference{Stream: stream, Name: name, Position: place(e.Position), Event: e.EventID.String(), Time: e.CreatedDate.UTC()}
	switch {
	case tombstone(e) && !ofMetadata:
		i.Tombstone = true
	case e.EventType != typeMetadata || !ofMetadata:
		return
	case !i.parse(e.Data):
		if before, ok := last[stream]; ok {
			before.Undone = true
			last[stream] = before
		}
		return
	}
	last[stream] = i
}

// parse takes in the metadata of a stream, and reports whether they hide records.
func (i *Interference) parse(metadata []byte) bool {
	var m struct {
		Before   int64 `json:"$tb"`
		MaxCount int64 `json:"$maxCount"`
		MaxAge   int64 `json:"$maxAge"` // seconds
	}
	if json.Unmarshal(metadata, &m) != nil {
		return false
	}
	i.Metadata = string(metadata)
	i.Before = events.Revision(max(0, m.Before))
	i.MaxCount = uint64(max(0, m.MaxCount))
	i.MaxAge = time.Duration(min(max(0, m.MaxAge), math.MaxInt64/int64(time.Second))) * time.Second
	return i.Before > 0 || i.MaxCount > 0 || i.MaxAge > 0
}
