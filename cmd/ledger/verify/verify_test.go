package verify

import (
	"testing"

	"github.com/settlement-ledger/ledger/events"
)

// verify reports a gap in the revisions of a stream, and a position that does not
// increase. No store of this module has either.
func TestVerifyFindsAGap(t *testing.T) {
	t.Parallel()
	v := newReport(nil)
	for position, revision := range []events.Revision{1, 2, 4, 5} {
		v.checkPlace(events.Envelope{Stream: "process-x", Revision: revision, Position: events.NewPosition(uint64(position+1), uint64(position+1))})
	}
	v.checkPlace(events.Envelope{Stream: "process-y", Revision: 1, Position: events.NewPosition(4, 4)})
	if len(v.Exceptions) != 2 || *v.Exceptions[0].Revision != 4 || *v.Exceptions[1].Stream != "process-y" {
		t.Errorf("exceptions %v, want the gap and the position that does not increase", v.Exceptions)
	}
}
