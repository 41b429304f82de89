package embedded

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// torn decides whether a tear is damage. A tear is a place in a log or a manifest after
// which Pebble reads no further, although whole records follow. A power cut can cause a
// tear: the disk wrote some sectors of unacknowledged appends, and not the sectors
// before them.
//
// torn returns an ErrDamaged if a power cut cannot be the cause: a single bit is
// flipped, the log says that the place was synced, or more groups follow than a process
// under Sync has in flight. Otherwise it logs a warning with the positions of the lost
// records and returns nil, and the store opens without these records.
func (s *Store) torn(t *pebblefiles.Tear) error {
	var before, through, first uint64
	var groups int
	if pebblefiles.KindOf(t.File) == pebblefiles.Log {
		before, _, _ = sequencesIn(t.Before)
		through, first, groups = sequencesIn(t.Behind)
	}
	if before > 0 && first > before+1 {
		groups++ // the damaged group between Before and Behind
	}
	lost := ""
	switch {
	case through > 0 && before > 0:
		lost = fmt.Sprintf("; the records at positions %d to %d would be lost", before+1, through)
	case through > 0:
		lost = fmt.Sprintf("; records up to position %d would be lost", through)
	}
	d := t.Damage()
	if t.Certain || s.folder.Before.Durability == Sync().String() && groups > maxInFlight {
		return fmt.Errorf("%w: %s/%w%s: restore a backup; a copy of the folder in which %s/%s is cut to %d bytes opens with what is before that",
			events.ErrDamaged, storedir.LogName, d, lost, storedir.LogName, t.File, t.Offset)
	}
	s.failStop.Errorf("%s/%s%s: a power cut left it so, or the file was damaged", storedir.LogName, d, lost)
	return nil
}

// sequencesIn returns the last and the first sequence of the records in a list of
// batches. The result with is the number of batches that have records. If no batch has
// records, all results are 0.
func sequencesIn(batches [][]byte) (last, first uint64, with int) {
	for _, batch := range batches {
		from, to := sequencesOf(batch)
		if to == 0 {
			continue
		}
		with++
		last = max(last, to)
		if first == 0 {
			first = from
		}
	}
	return last, first, with
}

// sequencesOf returns the first and the last sequence of the records in a batch. It
// returns zeros if the batch has no records or is not a batch.
func sequencesOf(batch []byte) (first, last uint64) {
	// The batch reader panics at bytes of another format, such as a manifest.
	defer func() { _ = recover() }()
	if len(batch) < batchrepr.HeaderLen {
		return 0, 0
	}
	for r := batchrepr.Read(batch); ; {
		kind, key, _, ok, err := r.Next()
		if !ok || err != nil {
			return first, last
		}
		if kind != pebble.InternalKeyKindSet || len(key) != layout.EntryKeyLen || string(key[:2]) != "e/" {
			continue
		}
		if last = layout.LastUint64(key); first == 0 {
			first = last
		}
	}
}
