package eventstest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A saboteur is a store that breaks one law and keeps all others. It is a Slice with
// some operations replaced: a field that is nil leaves its operation unchanged. Each
// of the functions below returns a Harness over one saboteur, whose fault occurs only
// in the situation that the check of its law makes, so that no other check fails.
type saboteur struct {
	*Slice
	append   func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error            // in place of Append
	read     func(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error]            // in place of Read; wrapLoop is not applied
	follow   func(ctx context.Context, after events.Position, options []events.Following) iter.Seq2[events.Entry, error] // in place of Follow; wrapLoop is not applied
	wrapLoop func(iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error]                                         // applied to the loops of the Slice
}

// Append calls the append field if it is set, and otherwise Slice.Append.
func (x *saboteur) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	if x.append != nil {
		return x.append(ctx, s, after, records)
	}
	return x.Slice.Append(ctx, s, after, records...)
}

// Read returns the loop of the read field if it is set, and otherwise the loop of
// Slice.Read as wrapLoop changes it.
func (x *saboteur) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	if x.read != nil {
		return x.read(ctx, s, after)
	}
	return x.wrap(x.Slice.Read(ctx, s, after))
}

// ReadAll returns the loop of Slice.ReadAll as wrapLoop changes it.
func (x *saboteur) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return x.wrap(x.Slice.ReadAll(ctx, after))
}

// Follow returns the loop of the follow field if it is set, and otherwise the loop of
// Slice.Follow as wrapLoop changes it.
func (x *saboteur) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	if x.follow != nil {
		return x.follow(ctx, after, options)
	}
	return x.wrap(x.Slice.Follow(ctx, after, options...))
}

// wrap applies wrapLoop to a loop. It returns the loop unchanged if wrapLoop is nil.
func (x *saboteur) wrap(loop iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
	if x.wrapLoop != nil {
		return x.wrapLoop(loop)
	}
	return loop
}

// length returns the length of a stream. It returns 0 if the store is closed.
func (x *saboteur) length(s events.Stream) events.Revision {
	entries, _ := collect(x.Slice.Read(context.Background(), s, 0))
	return events.Revision(len(entries))
}

// harness returns a Harness whose Open returns the saboteur itself. CutPower closes
// the store and loses no record.
func (x *saboteur) harness() Harness {
	return Harness{
		Open:     func(context.Context) (events.Store, error) { x.reopen(); return x, nil },
		Close:    func(events.Store) error { x.Close(); return nil },
		CutPower: func(events.Store) error { x.Close(); return nil },
	}
}

// swapsEntries yields entry 201 of a stream before entry 200. Only the check
// readsBackInOrder appends so many records to one stream.
func swapsEntries() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.wrapLoop = func(loop iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
		return func(yield func(events.Entry, error) bool) {
			var kept *events.Entry
			for e, err := range loop {
				if e.Revision == 200 {
					kept = &e
					continue
				}
				if !yield(e, err) {
					return
				}
				if kept != nil && !yield(*kept, nil) {
					return
				}
				kept = nil
			}
		}
	}
	return x.harness()
}

// appendsValidPrefix appends the records before the first invalid one and then
// returns ErrBadRecord.
func appendsValidPrefix() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		bad := slices.IndexFunc(records, func(r events.Record) bool { return r.Valid() != nil })
		if bad > 0 {
			_ = x.Slice.Append(ctx, s, after, records[:bad]...)
		}
		return x.Slice.Append(ctx, s, after, records...)
	}
	return x.harness()
}

// appendsAcrossGaps appends at the end of the stream if the revision is beyond the
// end.
func appendsAcrossGaps() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		return x.Slice.Append(ctx, s, min(after, x.length(s)), records...)
	}
	return x.harness()
}

// forgetsOlderAppends returns a Conflict for a repeated append that other records
// follow, as a store would that remembers only the last append of each stream.
func forgetsOlderAppends() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		if int(after)+len(records) < int(x.length(s)) && validate(s, records) == nil {
			return &events.Conflict{Stream: s, After: after}
		}
		return x.Slice.Append(ctx, s, after, records...)
	}
	return x.harness()
}

