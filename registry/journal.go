package registry

import (
	"context"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Journal keeps the two facts that bracket a call of a session: its start,
// an [events.CallStarted], and its end, an [events.CallSettled]. What it is
// given to keep is durable when it returns nil. It is safe for concurrent use
// and returns when its context ends: Settle waits for it on its own goroutine.
type Journal interface {
	// Recorded returns what is on record of a call.
	Recorded(ctx context.Context, message domain.MessageID, call domain.CallID) (Recorded, error)
	// Begin keeps the start. If it returns an error the tool does not run. An
	// error for which [events.Refused] is true says that the start is not on
	// record; after any other, Settle first makes certain that it is.
	Begin(ctx context.Context, start events.Draft) error
	// Settle keeps the end. An end that has no wire form is an
	// [events.ErrBadRecord], one too large for the store an
	// [events.ErrTooLarge]: neither was kept, and another is given instead.
	Settle(ctx context.Context, end events.Draft) error
	// Late keeps an [events.LateResultObserved]: a result that came after the
	// end.
	Late(ctx context.Context, late events.Draft) error
}

// A Recorded says what is on record of a call. The zero Recorded is nothing.
type Recorded struct {
	Call       domain.Call        // as started or settled; its input as asked
	Began      bool               // its start is on record
	Settlement *domain.Settlement // its end; nil where there is none
}
