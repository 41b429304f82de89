package integrity

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// sum adds the hash of a record's stream, revision and sequence to *to. Addition
// makes the result independent of the order, so the records and the index, which have
// different orders, give equal sums if they agree.
func (k *check) sum(to *uint64, stream events.Stream, revision events.Revision, sequence uint64) {
	var h maphash.Hash
	h.SetSeed(k.seed)
	_, _ = h.WriteString(string(stream))
	var place [16]byte
	binary.BigEndian.PutUint64(place[:8], uint64(revision))
	binary.BigEndian.PutUint64(place[8:], sequence)
	_, _ = h.Write(place[:])
	*to += h.Sum64()
}

// checkRecords reads all records in order and completes the Report. The seal holds the
// sequence that the last record had when the store was last closed. If this sequence is
// greater than that of the last record now, checkRecords reports the records between the
// two as missing. After an unreadable record it continues with the next one.
func (k *check) checkRecords(ctx context.Context) error {
	k.lengths, k.holes = map[events.Stream]events.Revision{}, map[uint64]bool{}
	end, err := k.end()
	if err != nil {
		k.report(Finding{File: storedir.LogName, Detail: "the end of the records cannot be read: " + err.Error()})
	}
	k.End = events.NewPosition(end, end)
	if sealed, _ := pebblefiles.Sealed(k.FS, k.FS.PathJoin(k.dir, storedir.LogName)); sealed > end {
		k.report(Finding{Position: events.NewPosition(end+1, end+1), Through: events.NewPosition(sealed, sealed),
			Detail: "the record is missing, and was there when the store was closed"})
	}
	digest := events.NewDigest()
	for seq := uint64(1); seq <= end; {
		seq, err = k.readRun(ctx, seq, end, digest)
		if err != nil {
			return err
		}
	}
	k.Records, k.Streams = digest.Count(), len(k.lengths)
	if !k.lost && err == nil {
		k.Digest = digest.String()
	}
	return nil
}

// end returns the sequence of the last record. If the records cannot be read, it returns
// the error, and the number of records that the last clean close of the store wrote into
// its seal file, or 0 without a seal.
func (k *check) end() (uint64, error) {
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(0), UpperBound: layout.EntriesEnd()})
	if err != nil {
		return 0, err
	}
	end := uint64(0)
	if it.Last() {
		end = layout.LastUint64(it.Key())
	}
	err = it.Close()
	if err != nil {
		end, _ = pebblefiles.Sealed(k.FS, k.FS.PathJoin(k.dir, storedir.LogName))
	}
	return end, err
}

// readRun reads records from the sequence seq on, with one iterator, and returns the
// sequence at which the caller continues. At an unreadable block the iterator ends;
// readRun then reports the record there as unreadable and returns the sequence after
// it.
func (k *check) readRun(ctx context.Context, seq, end uint64, digest *events.Digest) (uint64, error) {
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(seq), UpperBound: layout.UpperBound(end)})
	if err != nil {
		k.hole(seq, end, err.Error())
		return end + 1, nil
	}
	ok := it.First()
	for ; ok && seq <= end; ok = it.Next() {
		if seq%4096 == 0 {
			k.Progress("records", int64(seq), int64(end))
			if err := context.Cause(ctx); err != nil {
				return 0, errors.Join(err, it.Close())
			}
		}
		if at := layout.LastUint64(it.Key()); at > seq {
			k.hole(seq, at-1, "the record is missing")
			seq = at
		}
		value, err := it.ValueAndErr()
		if err != nil {
			break
		}
		k.record(value, seq, digest)
		seq++
	}
	if err := it.Close(); err != nil {
		k.hole(seq, seq, readDetail(err))
		return seq + 1, nil
	}
	if seq <= end {
		k.hole(seq, end, "the record is missing")
	}
	return end + 1, nil
}

// readDetail returns the text of a finding for a read error. The text is the same for
// each record of a damaged block, so that report merges the findings.
func readDetail(err error) string {
	if d, ok := errors.AsType[*pebblefiles.Damage](err); ok {
		return "the record cannot be read: " + storedir.LogName + "/" + d.Error()
	}
	return "the record cannot be read: " + err.Error()
}

// hole reports the records with the sequences from..through, both included, as
// unreadable. It forgets the lengths of all streams, because the unreadable records
// may have extended any stream.
func (k *check) hole(from, through uint64, detail string) {
	k.lost = true
	for seq := from; seq <= through && len(k.holes) < 1<<20; seq++ {
		k.holes[seq] = true
	}
	clear(k.lengths) // streams may have grown in the hole
	k.report(Finding{Position: events.NewPosition(from, from), Through: events.NewPosition(through, through), Detail: detail})
}

// record verifies one record, compares its revision with the length of its stream, and
// adds it to the sums and the digest. If it cannot decode the record, it calls hole,
// which reports the record as unreadable.
func (k *check) record(value []byte, seq uint64, digest *events.Digest) {
	e, err := layout.Decode(value, seq)
	if err != nil {
		k.hole(seq, seq, err.Error())
		return
	}
	if err := e.Valid(); err != nil {
		k.report(Finding{Position: e.Position, Stream: e.Stream, Revision: e.Revision, Detail: err.Error()})
	}
	length, known := k.lengths[e.Stream]
	if (known || !k.lost) && e.Revision != length+1 {
		k.report(Finding{Position: e.Position, Stream: e.Stream, Revision: e.Revision,
			Detail: fmt.Sprintf("the entry of its stream before it has revision %d", length)})
	}
	k.lengths[e.Stream] = e.Revision
	k.sum(&k.records, e.Stream, e.Revision, seq)
	digest.Add(e)
	if k.Record != nil {
		k.Record(e)
	}
}
