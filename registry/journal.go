package registry

import (
	"context"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Journal records the start and the end of calls of a session: an [events.CallStarted]
// and an [events.CallSettled]. An event is durable when its method returns nil. A Journal
// is safe for concurrent use. Settle calls it on its own goroutine, so each method must
// return when its context ends.
type Journal interface {
	// Recorded returns the record of a call. An error ends Settle before it has resolved
	// the call.
	Recorded(ctx context.Context, message domain.MessageID, call domain.CallID) (Recorded, error)
	// Begin records the start. If it returns an error the tool does not run. An error for
	// which [events.Refused] is true means that the start is not on record. After any
	// other error the outcome is unknown, and a later Settle of the call must first put
	// the start on record.
	Begin(ctx context.Context, start events.Draft) error
	// Settle records the end. It returns [events.ErrBadRecord] for an end that
	// has no wire form and [events.ErrTooLarge] for one that is too large for
	// the store: both are not on record, and the registry passes another end.
	Settle(ctx context.Context, end events.Draft) error
	// Late records an [events.LateResultObserved]: a result that a tool returned
	// after its call had ended.
	Late(ctx context.Context, late events.Draft) error
}

// A Recorded is the record of a call. The zero Recorded is that of a call with neither a
// start nor an end on record.
type Recorded struct {
	// Call is the call as started or settled, with its input as the model asked.
	Call domain.Call
	// Began is set if its start is on record.
	Began bool
	// Settlement is its end. Nil: it has no end on record.
	Settlement *domain.Settlement
}
