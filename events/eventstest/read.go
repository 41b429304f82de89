package eventstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/events"
)

// readsBackInOrder appends batches of 1 to 300 records to two streams in turn. It then
// reads each stream from several revisions, and the whole log. It opens the store again
// and repeats the reads.
func readsBackInOrder(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		held := map[events.Stream][]events.Record{}
		var order []events.Record
		for i, n := range []int{1, 3, 1, 40, 2, 1, 300, 1} {
			s := events.Stream(fmt.Sprintf("order-%d", i%2))
			more, err := b.add(ctx, s, events.Revision(len(held[s])), n)
			if err != nil {
				return err
			}
			held[s], order = append(held[s], more...), append(order, more...)
		}
		if err := b.checkReadsBack(ctx, held, order); err != nil {
			return err
		}
		if err := b.reopen(ctx); err != nil {
			return err
		}
		if err := b.checkReadsBack(ctx, held, order); err != nil {
			return fmt.Errorf("after opening again: %w", err)
		}
		return nil
	}())
}

// checkReadsBack returns an error unless each stream, read from five revisions, has the
// records that held lists for it, and ReadAll yields exactly the records of the argument
// order.
func (b *fixture) checkReadsBack(ctx context.Context, held map[events.Stream][]events.Record, order []events.Record) error {
	for s, want := range held {
		for _, after := range []int{0, 1, 2, len(want) / 2, len(want) - 1} {
			entries, err := collect(b.Read(ctx, s, events.Revision(after)))
			if err != nil {
				return fmt.Errorf("Read(%s, %d): %w", s, after, err)
			}
			if err := checkEntries(entries, s, events.Revision(after), want[after:]); err != nil {
				return fmt.Errorf("Read(%s, %d): %w", s, after, err)
			}
		}
	}
	all, err := collect(b.ReadAll(ctx, events.Position{}))
	if err != nil {
		return fmt.Errorf("ReadAll: %w", err)
	}
	return sameOrder(all, order)
}

// sameOrder returns an error unless the entries have exactly the records of the argument
// order, one after the other. It does not compare streams and revisions.
func sameOrder(all []events.Entry, order []events.Record) error {
	if len(all) != len(order) {
		return fmt.Errorf("ReadAll yields %d entries, want %d", len(all), len(order))
	}
	for i, e := range all {
		if !sameRecord(e.Record, order[i]) {
			return fmt.Errorf("entry %d of all is %s, want %s", i+1, formatEntry(e), order[i].ID)
		}
	}
	return nil
}

// positionsIncrease appends to new streams in three openings of the store and checks
// all positions after each. A store that counts positions from its opening fails.
func positionsIncrease(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		for opening := range 3 {
			for i := range 4 {
				s := events.Stream(fmt.Sprintf("position-%d-%d", opening, i))
				if _, err := b.add(ctx, s, 0, i+1); err != nil {
					return err
				}
			}
			if err := b.checkPositions(ctx); err != nil {
				return fmt.Errorf("in opening %d: %w", opening+1, err)
			}
			if err := b.reopen(ctx); err != nil {
				return err
			}
		}
		return b.checkPositions(ctx)
	}())
}

// checkPositions returns an error unless the positions increase from entry to entry,
// Read yields each entry with the position that ReadAll yields, and ReadAll from each
// position yields the entries after it.
func (b *fixture) checkPositions(ctx context.Context) error {
	all, err := collect(b.ReadAll(ctx, events.Position{}))
	if err != nil {
		return err
	}
	last := events.Position{}
	for i, e := range all {
		if e.Position.Compare(last) <= 0 {
			return fmt.Errorf("%s stands at %s, behind one at %s", formatEntry(e), e.Position, last)
		}
		last = e.Position
		rest, err := collect(b.ReadAll(ctx, e.Position))
		if err != nil {
			return err
		}
		if !slices.EqualFunc(rest, all[i+1:], sameLocation) {
			return fmt.Errorf("ReadAll(%s) does not yield the %d entries that followed", e.Position, len(all)-i-1)
		}
		for own, err := range b.Read(ctx, e.Stream, e.Revision-1) {
			if err != nil || !sameLocation(own, e) {
				return fmt.Errorf("Read(%s, %d) yields %s at %s and the error %v, want it at %s", e.Stream, e.Revision-1, formatEntry(own), own.Position, err, e.Position)
			}
			break
		}
	}
	return nil
}

