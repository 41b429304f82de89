package eventstoredb

import (
	"context"
	"log/slog"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// SetSubscriptionLifetime bounds the life of each subscription that begins later.
func (s *Store) SetSubscriptionLifetime(d time.Duration) { s.subscriptionLifetime = d }

// ServerFilter is what the server is asked to filter by.
func (s *Store) ServerFilter(f events.Filter) *esdb.SubscriptionFilter { return s.serverFilter(f) }

// ParseConnectionString is what the client is told of a connection string.
func ParseConnectionString(connectionString string) (*esdb.Configuration, error) {
	return parseConnectionString(connectionString, slog.New(slog.DiscardHandler))
}

// LogCallFailed is the format that the guard waits for.
const LogCallFailed = logCallFailed

// ProbeAs visits with addresses of names that are the test's.
func ProbeAs(ctx context.Context, connectionString string, v ProbeConfig, lookup func(context.Context, string) ([]string, error)) ([]Node, error) {
	v.lookup = lookup
	return Probe(ctx, connectionString, v)
}

// MaxAppendBytes is how many bytes an append may have.
func (s *Store) MaxAppendBytes() int { return s.maxAppendBytes() }

// LargeMaxAppend is what a server from 25.1 on takes.
const LargeMaxAppend = largeMaxAppend
