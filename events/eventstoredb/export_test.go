package eventstoredb

import (
	"context"
	"log/slog"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// SetLifetime bounds the life of each subscription that begins later.
func (s *Store) SetLifetime(d time.Duration) { s.lifetime = d }

// Narrowed is what the server is asked to filter by.
func (s *Store) Narrowed(f events.Filter) *esdb.SubscriptionFilter { return s.narrowed(f) }

// Parse is what the client is told of a connection string.
func Parse(connectionString string) (*esdb.Configuration, error) {
	return parse(connectionString, slog.New(slog.DiscardHandler))
}

// Unexpected is the format that the guard waits for.
const Unexpected = unexpected

// VisitAs visits with addresses of names that are the test's.
func VisitAs(ctx context.Context, connectionString string, v Visiting, lookup func(context.Context, string) ([]string, error)) ([]Node, error) {
	v.lookup = lookup
	return Visit(ctx, connectionString, v)
}

// Limit is how many bytes an append may have.
func (s *Store) Limit() int { return s.limit() }

// LargeMaxAppend is what a server from 25.1 on takes.
const LargeMaxAppend = largeMaxAppend
