package eventstoredb

import (
	"encoding/json"
	"fmt"

	"github.com/settlement-ledger/ledger/events"
)

// errHidden is the end of a stream that is there and shows nothing, which its
// metadata have the server do: $maxAge and $maxCount.
var errHidden = fmt.Errorf("%w: %w: nothing is left of it", events.ErrDamaged, ErrDeleted)

// cutShort returns an ErrDeleted if the metadata of a stream hide what was
// written to it.
func cutShort(metadata []byte) error {
	var m struct {
		Before *int64 `json:"$tb"`
	}
	if json.Unmarshal(metadata, &m) != nil || m.Before == nil || *m.Before == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w: its metadata hide what stands before %d", events.ErrDamaged, ErrDeleted, *m.Before)
}