// sameLocation reports whether two entries have the same position, stream, revision
// and ID. It does not compare their data.
func sameLocation(a, b events.Entry) bool {
	return a.Position == b.Position && a.Stream == b.Stream && a.Revision == b.Revision && a.ID == b.ID
}

// dataIsNotShared overwrites the bytes of appended records and then the bytes of
// received ones, and expects an unchanged stream each time. It also appends to
// received data and expects unchanged metadata, because a store may cut both from one
// buffer.
func dataIsNotShared(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		const stream = "shared-1"
		given := b.records(3)
		held := []events.Record{cloneRecord(given[0]), cloneRecord(given[1]), cloneRecord(given[2])}
		if err := b.Append(ctx, stream, 0, given...); err != nil {
			return err
		}
		for _, r := range given {
			overwrite(r)
		}
		given[0], given[1] = given[1], given[0]
		if err := b.checkStream(ctx, stream, held); err != nil {
			return fmt.Errorf("after the given bytes changed: %w", err)
		}
		for name, loop := range b.copyingLoops(ctx, stream) {
			received, err := collect(limit(loop, 3))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, e := range received {
				metadata := bytes.Clone(e.Metadata)
				if _ = append(e.Data, "more"...); !bytes.Equal(e.Metadata, metadata) {
					return fmt.Errorf("%s: adding to the data of %s changed its metadata", name, e.ID)
				}
				overwrite(e.Record)
			}
			if err := b.checkStream(ctx, stream, held); err != nil {
				return fmt.Errorf("after the bytes received from %s changed: %w", name, err)
			}
		}
		return nil
	}())
}

// overwrite changes every byte of the data and metadata of r in place.
func overwrite(r events.Record) {
	for i := range r.Data {
		r.Data[i] = '!'
	}
	for i := range r.Metadata {
		r.Metadata[i] = '!'
	}
}

// copyingLoops returns, by name, a loop of each kind whose entries belong to the
// caller. The follower loops do not end: the caller must leave them or cancel ctx.
func (b *fixture) copyingLoops(ctx context.Context, s events.Stream) map[string]iter.Seq2[events.Entry, error] {
	return map[string]iter.Seq2[events.Entry, error]{
		"Read":              b.Read(ctx, s, 0),
		"ReadAll":           b.ReadAll(ctx, events.Position{}),
		"Follow":            b.Follow(ctx, events.Position{}),
		"a filtered Follow": b.Follow(ctx, events.Position{}, events.Following{Filter: events.Filter{Prefixes: []string{string(s)}}}),
		"Scan":              events.Scan(ctx, b.Store, events.Query{}),
		"a backward Scan":   events.Scan(ctx, b.Store, events.Query{Backward: true}),
		"Scan of a stream":  events.Scan(ctx, b.Store, events.Query{Stream: s}),
	}
}

// loops returns the loops of copyingLoops and the loops of Lend and Headers, by name.
func (b *fixture) loops(ctx context.Context, s events.Stream) map[string]iter.Seq2[events.Entry, error] {
	copyingLoops := b.copyingLoops(ctx, s)
	copyingLoops["Lend"] = events.Lend(ctx, b.Store, events.Query{})
	copyingLoops["Headers"] = headerEntries(events.Headers(ctx, b.Store, events.Query{}))
	return copyingLoops
}

