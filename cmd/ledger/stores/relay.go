package stores

import (
	"fmt"
	"os"

	"github.com/settlement-ledger/ledger/projections/publish"
)

// Relay returns a relay that publishes the records of a store to targets. Its consumer locks
// are files in s.ClaimsDir that name this process and its command.
func (o *Opener) Relay(s *Store) *publish.Relay {
	holder := fmt.Sprintf("process %d (%s)", os.Getpid(), o.Command)
	return publish.NewRelay(s.Log, s.Checkpoints, publish.NewFileLocker(s.ClaimsDir, holder), o.Clock)
}
