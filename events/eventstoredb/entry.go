package eventstoredb

import (
	"fmt"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

// systemPrefix begins the names of the server's own streams.
const systemPrefix = "$"

// ledgerStream returns the stream of the ledger that one of the database is, and
// whether it is one.
func (s *Store) ledgerStream(name string) (events.Stream, bool) {
	rest, ok := strings.CutPrefix(name, s.namespace)
	return events.Stream(rest), ok && rest != "" && !strings.HasPrefix(name, systemPrefix)
}

// ledgerStreamOf returns the stream of the ledger that an event is a record of, and whether
// it is one. A tombstone is the server's own, though it stands in the stream.
func (s *Store) ledgerStreamOf(e *esdb.RecordedEvent) (events.Stream, bool) {
	stream, ours := s.ledgerStream(e.StreamID)
	return stream, ours && !isTombstone(e)
}

// positionOf returns where an event stands in the log.
func positionOf(at esdb.Position) events.Position { return events.NewPosition(at.Commit, at.Prepare) }

// clientPosition returns the position of the client.
func clientPosition(p events.Position) esdb.Position {
	commit, prepare := p.Parts()
	return esdb.Position{Commit: commit, Prepare: prepare}
}

// entry returns an event of the client as an entry of a stream.
func (s *Store) entry(stream events.Stream, e *esdb.RecordedEvent) (events.Entry, error) {
	at := positionOf(e.Position)
	record, _, err := mapping.RawEvent{ID: e.EventID, Type: e.EventType, Data: e.Data, Metadata: e.UserMetadata, Created: e.CreatedDate, ContentType: e.ContentType}.Record()
	if err != nil {
		return events.Entry{}, &events.DamagedRecord{Position: at, Err: fmt.Errorf("read entry %d of %s at position %s: %w", e.EventNumber+1, stream, at, err)}
	}
	s.advanceEnd(at)
	return events.Entry{Record: record, Stream: stream, Revision: events.Revision(e.EventNumber) + 1, Position: at}, nil
}

// sameRecord reports whether two records are the same in all fields.
func sameRecord(a, b events.Record) bool {
	return a.ID == b.ID && a.Kind == b.Kind && a.Version == b.Version && a.Time.Equal(b.Time) &&
		string(a.Data) == string(b.Data) && string(a.Metadata) == string(b.Metadata)
}