// limit returns a loop that yields the first n entries of loop and then leaves it. If
// loop is a follower with fewer entries, limit waits for more.
func limit(loop iter.Seq2[events.Entry, error], n int) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		seen := 0
		for e, err := range loop {
			seen++
			if !yield(e, err) || seen == n {
				return
			}
		}
	}
}

// leaveStream is the stream of leavingFreesEverything. The saboteur of the law acts
// on this stream only.
const leaveStream = "leave-1"

// leavingFreesEverything leaves each kind of loop after 1 to 20 entries and appends
// inside an open loop. It then closes the store: Close fails if a loop still holds a
// resource.
func leavingFreesEverything(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		const stream = leaveStream
		held, err := b.add(ctx, stream, 0, 20)
		if err != nil {
			return err
		}
		for n := 1; n <= 20; n++ {
			for _, loop := range b.loops(ctx, stream) {
				if _, err := collect(limit(loop, n)); err != nil {
					return err
				}
			}
			// An append in the body of an open loop must not wait for that loop,
			// which runs on the same goroutine.
			for range b.ReadAll(ctx, events.Position{}) {
				if held, err = b.extend(ctx, stream, held, 1); err != nil {
					return err
				}
				break
			}
		}
		if err := b.checkStream(ctx, stream, held); err != nil {
			return err
		}
		return b.reopen(ctx)
	}())
}

// beyondTheEndIsEmpty expects no entry and no error from four kinds of reads: of an
// empty store, of a stream at and beyond its end, of unused streams whose names resemble
// a used one, and of the log after its last position.
func beyondTheEndIsEmpty(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		if err := checkEmpty("ReadAll of an empty store", b.ReadAll(ctx, events.Position{})); err != nil {
			return err
		}
		for _, n := range []int{3, 2} {
			if _, err := b.add(ctx, events.Stream(fmt.Sprintf("beyond-%d", n)), 0, n); err != nil {
				return err
			}
		}
		for _, after := range []events.Revision{3, 4, 5, 1 << 40, 1<<64 - 1} {
			if err := checkEmpty(fmt.Sprintf("Read(beyond-3, %d)", after), b.Read(ctx, "beyond-3", after)); err != nil {
				return err
			}
		}
		for _, never := range []events.Stream{"beyond", "beyond-", "beyond-1", "beyond-30", "zz-9"} {
			if err := checkEmpty(fmt.Sprintf("Read(%s, 0)", never), b.Read(ctx, never, 0)); err != nil {
				return err
			}
		}
		all, err := collect(b.ReadAll(ctx, events.Position{}))
		if err != nil || len(all) == 0 {
			return fmt.Errorf("ReadAll yields %d entries and the error %v", len(all), err)
		}
		return checkEmpty("ReadAll from the last position", b.ReadAll(ctx, all[len(all)-1].Position))
	}())
}

// checkEmpty returns an error unless a loop ends without an entry and without an
// error. name describes the loop in the error text.
func checkEmpty(name string, loop iter.Seq2[events.Entry, error]) error {
	entries, err := collect(loop)
	if err != nil || len(entries) > 0 {
		return fmt.Errorf("%s yields %d entries and the error %v, want nothing", name, len(entries), err)
	}
	return nil
}

// wholeStream is the stream of readersSeeWholeAppends. The saboteur of the law acts
// on this stream only.
const wholeStream = "whole-1"

// readersSeeWholeAppends reads in a loop while another goroutine appends batches of
// four records. Each reader must see a multiple of four. The check ends when a reader
// has seen all records, and joins the goroutine.
func readersSeeWholeAppends(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		const size, rounds = 4, 10
		var appending sync.WaitGroup
		var failed error
		ctx, cancel := context.WithCancelCause(ctx)
		defer appending.Wait()
		defer cancel(nil)
		appending.Go(func() {
			for i := range rounds {
				if _, failed = b.add(ctx, wholeStream, events.Revision(i*size), size); failed != nil {
					cancel(failed)
					return
				}
			}
		})
		for seen := 0; seen < rounds*size; {
			for _, loop := range []iter.Seq2[events.Entry, error]{b.ReadAll(ctx, events.Position{}), b.Read(ctx, wholeStream, 0)} {
				entries, err := collect(loop)
				if err != nil {
					return err
				}
				if seen = len(entries); seen%size != 0 {
					return fmt.Errorf("a reader sees %d records of appends of %d", seen, size)
				}
			}
		}
		appending.Wait()
		return failed
	}())
}

