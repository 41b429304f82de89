package eventstoredb

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/settlement-ledger/ledger/events"
)

// errAllHidden is the error for an existing stream of which the server hides every
// record, because of $maxAge or $maxCount in the metadata of the stream.
var errAllHidden = fmt.Errorf("%w: %w: no record of it is left", events.ErrDamaged, ErrDeleted)

// gapError returns an ErrDeleted that names the missing revisions: greater than before
// and less than next.
func gapError(before, next events.Revision) error {
	subject := fmt.Sprintf("revisions %d to %d are", before+1, next-1)
	if before+2 == next {
		subject = fmt.Sprintf("revision %d is", before+1)
	}
	return fmt.Errorf("%w: %w: %s missing", events.ErrDamaged, ErrDeleted, subject)
}

// truncationError returns an ErrDeleted if the metadata of a stream hide records by
// $tb, and nil otherwise. The largest $tb is the mark of a deleted stream.
func truncationError(metadata []byte) error {
	var m struct {
		Before *int64 `json:"$tb"`
	}
	if json.Unmarshal(metadata, &m) != nil || m.Before == nil || *m.Before == 0 {
		return nil
	}
	if *m.Before == math.MaxInt64 {
		return fmt.Errorf("%w: %w: it has a tombstone", events.ErrDamaged, ErrDeleted)
	}
	return fmt.Errorf("%w: %w: its metadata hide the records through revision %d", events.ErrDamaged, ErrDeleted, *m.Before)
}
