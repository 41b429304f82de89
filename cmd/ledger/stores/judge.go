package stores

import (
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
)

// Judge judges all processes. It is for commands that are on record themselves
// only if there is something to end.
func (s *Store) Judge(started *runner.ProcessList, now time.Time) runner.Liveness {
	j := started.Judge(domain.ProcessID{}, now, false)
	s.EndHolders(&j)
	return j
}

// EndHolders counts processes as dead that had the lock of the folder before, or
// worked without a lease, which takes the lock: however long a lease runs, this
// process has the lock, or found that none has.
func (s *Store) EndHolders(j *runner.Liveness) {
	if !s.Holds() {
		return
	}
	j.Dead, j.Unknown = append(j.Dead, j.Unknown...), nil
	before := s.HeldBefore()
	j.Living = slices.DeleteFunc(j.Living, func(p events.ProcessStarted) bool {
		dead := slices.Contains(before, p.Process)
		if dead {
			j.Dead = append(j.Dead, p)
		}
		return dead
	})
}