// restartsPositions counts positions from 1 again after the store is reopened. base is
// the number of entries at the last Close.
func restartsPositions() Harness {
	x := &saboteur{Slice: NewSlice()}
	base := uint64(0)
	x.wrapLoop = func(loop iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
		return func(yield func(events.Entry, error) bool) {
			for e, err := range loop {
				if seq, _ := e.Position.Parts(); seq > base {
					e.Position = events.NewPosition(seq-base, seq-base)
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
	h := x.harness()
	h.Close = func(events.Store) error {
		all, _ := collect(x.Slice.ReadAll(context.Background(), events.Position{}))
		base = uint64(len(all))
		x.Close()
		return nil
	}
	return h
}

// dropsEntryAfterCatchUp does not yield the first entry after CaughtUp, as a follower
// would that loses a wake-up. It leaves filtered followers alone, because another law
// checks them.
func dropsEntryAfterCatchUp() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.follow = func(ctx context.Context, after events.Position, options []events.Following) iter.Seq2[events.Entry, error] {
		if len(options) > 0 && !options[0].Filter.IsZero() {
			return x.Slice.Follow(ctx, after, options...)
		}
		return func(yield func(events.Entry, error) bool) {
			live := false
			watched := events.Following{CaughtUp: func(p events.Position) {
				live = true
				for _, o := range options {
					o.CaughtUp(p)
				}
			}}
			for e, err := range x.Slice.Follow(ctx, after, watched) {
				if live && err == nil {
					live = false
					continue
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
	return x.harness()
}

// acknowledgesEarly loses the last append in a power cut. durable is the number of
// entries before that append.
func acknowledgesEarly() Harness {
	x := &saboteur{Slice: NewSlice()}
	durable := 0
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		x.mu.Lock()
		durable = len(x.mu.entries)
		x.mu.Unlock()
		return x.Slice.Append(ctx, s, after, records...)
	}
	h := x.harness()
	h.CutPower = func(events.Store) error {
		x.Close()
		x.truncate(durable)
		return nil
	}
	return h
}

// sharesGivenBytes yields the data slices that the caller passed to Append, without a
// copy. given holds the records of successful appends; mu guards it.
func sharesGivenBytes() Harness {
	x := &saboteur{Slice: NewSlice()}
	var mu sync.Mutex
	given := map[domain.EventID]events.Record{}
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		err := x.Slice.Append(ctx, s, after, records...)
		mu.Lock()
		defer mu.Unlock()
		for _, r := range records {
			if err == nil {
				given[r.ID] = r
			}
		}
		return err
	}
	x.wrapLoop = func(loop iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
		return func(yield func(events.Entry, error) bool) {
			for e, err := range loop {
				if err == nil {
					mu.Lock()
					e.Data = given[e.ID].Data
					mu.Unlock()
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
	return x.harness()
}

// replacesError returns a wrapLoop function that replaces the error from with the error
// to. If to is nil, the loop ends without an error.
func replacesError(from, to error) func(iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
	return func(loop iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
		return func(yield func(events.Entry, error) bool) {
			for e, err := range loop {
				if errors.Is(err, from) {
					if err = to; err == nil {
						return
					}
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// dropsCancellationCause yields context.Canceled instead of the cause.
func dropsCancellationCause() Harness {
	x := &saboteur{Slice: NewSlice(), wrapLoop: replacesError(errStop, context.Canceled)}
	return x.harness()
}

// yieldsNothingWhenClosed ends loops on a closed store without an error.
func yieldsNothingWhenClosed() Harness {
	x := &saboteur{Slice: NewSlice(), wrapLoop: replacesError(events.ErrClosed, nil)}
	return x.harness()
}

// leaksAbandonedLoops does not release a loop of Read that the caller leaves after its
// third entry. Close then returns an error. held counts the loops that are not released;
// mu guards it.
func leaksAbandonedLoops() Harness {
	x := &saboteur{Slice: NewSlice()}
	var mu sync.Mutex
	held := 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		held += by
	}
	x.read = func(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
		if s != leaveStream { // a query that falls back to Read leaves loops as well
			return x.Slice.Read(ctx, s, after)
		}
		return func(yield func(events.Entry, error) bool) {
			count(1)
			seen := 0
			for e, err := range x.Slice.Read(ctx, s, after) {
				seen++
				if !yield(e, err) {
					if seen > 3 { // the checks of other laws leave loops sooner
						return
					}
					break
				}
			}
			count(-1)
		}
	}
	h := x.harness()
	h.Close = func(events.Store) error {
		x.Close()
		mu.Lock()
		defer mu.Unlock()
		if held > 0 {
			return fmt.Errorf("%d loops are held", held)
		}
		return nil
	}
	return h
}

// normalizesTimes accepts a time in another zone or with nanoseconds and converts it.
// A correct store returns ErrBadRecord.
func normalizesTimes() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		records = slices.Clone(records)
		for i := range records {
			records[i].Time = records[i].Time.UTC().Truncate(time.Microsecond)
		}
		return x.Slice.Append(ctx, s, after, records...)
	}
	return x.harness()
}

// letsTwoAppendsWin checks the revision of an append without a lock. It holds the
// first append until a second one has made the same check, then runs both, so both
// succeed. mu guards arrived and orders the two appends.
func letsTwoAppendsWin() Harness {
	x := &saboteur{Slice: NewSlice()}
	var mu sync.Mutex
	arrived, both := 0, make(chan struct{})
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		if s != raceStream {
			return x.Slice.Append(ctx, s, after, records...)
		}
		free := after == x.length(s)
		mu.Lock()
		if arrived++; arrived == 2 {
			close(both)
		}
		mu.Unlock()
		<-both
		if !free {
			return x.Slice.Append(ctx, s, after, records...)
		}
		mu.Lock() // so that the second of them appends behind the first, and both win
		defer mu.Unlock()
		return x.Slice.Append(ctx, s, x.length(s), records...)
	}
	return x.harness()
}

// readsFromStartBeyondEnd reads from the start of the stream if the revision is
// beyond its end.
func readsFromStartBeyondEnd() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.read = func(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
		if after > x.length(s) {
			after = 0
		}
		return x.Slice.Read(ctx, s, after)
	}
	return x.harness()
}

// publishesHalfAppends appends the first half of the records, waits until a reader
// has read them, and appends the second half.
func publishesHalfAppends() Harness {
	x := &saboteur{Slice: NewSlice()}
	reads := make(chan struct{})
	x.append = func(ctx context.Context, s events.Stream, after events.Revision, records []events.Record) error {
		if s != wholeStream {
			return x.Slice.Append(ctx, s, after, records...)
		}
		half := len(records) / 2
		if err := x.Slice.Append(ctx, s, after, records[:half]...); err != nil {
			return err
		}
		for range 2 { // a read that began before the first half may end first
			select {
			case <-reads:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return x.Slice.Append(ctx, s, after+events.Revision(half), records[half:]...)
	}
	x.read = func(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
		return func(yield func(events.Entry, error) bool) {
			x.Slice.Read(ctx, s, after)(yield)
			select {
			case reads <- struct{}{}:
			default:
			}
		}
	}
	return x.harness()
}

// truncatesFirstEntry yields only 4 KiB of the data of a first entry of 4 to 8 KiB,
// as a store with a small first buffer would.
func truncatesFirstEntry() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.wrapLoop = func(loop iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
		return func(yield func(events.Entry, error) bool) {
			begun := false
			for e, err := range loop {
				if !begun && len(e.Data) > 4<<10 && len(e.Data) < 8<<10 {
					e.Data = e.Data[:4<<10]
				}
				begun = true
				if !yield(e, err) {
					return
				}
			}
		}
	}
	return x.harness()
}
