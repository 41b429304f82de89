package eventstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/domain/lawtest"
	"github.com/settlement-ledger/ledger/events"
)

// allOrNone appends three valid records and an invalid one in one call. It expects an
// error, an unchanged stream, and success of the next append at the old length.
func allOrNone(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		held, err := b.add(ctx, "all-1", 0, 5)
		if err != nil {
			return err
		}
		bad := append(b.records(3), events.Record{})
		if err := b.Append(ctx, "all-1", 5, bad...); err == nil {
			return errors.New("Append(three records and one that is not valid) = nil, want an error")
		}
		if err := b.checkStream(ctx, "all-1", held); err != nil {
			return fmt.Errorf("after an append that failed: %w", err)
		}
		more, err := b.add(ctx, "all-1", 5, 4)
		if err != nil {
			return err
		}
		return b.checkStream(ctx, "all-1", slices.Concat(held, more))
	}())
}

// staleAppendConflicts appends at revisions before and after the end of a stream, and
// at revision 1 of an empty stream. It expects a Conflict and an unchanged stream
// each time.
func staleAppendConflicts(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		const stream = "stale-1"
		if err := b.checkConflict(ctx, "stale-empty", 1); err != nil {
			return err
		}
		if err := b.checkStream(ctx, "stale-empty", nil); err != nil {
			return err
		}
		held, err := b.add(ctx, stream, 0, 4)
		if err != nil {
			return err
		}
		for _, after := range []events.Revision{0, 1, 3, 5, 6, 1 << 40} {
			if err := b.checkConflict(ctx, stream, after); err != nil {
				return err
			}
			if err := b.checkStream(ctx, stream, held); err != nil {
				return fmt.Errorf("after a conflict at %d: %w", after, err)
			}
		}
		return nil
	}())
}

// checkConflict appends a new record to s after a revision. It returns an error
// unless the append returns a Conflict that names the stream and the revision.
func (b *fixture) checkConflict(ctx context.Context, s events.Stream, after events.Revision) error {
	return b.checkRefused(ctx, s, after, b.records(1))
}

// checkRefused appends the given records. It returns an error unless the append
// returns a Conflict that names the stream and the revision.
func (b *fixture) checkRefused(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
	err := b.Append(ctx, s, after, records...)
	conflict, ok := errors.AsType[*events.Conflict](err)
	if !ok || *conflict != (events.Conflict{Stream: s, After: after}) {
		return fmt.Errorf("Append(%s, %d, %d records) = %v, want a Conflict of that", s, after, len(records), err)
	}
	return nil
}

// repeatIsNoOp repeats appends with the same records, and with one field changed. It
// repeats them at the end of the stream, after later records, and after the store is
// opened again. A store that remembers only recent appends in memory fails after later
// records and after the reopening.
func repeatIsNoOp(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		held, err := b.add(ctx, "repeat-1", 0, 2)
		if err != nil {
			return err
		}
		if err := b.checkRepeats(ctx, held); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
		for range 2 {
			more, err := b.add(ctx, "repeat-1", events.Revision(len(held)), 3)
			if err != nil {
				return err
			}
			held = append(held, more...)
		}
		if err := b.checkRepeats(ctx, held); err != nil {
			return err
		}
		if err := b.checkNearRepeats(ctx, held); err != nil {
			return err
		}
		if err := b.reopen(ctx); err != nil {
			return err
		}
		if err := b.checkRepeats(ctx, held); err != nil {
			return fmt.Errorf("after opening again: %w", err)
		}
		return b.checkNearRepeats(ctx, held)
	}())
}

// checkRepeats appends every run of consecutive stored records again, at its
// revision. It expects success and an unchanged stream. The runs include ones that
// span several original appends.
func (b *fixture) checkRepeats(ctx context.Context, held []events.Record) error {
	for from := range held {
		for to := from + 1; to <= len(held); to++ {
			if err := b.Append(ctx, "repeat-1", events.Revision(from), held[from:to]...); err != nil {
				return fmt.Errorf("append records %d to %d of %d again: %w, want nil", from+1, to, len(held), err)
			}
		}
	}
	return b.checkStream(ctx, "repeat-1", held)
}

