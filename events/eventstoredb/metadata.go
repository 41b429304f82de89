package eventstoredb

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/settlement-ledger/ledger/events"
)

// errHidden is the end of a stream that is there and shows nothing, which its
// metadata have the server do: $maxAge and $maxCount.
var errHidden = fmt.Errorf("%w: %w: nothing is left of it", events.ErrDamaged, ErrDeleted)

// gap is the error of a stream whose revisions between two are missing.
func gap(before, behind events.Revision) error {
	what := fmt.Sprintf("revisions %d to %d are", before+1, behind-1)
	if before+2 == behind {
		what = fmt.Sprintf("revision %d is", before+1)
	}
	return fmt.Errorf("%w: %w: %s missing", events.ErrDamaged, ErrDeleted, what)
}

// cutShort returns an ErrDeleted if the metadata of a stream hide what was
// written to it.
func cutShort(metadata []byte) error {
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