// closedStoreSaysSo closes the store while a follower waits. It closes the store when
// CaughtUp shows that the follower is about to wait. It expects ErrClosed from the
// follower, from an append, and from each kind of loop.
func closedStoreSaysSo(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	if _, err := b.add(ctx, "closed-1", 0, 2); err != nil {
		return b.end(err)
	}
	waits, ended := make(chan struct{}), make(chan error, 1)
	waiting := events.Following{CaughtUp: func(events.Position) { close(waits) }}
	go func() {
		_, err := collect(b.Follow(ctx, events.Position{}, waiting))
		ended <- err
	}()
	select {
	case <-waits:
	case err := <-ended:
		return b.end(fmt.Errorf("a follower ends before the store is closed: %w", err))
	case <-ctx.Done():
		return b.end(context.Cause(ctx))
	}
	if err := b.end(nil); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, events.ErrClosed) {
		return fmt.Errorf("a follower that waits ends with %v, want ErrClosed", err)
	}
	if err := b.Append(ctx, "closed-1", 2, b.records(1)...); !errors.Is(err, events.ErrClosed) {
		return fmt.Errorf("Append = %v, want ErrClosed", err)
	}
	for name, loop := range b.loops(ctx, "closed-1") {
		if entries, err := collect(loop); !errors.Is(err, events.ErrClosed) || len(entries) > 0 {
			return fmt.Errorf("%s yields %d entries and the error %v, want ErrClosed", name, len(entries), err)
		}
	}
	return nil
}

// errStop is the cause with which checks cancel contexts. A store that returns
// ctx.Err() returns context.Canceled instead, and the check notices.
var errStop = errors.New("stopped by the check")

// cancellationYieldsCause cancels an append, each kind of loop and a waiting
// follower, and expects errStop from each.
func cancellationYieldsCause(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		const stream = "cancel-1"
		if _, err := b.add(ctx, stream, 0, 5); err != nil {
			return err
		}
		dead, cancel := context.WithCancelCause(ctx)
		cancel(errStop)
		if err := b.Append(dead, stream, 5, b.records(1)...); !errors.Is(err, errStop) {
			return fmt.Errorf("Append in a context that ended = %v, want its cause", err)
		}
		for name := range b.loops(ctx, stream) {
			if err := b.checkCancellation(ctx, name, stream); err != nil {
				return err
			}
		}
		alive, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		waiting := events.Following{CaughtUp: func(events.Position) { cancel(errStop) }}
		if _, err := collect(b.Follow(alive, events.Position{}, waiting)); !errors.Is(err, errStop) {
			return fmt.Errorf("a follower that waits ends with %v, want the cause", err)
		}
		return nil
	}())
}

// checkCancellation cancels the named loop twice: before its first entry, and at its
// second entry. It expects 0 entries and 2 entries, each followed by errStop.
func (b *fixture) checkCancellation(ctx context.Context, name string, s events.Stream) error {
	for _, n := range []int{0, 2} {
		dying, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if n == 0 {
			cancel(errStop)
		}
		loop := func(yield func(events.Entry, error) bool) {
			seen := 0
			for e, err := range b.loops(dying, s)[name] {
				if seen++; seen == n {
					cancel(errStop)
				}
				if !yield(e, err) {
					return
				}
			}
		}
		entries, err := collect(loop)
		if !errors.Is(err, errStop) || len(entries) != n {
			return fmt.Errorf("%s cancelled after %d entries yields %d and the error %v, want the cause", name, n, len(entries), err)
		}
	}
	return nil
}
