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

// A Deletion is an event that makes the server hide or delete records of the ledger:
// stream metadata with a limit, or a tombstone. Such events come from an
// administrator, never from the ledger. The log contains hidden records until the
// next scavenge, and a Scan of all streams yields them until then.
type Deletion struct {
	// Stream is the name in the ledger.
	Stream events.Stream
	// Name is the name of the stream in the database, with the namespace.
	Name string
	// Position is the position of this event in the log.
	Position events.Position
	// EventID is the UUID of this event.
	EventID string
	// Time is when the server stored the event.
	Time time.Time
	// Metadata is the stream metadata as written. Empty: the event is a tombstone.
	Metadata string

	// Tombstone is set if the stream and all of its records are deleted.
	Tombstone bool
	// HiddenThrough is the last revision that the metadata member $tb (truncate before)
	// hides. 0: $tb hides no record.
	HiddenThrough events.Revision
	// MaxCount is the number of the last records that the server shows. 0: no limit.
	MaxCount uint64
	// MaxAge is the age beyond which the server hides records. 0: no limit.
	MaxAge time.Duration
	// Undone is set if later metadata removed all limits.
	Undone bool
}

// Hides reports whether, at the time now, the server hides the record with revision r.
// The argument at is the time at which that record was appended, and length is the
// length of its stream.
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

// The types of events that hide or delete records.
const (
	// typeMetadata is the type of an event in a metadata stream.
	typeMetadata = "$metadata"
	// typeTombstone is the type of the event that deletes a stream for good.
	typeTombstone = "$streamDeleted"
)

// Deletions returns the last Deletion of each stream of the ledger, in log order. The
// server filters its whole log, so the call takes as long as reading the log.
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

// isTombstone reports whether an event is a tombstone, which deletes its stream for
// good. A client can append an event of the same type, but only a tombstone has the
// largest event number.
func isTombstone(e *esdb.RecordedEvent) bool {
	return e.EventType == typeTombstone && e.EventNumber == math.MaxInt64
}

// recordDeletion updates last, which maps each stream to its latest Deletion, with the
// event e. Only an event of a metadata stream or a tombstone has an effect.
// recordDeletion ignores events of streams outside the ledger, and every event of a
// stream after its tombstone.
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

// parse sets the fields of i from stream metadata and reports whether they hide
// records. It returns false for metadata that are not JSON.
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
