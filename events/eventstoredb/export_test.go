package eventstoredb

import (
	"context"
	"log/slog"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// SetSubscriptionLifetime sets the lifetime of later subscriptions.
func (s *Store) SetSubscriptionLifetime(d time.Duration) { s.subscriptionLifetime = d }

// ServerFilter exports the filter that the server applies.
func (s *Store) ServerFilter(f events.Filter) *esdb.SubscriptionFilter { return s.serverFilter(f) }

// ParseConnectionString exports the configuration of the client.
func ParseConnectionString(connectionString string) (*esdb.Configuration, error) {
	return parseConnectionString(connectionString, slog.New(slog.DiscardHandler))
}

// LogCallFailed exports the log format of a failed call.
const LogCallFailed = logCallFailed

// ProbeAs probes with a resolver of the test.
func ProbeAs(ctx context.Context, connectionString string, v ProbeConfig, lookup func(context.Context, string) ([]string, error)) ([]Node, error) {
	v.lookup = lookup
	return Probe(ctx, connectionString, v)
}

// MaxAppendBytes exports the limit of an append.
func (s *Store) MaxAppendBytes() int { return s.maxAppendBytes() }

// LargeMaxAppend exports the limit from version 25.1.
const LargeMaxAppend = largeMaxAppend
