package integrity

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// checkIndex compares the index with the records. It compares the sum of the hashes of
// all index entries with the sum of the hashes of all records. If the two sums are
// equal, each record has its index entry. Otherwise checkIndex reports each index entry
// without its record and each record without its index entry.
func (k *check) checkIndex(ctx context.Context) error {
	differs := false
	err := k.eachIndex(ctx, func(stream events.Stream, revision events.Revision, seq uint64, value []byte) {
		if len(value) != 8 {
			differs = true
			return
		}
		k.sum(&k.index, stream, revision, seq)
	}, func(error) { differs = true })
	if err != nil || !differs && k.index == k.records {
		return err
	}
	return cmp.Or(k.indexToRecords(ctx), k.recordsToIndex(ctx))
}

// eachIndex calls do for each index entry, in order. It calls broke with the error for
// each malformed key, and if the index cannot be read to its end. It returns an error
// only if ctx ends: the cause of ctx.
func (k *check) eachIndex(ctx context.Context, do func(events.Stream, events.Revision, uint64, []byte), broke func(error)) error {
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: []byte("s/"), UpperBound: []byte("s0")})
	if err != nil {
		broke(err)
		return nil
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%4096 == 0 {
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, it.Close())
			}
			k.Progress("index", int64(n), int64(k.Records))
		}
		value, err := it.ValueAndErr()
		if err != nil {
			break
		}
		key := it.Key()
		if len(key) < 2+1+8 || key[len(key)-9] != 0 {
			broke(fmt.Errorf("a key of %d bytes is not an index key", len(key)))
			continue
		}
		seq := uint64(0)
		if len(value) == 8 {
			seq = layout.LastUint64(value)
		}
		do(events.Stream(key[2:len(key)-9]), events.Revision(layout.LastUint64(key)), seq, value)
	}
	if err := it.Close(); err != nil {
		broke(err)
	}
	return nil
}

// indexToRecords reports each index entry whose record is missing, damaged or of
// another stream or revision. It reads one record for each entry.
func (k *check) indexToRecords(ctx context.Context) error {
	return k.eachIndex(ctx, func(stream events.Stream, revision events.Revision, seq uint64, value []byte) {
		at := Finding{Position: events.NewPosition(seq, seq), Stream: stream, Revision: revision}
		switch e, err := k.get(seq); {
		case len(value) != 8:
			at.Position, at.Detail = events.Position{}, fmt.Sprintf("its entry in the index has %d bytes", len(value))
		case k.holes[seq]:
			at.Detail = "the record is this one, by the index"
		case err != nil:
			at.Detail = "the index names a record that is not there"
		case e.Stream != stream || e.Revision != revision:
			at.Detail = fmt.Sprintf("the index names a record that is revision %d of %s", e.Revision, e.Stream)
		default:
			return
		}
		k.report(at)
	}, func(err error) { k.report(Finding{Detail: "the index cannot be read: " + err.Error()}) })
}

// recordsToIndex reports each readable record whose index entry is missing or has
// another sequence. It reads one index entry for each record.
func (k *check) recordsToIndex(ctx context.Context) error {
	end, _ := k.End.Parts()
	for seq := uint64(1); seq <= end; seq++ {
		if seq%4096 == 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		e, err := k.get(seq)
		if err != nil {
			continue // reported already
		}
		value, closer, err := k.db.Get(layout.IndexKey(e.Stream, e.Revision))
		if err == nil {
			right := len(value) == 8 && layout.LastUint64(value) == seq
			_ = closer.Close()
			if right {
				continue
			}
		}
		k.report(Finding{Position: e.Position, Stream: e.Stream, Revision: e.Revision, Detail: "the index does not name the record"})
	}
	return nil
}

// get reads and verifies the record with a sequence.
func (k *check) get(seq uint64) (events.Entry, error) {
	value, closer, err := k.db.Get(layout.EntryKey(seq))
	if err != nil {
		return events.Entry{}, err
	}
	e, err := layout.Decode(value, seq)
	return e, errors.Join(err, closer.Close())
}

// checkOthers checks the checkpoints and reports every key that is not of a record,
// the index or a checkpoint.
func (k *check) checkOthers(ctx context.Context) error {
	for _, bounds := range [][2]string{{"\x00", "c/"}, {"c/", "c0"}, {"c0", "e/"}, {"e0", "s/"}, {"s0", "\xff"}} {
		it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: []byte(bounds[0]), UpperBound: []byte(bounds[1])})
		if err != nil {
			return err
		}
		for ok := it.First(); ok; ok = it.Next() {
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, it.Close())
			}
			k.checkOther(it, bounds[0] == "c/")
		}
		if err := it.Close(); err != nil {
			k.report(Finding{Detail: "keys other than records cannot be read: " + err.Error()})
		}
	}
	return nil
}

// checkOther checks a checkpoint, or reports an unknown key.
func (k *check) checkOther(it *pebble.Iterator, checkpoint bool) {
	value, err := it.ValueAndErr()
	switch {
	case !checkpoint:
		k.report(Finding{Detail: fmt.Sprintf("the key %q does not belong to a store", it.Key())})
		return
	case err == nil && k.Checkpoint != nil:
		err = k.Checkpoint(string(it.Key()[2:]), value)
	}
	k.Checkpoints++
	if err != nil {
		k.report(Finding{Detail: fmt.Sprintf("checkpoint %q: %v; it is folded again from the records", it.Key()[2:], err)})
	}
}
