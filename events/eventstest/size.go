package eventstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/settlement-ledger/ledger/events"
)

// sizes returns record sizes in bytes: two for each power of two from 256 to 64 KiB,
// so the largest is 96 KiB. Stores allocate buffers in fixed sizes, and bugs lie at
// their boundaries.
func sizes() (all []int) {
	for octave := 256; octave <= 64<<10; octave *= 2 {
		all = append(all, octave, octave+octave/2)
	}
	return all
}

// everySizeComesBack appends a record of each size and reads each record as the first
// one of a loop. A store often chooses the size of the first buffer of a loop
// separately. The check then opens the store again and repeats the reads.
func everySizeComesBack(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		s := events.Stream("size-1")
		var made []events.Record
		for _, size := range sizes() {
			r := b.records(1)[0]
			r.Data = bytes.Repeat([]byte{byte('a' + len(made)%26)}, size)
			if err := b.Append(ctx, s, events.Revision(len(made)), r); err != nil {
				return fmt.Errorf("Append(a record of %d bytes) = %w, want nil", size, err)
			}
			made = append(made, r)
		}
		if err := b.checkEachFirst(ctx, s, made); err != nil {
			return err
		}
		if err := b.reopen(ctx); err != nil {
			return err
		}
		if err := b.checkEachFirst(ctx, s, made); err != nil {
			return fmt.Errorf("after opening again: %w", err)
		}
		return nil
	}())
}

// checkEachFirst starts each kind of loop directly before each record. It returns an
// error unless the loop yields that record first, complete.
func (b *fixture) checkEachFirst(ctx context.Context, s events.Stream, made []events.Record) error {
	all, err := collect(b.ReadAll(ctx, events.Position{}))
	if err != nil {
		return err
	}
	if err := sameOrder(all, made); err != nil {
		return err
	}
	before := events.Position{}
	for i, e := range all {
		for name, loop := range map[string]iter.Seq2[events.Entry, error]{
			"Read":    b.Read(ctx, s, events.Revision(i)),
			"ReadAll": b.ReadAll(ctx, before),
			"Scan":    events.Scan(ctx, b.Store, events.Query{After: before}),
			"Lend":    cloneEntries(events.Lend(ctx, b.Store, events.Query{After: before})),
			"Follow":  b.Follow(ctx, before),
		} {
			got, err := first(loop)
			if err != nil || got.Stream != s || got.Revision != e.Revision || !sameRecord(got.Record, made[i]) {
				return fmt.Errorf("%s yields %d bytes of revision %d and the error %v, want the %d bytes of revision %d", name, len(got.Data), got.Revision, err, len(made[i].Data), i+1)
			}
		}
		before = e.Position
	}
	return nil
}

// errNoEntry is the error of first for a loop without entries.
var errNoEntry = errors.New("it ends at once")

// first returns the first entry of a loop, or its error, and leaves the loop. It
// returns errNoEntry if the loop yields no value.
func first(loop iter.Seq2[events.Entry, error]) (events.Entry, error) {
	for e, err := range loop {
		return e, err
	}
	return events.Entry{}, errNoEntry
}
