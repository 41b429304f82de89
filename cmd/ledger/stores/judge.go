package stores

import (
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
)

// Judge classifies all processes as living, dead or unknown at the time now. started
// is the fold of the processes on record. Judge makes no exception for the caller's
// own process, so a command that records a ProcessStarted calls Judge before.
func (s *Store) Judge(started *runner.ProcessList, now time.Time) runner.Liveness {
	j := started.Judge(domain.ProcessID{}, now, false)
	s.EndHolders(&j)
	return j
}

// EndHolders moves to j.Dead the processes that must have ended because no other process
// has the lock of the folder. These are the earlier holders of the lock, even if their
// lease has not expired. They are also all processes without a lease: such a process
// works only while it has the lock. If [Store.Holds] is false, EndHolders does not change
// j.
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
