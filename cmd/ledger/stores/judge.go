package stores

import (
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
)

// Judge classifies all processes as living, dead or unknown at the time now. started is
// the projection of the processes on record. Judge makes no exception for the process of
// the caller, so a command that records its own ProcessStarted calls Judge before that.
func (s *Store) Judge(started *runner.ProcessList, now time.Time) runner.Liveness {
	j := started.Judge(domain.ProcessID{}, now, false)
	s.EndHolders(&j)
	return j
}

// EndHolders moves processes to j.Dead that must have ended because no other process has
// the lock of the folder. It moves all of j.Unknown: these processes have no lease, so
// they can work only while they have the lock. It also moves the processes of j.Living
// that had the lock before, although their lease has not expired. If [Store.Holds] is
// false, EndHolders does not change j.
func (s *Store) EndHolders(j *runner.Liveness) {
	if !s.Holds() {
		return
	}
	j.Dead, j.Unknown = append(j.Dead, j.Unknown...), nil
	before := s.heldBefore()
	j.Living = slices.DeleteFunc(j.Living, func(p events.ProcessStarted) bool {
		dead := slices.Contains(before, p.Process)
		if dead {
			j.Dead = append(j.Dead, p)
		}
		return dead
	})
}
