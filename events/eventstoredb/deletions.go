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

// An Deletion is an event by which somebody has the server hide records of the
// ledger, or delete them: metadata of a stream, or a tombstone. What is hidden is
// still in the log until the next scavenge, and Scan of all streams yields it.
type Deletion struct {
	Stream   events.Stream
	Name     string // of the stream in the database, with the namespace
	Position events.Position
	EventID  string    // the ID of the event, a UUID
	Time     time.Time // when the server took it
	Metadata string    // of the stream, as written; empty for a tombstone

	Tombstone     bool            // the stream is deleted for good, all its records with it
	HiddenThrough events.Revision // the records through this one are hidden: $tb
	MaxCount      uint64          // but the last so many are hidden; 0: not limited
	MaxAge        time.Duration   // older ones are hidden; 0: not limited
	Undone        bool            // later metadata of the stream hide nothing
}

// Hides reports whether, at the time now, i hides the record of revision r of its
// stream. The record was appended at the time at, and length is that of the stream.
func (i Deletion) Hides(r events.Revision, at time.Time, length events.Revision, now time.Time) bool {
	switch {
	case i.Undone:
		return false
	case i.Tombstone, r <= i.HiddenThrough:
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

// Deletions returns for each stream of the ledger the last event by which
// somebody hid or deleted records of it, in the order of the log. The server looks
// through all of its log for them.
func (s *Store) Deletions(ctx context.Context) ([]Deletion, error) {
	ctx, release := s.withStoreLifetime(ctx)
	defer release()
	end, err := s.lastPosition(ctx)
	if err != nil {
		return nil, wrapUnlessCancelled(ctx, "look for deletions", err)
	}
	latest, seen := map[events.Stream]Deletion{}, events.Position{}
	filter := &esdb.SubscriptionFilter{Type: esdb.EventFilterType, Prefixes: []string{typeMetadata, typeTombstone}}
	err = s.consume(ctx, func() fetchFunc { return subscribeAll(seen, filter) }, func(m serverMessage) (bool, error) {
		switch {
		case m.event != nil:
			seen = positionOf(m.event.Position)
			s.recordDeletion(latest, m.event)
		case m.checkpoint != nil:
			seen = laterPosition(seen, positionOf(*m.checkpoint))
		}
		return !m.caughtUp && seen.Compare(end) < 0, context.Cause(ctx)
	})
	if err != nil {
		return nil, wrapUnlessCancelled(ctx, "look for deletions", err)
	}
	var all []Deletion
	for _, i := range latest {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Deletion) int { return a.Position.Compare(b.Position) })
	return all, nil
}

// isTombstone reports whether an event is the end of a stream that was deleted for
// good. It has the number that no other event has.
func isTombstone(e *esdb.RecordedEvent) bool {
	return e.EventType == typeTombstone && e.EventNumber == math.MaxInt64
}

// recordDeletion takes in an event of metadata, or a tombstone.
func (s *Store) recordDeletion(last map[events.Stream]Deletion, e *esdb.RecordedEvent) {
	name, ofMetadata := strings.CutPrefix(e.StreamID, systemPrefix+systemPrefix)
	stream, ours := s.ledgerStream(name)
	if !ours || last[stream].Tombstone {
		return
	}
	i := Deletion{Stream: stream, Name: name, Position: positionOf(e.Position), EventID: e.EventID.String(), Time: e.CreatedDate.UTC()}
	switch {
	case isTombstone(e) && !ofMetadata:
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
func (i *Deletion) parse(metadata []byte) bool {
	var m struct {
		Before   int64 `json:"$tb"`
		MaxCount int64 `json:"$maxCount"`
		MaxAge   int64 `json:"$maxAge"` // seconds
	}
	if json.Unmarshal(metadata, &m) != nil {
		return false
	}
	i.Metadata = string(metadata)
	i.HiddenThrough = events.Revision(max(0, m.Before))
	i.MaxCount = uint64(max(0, m.MaxCount))
	i.MaxAge = time.Duration(min(max(0, m.MaxAge), math.MaxInt64/int64(time.Second))) * time.Second
	return i.HiddenThrough > 0 || i.MaxCount > 0 || i.MaxAge > 0
}
