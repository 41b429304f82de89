package eventstoredb

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/settlement-ledger/ledger/events"
)

// errAllHidden is the end of a stream that is there and shows nothing, which its
// metadata have the server do: $maxAge and $maxCount.
var errAllHidden = fmt.Errorf("%w: %w: nothing is left of it", events.ErrDamaged, ErrDeleted)

// gapError is the error of a stream whose revisions between two are missing.
func gapError(before, next events.Revision) error {
	subject := fmt.Sprintf("revisions %d to %d are", before+1, next-1)
	if before+2 == next {
		subject = fmt.Sprintf("revision %d is", before+1)
	}
	return fmt.Errorf("%w: %w: %s missing", events.ErrDamaged, ErrDeleted, subject)
}

// truncationError returns an ErrDeleted if the metadata of a stream hide what was
// written to it.
func truncationError(metadata []byte) error {
	var m struct {
		Before *int64 `json:"$tb"`
	}
	if json.Unmarshal(metadata, &m) != nil || m.Before == nil || *m.Before == 0 {
		return nil
	}
	if *m.Before == math.MaxInt64 {
		return fmt.Errorf("%w: %w: somebody deleted it", events.ErrDamaged, ErrDeleted)
	}
	return fmt.Errorf("%w: %w: its metadata hide the records through revision %d", events.ErrDamaged, ErrDeleted, *m.Before)
}
