package layout

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
)

// RecordAt returns the record at a valid iterator and verifies its sum. It returns an
// events.ErrDamaged unless the record has the sequence seq. The bytes are valid until
// the iterator moves.
func RecordAt(it *pebble.Iterator, seq uint64) (RawRecord, error) {
	if key := it.Key(); len(key) != EntryKeyLen || LastUint64(key) != seq {
		return nil, Damaged(seq, "it is missing")
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, AsDamaged(err)
	}
	r, err := ParseRecord(value, seq)
	if err != nil {
		return nil, err
	}
	return r, Verify(value, seq)
}

// Missing returns the error of an iterator that ended before the record with the
// sequence seq. It returns the error of the iterator, or, if there is none, an
// events.ErrDamaged that says that the record is missing.
func Missing(it *pebble.Iterator, seq uint64) error {
	if err := it.Error(); err != nil {
		return AsDamaged(err)
	}
	return Damaged(seq, "it is missing")
}

// CloseIter closes an iterator. It returns err, or the error of closing if err is
// nil.
func CloseIter(it *pebble.Iterator, err error) error {
	if closing := it.Close(); err == nil {
		return AsDamaged(closing)
	}
	return err
}

// AsDamaged returns an error of Pebble that reports corruption as an
// events.ErrDamaged, and any other error unchanged.
func AsDamaged(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", events.ErrDamaged, err)
	}
	return err
}

// entryAt decodes the record at a valid iterator. It returns an events.ErrDamaged unless
// the record has the sequence seq. The entry owns its bytes.
func entryAt(it *pebble.Iterator, seq uint64) (events.Entry, error) {
	if found := LastUint64(it.Key()); found != seq {
		return events.Entry{}, Damaged(seq, "it is missing")
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return events.Entry{}, AsDamaged(err)
	}
	return Decode(value, seq)
}
