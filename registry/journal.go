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
	// Recorded returns the record of a call. If it returns an error, Settle of the
	// registry ends with that error and does not resolve the call.
	Recorded(ctx context.Context, message domain.MessageID, call domain.CallID) (Recorded, error)
	// Begin records the start. If it returns an error the tool does not run. An error for
	// which [events.Refused] is true means that the start is not on record. After any
	// other error the outcome is unknown, and a later Settle of the call must first put
	// the start on record.
	Begin(ctx context.Context, start events.Draft) error
	// Settle records the end. It returns [events.ErrBadRecord] for an end that has no
	// wire form and [events.ErrTooLarge] for an end that is too large for the store. In
	// both cases the end is not on record, and the registry passes another end.
	Settle(ctx context.Context, end events.Draft) error
	// Late records an [events.LateResultObserved]: a result that a tool returned
	// after its call had ended.
	Late(ctx context.Context, late events.Draft) error
}

// A Recorded is the record of a call. The zero Recorded means that neither a start nor
// an end of the call is on record.
type Recorded struct {
	// Call is the call as it was started or settled, with the input that the model
	// requested.
	Call domain.Call
	// Began is set if the start of the call is on record.
	Began bool
	// Settlement is the end of the call. Nil: no end is on record.
	Settlement *domain.Settlement
}