// checkNearRepeats appends records that are nearly a repeat and expects a Conflict for
// each. In a near repeat one field differs, a new record follows the last stored one, or
// a record is appended at another revision than the one that it has. The stream must not
// change.
func (b *fixture) checkNearRepeats(ctx context.Context, held []events.Record) error {
	last := events.Revision(len(held) - 1)
	for name, change := range fieldChanges(b.mint) {
		other := cloneRecord(held[last])
		change(&other)
		if err := b.checkRefused(ctx, "repeat-1", last, []events.Record{other}); err != nil {
			return fmt.Errorf("with another %s: %w", name, err)
		}
		if err := b.checkRefused(ctx, "repeat-1", last-1, []events.Record{held[last-1], other}); err != nil {
			return fmt.Errorf("with another %s in the second record: %w", name, err)
		}
	}
	beyond := append(slices.Clone(held[last:]), b.records(1)...)
	if err := b.checkRefused(ctx, "repeat-1", last, beyond); err != nil {
		return fmt.Errorf("the last record and one more: %w", err)
	}
	if err := b.checkRefused(ctx, "repeat-1", 0, held[1:2]); err != nil {
		return fmt.Errorf("a record that is held elsewhere in the stream: %w", err)
	}
	return b.checkStream(ctx, "repeat-1", held)
}

// fieldChanges returns, for each field of a record, a function that changes the field
// and keeps the record valid. The keys are the names of the fields, for error texts.
func fieldChanges(mint *domain.Mint) map[string]func(*events.Record) {
	return map[string]func(*events.Record){
		"id":       func(r *events.Record) { r.ID = mint.Event() },
		"kind":     func(r *events.Record) { r.Kind += "x" },
		"version":  func(r *events.Record) { r.Version++ },
		"time":     func(r *events.Record) { r.Time = r.Time.Add(time.Microsecond) },
		"data":     func(r *events.Record) { r.Data = append(r.Data, ' ') },
		"metadata": func(r *events.Record) { r.Metadata = append(r.Metadata, ' ') },
	}
}

// invalidChangesNothing appends without a stream name, without records, and with each
// kind of invalid record. It expects ErrBadRecord and an unchanged stream each time.
func invalidChangesNothing(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		const stream = "invalid-1"
		held, err := b.add(ctx, stream, 0, 2)
		if err != nil {
			return err
		}
		if err := b.checkInvalid(ctx, "no stream", "", 0, b.records(1)...); err != nil {
			return err
		}
		if err := b.checkInvalid(ctx, "no records", stream, 2); err != nil {
			return err
		}
		for name, spoil := range invalidations() {
			r := b.records(1)[0]
			spoil(&r)
			if err := b.checkInvalid(ctx, name, stream, 2, r); err != nil {
				return err
			}
			if err := b.checkStream(ctx, stream, held); err != nil {
				return fmt.Errorf("after a record with %s: %w", name, err)
			}
		}
		return nil
	}())
}

// checkInvalid returns an error unless the append returns ErrBadRecord. name
// describes the fault in the error text.
func (b *fixture) checkInvalid(ctx context.Context, name string, s events.Stream, after events.Revision, records ...events.Record) error {
	if err := b.Append(ctx, s, after, records...); !errors.Is(err, events.ErrBadRecord) {
		return fmt.Errorf("Append with %s = %v, want ErrBadRecord", name, err)
	}
	return nil
}

