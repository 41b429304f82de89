package embedded

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// torn decides about a place in a log or a manifest behind which Pebble would
// read nothing more. Whole records behind it may be what a power cut left: the
// disk wrote some sectors of appends that nobody had acknowledged, and not those
// before them. Then torn logs a warning that names the records and returns nil.
// It returns an ErrDamaged if that cannot be: one bit is flipped, the log says
// that the place had been synced, or the process before, which synced each group
// of appends, had more groups behind it than it keeps in flight.
func (s *Store) torn(t *pebblefiles.Tear) error {
	var before, through, first uint64
	var groups int
	if pebblefiles.KindOf(t.File) == pebblefiles.Log {
		before, _, _ = sequencesIn(t.Before)
		through, first, groups = sequencesIn(t.Behind)
	}
	if before > 0 && first > before+1 {
		groups++ // the damaged one
	}
	lost := ""
	switch {
	case through > 0 && before > 0:
		lost = fmt.Sprintf("; the records at positions %d to %d would be lost", before+1, through)
	case through > 0:
		lost = fmt.Sprintf("; records up to position %d would be lost", through)
	}
	d := t.Damage()
	if t.Certain || s.folder.before.syncs() && groups > maxInFlight {
		return fmt.Errorf("%w: %s/%w%s: restore a backup; a copy of the folder in which %s/%s is cut to %d bytes opens with what is before that",
			events.ErrDamaged, logName, d, lost, logName, t.File, t.Offset)
	}
	s.failStop.Errorf("%s/%s%s: a power cut left it so, or the file was damaged", logName, d, lost)
	return nil
}

// sequencesIn returns the last and the first sequence of the records in batches,
// and in how many of the batches there is one.
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

// sequencesOf returns the first and the last sequence of the records in a batch,
// and 0 where there is none.
func sequencesOf(batch []byte) (first, last uint64) {
	// The reader of batches panics at bytes that are none, such as a manifest's.
	defer func() { _ = recover() }()
	if len(batch) < batchrepr.HeaderLen {
		return 0, 0
	}
	for r := batchrepr.Read(batch); ; {
		kind, key, _, ok, err := r.Next()
		if !ok || err != nil {
			return first, last
		}
		if kind != pebble.InternalKeyKindSet || len(key) != entryKeyLen || string(key[:2]) != "e/" {
			continue
		}
		if last = lastUint64(key); first == 0 {
			first = last
		}
	}
}
