package eventstoredb

import (
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// SetLifetime bounds the life of each subscription that begins later.
func (s *Store) SetLifetime(d time.Duration) { s.lifetime = d }

// Narrowed is what the server is asked to filter by.
func (s *Store) Narrowed(f events.Filter) *esdb.SubscriptionFilter { return s.narrowed(f) }

// Unexpected is the format that the guard waits for.
const Unexpected = unexpected