// invalidations returns, for each way in which a record can be invalid, a function
// that makes a valid record invalid. The keys describe the fault, for error texts.
func invalidations() map[string]func(*events.Record) {
	return map[string]func(*events.Record){
		"a zero ID":         func(r *events.Record) { r.ID = domain.EventID{} },
		"an empty kind":     func(r *events.Record) { r.Kind = "" },
		"version 0":         func(r *events.Record) { r.Version = 0 },
		"a version too big": func(r *events.Record) { r.Version = 1 << 16 },
		"another zone":      func(r *events.Record) { r.Time = r.Time.In(time.FixedZone("X", 3600)) },
		"nanoseconds":       func(r *events.Record) { r.Time = r.Time.Add(time.Nanosecond) },
	}
}

// oneOfManyWins lets eight goroutines append at the same revision, in eight rounds. It
// expects exactly one append to succeed in each round, and only the records of these
// appends in the stream. The check does not depend on which goroutine succeeds.
func oneOfManyWins(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		var held []events.Record
		for range 8 {
			winner, err := b.race(ctx, held)
			if err != nil {
				return err
			}
			held = append(held, winner...)
			if err := b.checkStream(ctx, raceStream, held); err != nil {
				return err
			}
		}
		return nil
	}())
}

// raceStream is the stream of the concurrent appends. The saboteur of the law acts on
// this stream only.
const raceStream = "race-1"

// race starts eight concurrent appends after held, the records of the stream. It waits
// for all of them and returns the records of the one that succeeded. It returns an error
// if not exactly one append succeeded, or if another append got an error other than a
// Conflict.
func (b *fixture) race(ctx context.Context, held []events.Record) ([]events.Record, error) {
	const many = 8
	var appends [many][]events.Record
	var ends [many]error
	var all sync.WaitGroup
	for i := range many {
		appends[i] = b.records(2)
	}
	for i := range many {
		all.Go(func() { ends[i] = b.Append(ctx, raceStream, events.Revision(len(held)), appends[i]...) })
	}
	all.Wait()
	var winner []events.Record
	for i, err := range ends {
		switch {
		case err == nil && winner != nil:
			return nil, fmt.Errorf("two of %d appends after %d succeeded, want one", many, len(held))
		case err == nil:
			winner = appends[i]
		case !errors.Is(err, events.ErrConflict):
			return nil, fmt.Errorf("one of %d appends after %d = %w, want nil or a Conflict", many, len(held), err)
		}
	}
	if winner == nil {
		return nil, fmt.Errorf("none of %d appends after %d succeeded, want one", many, len(held))
	}
	return winner, nil
}

// survivesPowerCut cuts the power four times, each time after acknowledged appends to
// two streams. After each cut it opens the storage again and expects every
// acknowledged record. It returns ErrNotApplicable if the harness cannot cut power.
func survivesPowerCut(ctx context.Context, h Harness) error {
	if h.CutPower == nil {
		return lawtest.ErrNotApplicable
	}
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	var one, two []events.Record
	for round := range 4 {
		for range round + 1 {
			if one, err = b.extend(ctx, "power-1", one, 3); err != nil {
				return b.end(err)
			}
			if two, err = b.extend(ctx, "power-2", two, 1); err != nil {
				return b.end(err)
			}
		}
		if err := b.CutPower(b.Store); err != nil {
			return fmt.Errorf("cut the power: %w", err)
		}
		if err := b.open(ctx); err != nil {
			return err
		}
		for stream, held := range map[events.Stream][]events.Record{"power-1": one, "power-2": two} {
			if err := b.checkStream(ctx, stream, held); err != nil {
				return b.end(fmt.Errorf("after power cut %d: %w", round+1, err))
			}
		}
	}
	return b.end(nil)
}

// extend appends n new records to a stream whose records are held. It returns held
// followed by the new records. After an error it returns held alone.
func (b *fixture) extend(ctx context.Context, s events.Stream, held []events.Record, n int) ([]events.Record, error) {
	more, err := b.add(ctx, s, events.Revision(len(held)), n)
	return append(held, more...), err
}
