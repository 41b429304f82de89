package eventstoredb

import (
	"fmt"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

// systemPrefix is the prefix of the server's own streams. The metadata stream of a
// stream has the prefix twice.
const systemPrefix = "$"

// ledgerStream returns the stream of the ledger for a stream name of the database. It
// returns false for a stream of another namespace and for the server's own streams.
func (s *Store) ledgerStream(name string) (events.Stream, bool) {
	rest, ok := strings.CutPrefix(name, s.namespace)
	return events.Stream(rest), ok && rest != "" && !strings.HasPrefix(name, systemPrefix)
}

// ledgerStreamOf returns the stream of the ledger that contains an event. It returns
// false if the event is no record of the ledger: in another stream, or a tombstone.
func (s *Store) ledgerStreamOf(e *esdb.RecordedEvent) (events.Stream, bool) {
	stream, ours := s.ledgerStream(e.StreamID)
	return stream, ours && !isTombstone(e)
}

// positionOf converts a position of the client.
func positionOf(at esdb.Position) events.Position { return events.NewPosition(at.Commit, at.Prepare) }

// clientPosition converts a position to the client's.
func clientPosition(p events.Position) esdb.Position {
	commit, prepare := p.Parts()
	return esdb.Position{Commit: commit, Prepare: prepare}
}

// entry converts an event of the client to an entry of stream. It raises the known end
// of the log to the position of the event. It returns an events.DamagedRecord for an
// event that is not a record. The entry shares its bytes with the event.
func (s *Store) entry(stream events.Stream, e *esdb.RecordedEvent) (events.Entry, error) {
	at := positionOf(e.Position)
	record, _, err := mapping.RawEvent{ID: e.EventID, Type: e.EventType, Data: e.Data, Metadata: e.UserMetadata, Created: e.CreatedDate, ContentType: e.ContentType}.Record()
	if err != nil {
		return events.Entry{}, &events.DamagedRecord{Position: at, Err: fmt.Errorf("read entry %d of %s at position %s: %w", e.EventNumber+1, stream, at, err)}
	}
	s.advanceEnd(at)
	return events.Entry{Record: record, Stream: stream, Revision: events.Revision(e.EventNumber) + 1, Position: at}, nil
}

// sameRecord reports whether two records are equal in all fields. Data and metadata
// must be equal byte for byte.
func sameRecord(a, b events.Record) bool {
	return a.ID == b.ID && a.Kind == b.Kind && a.Version == b.Version && a.Time.Equal(b.Time) &&
		string(a.Data) == string(b.Data) && string(a.Metadata) == string(b.Metadata)
}
