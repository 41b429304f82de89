package publish

import (
	"fmt"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"slices"
)

// A DeadLetter identifies a record that the target refused and that the publication
// passed over. The record itself stays in the store.
type DeadLetter struct {
	Event    domain.EventID  `json:"event"`
	Kind     string          `json:"kind"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Position events.Position `json:"position"`
	// Tries counts the attempts, including those of earlier retries.
	Tries int `json:"tries"`
	// LastError is the error of the last attempt.
	LastError LastError `json:"trouble"`
	// Retry reports that a run is to publish the record again.
	Retry bool `json:"again,omitempty"`
}

// is reports whether p refers to the record e.
func (p DeadLetter) is(e events.Entry) bool { return p.Event == e.ID && p.Position == e.Position }

// deadLetter adds the record p to the dead letters of the consumer, or updates its
// DeadLetter if it has one, and finishes the record. At a limit of the policy it
// instead returns an ErrTooManyDeadLetters and leaves the record unfinished, so that
// the next run begins at or before that record. tries is the number of attempts that
// count against the record, and err the error of the last attempt.
func (r *relayRun) deadLetter(p outgoing, tries int, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.mu.consumer
	letter := DeadLetter{
		Event: p.entry.ID, Kind: p.entry.Kind, Stream: p.entry.Stream, Revision: p.entry.Revision, Position: p.entry.Position,
		Tries: tries, LastError: r.recordErrorLocked(err),
	}
	at := slices.IndexFunc(c.DeadLetters, func(q DeadLetter) bool { return q.is(p.entry) })
	switch {
	case at >= 0:
		letter.Tries += c.DeadLetters[at].Tries
		c.DeadLetters[at] = letter
	case r.mu.consecutive >= r.policy.MaxConsecutive:
		return fmt.Errorf("%w: %d in a row, the last because of: %w", ErrTooManyDeadLetters, r.mu.consecutive, err)
	case len(c.DeadLetters) >= r.policy.MaxDeadLetters:
		return fmt.Errorf("%w: %d, the last because of: %w", ErrTooManyDeadLetters, len(c.DeadLetters), err)
	default:
		r.mu.consecutive++
		c.DeadLetters = append(c.DeadLetters, letter)
	}
	r.releaseLocked(p)
	r.mu.unsaved++
	r.advanceLocked()
	signal(r.saveSoon)
	return nil
}
