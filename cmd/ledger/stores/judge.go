package stores

import (
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
)

// Judge classifies all processes as living, dead or unknown at the time now. It is
// for commands that go on record themselves only if a dead process left work to
// recover. The first argument is the fold of the processes on record.
func (s *Store) Judge(started *runner.ProcessList, now time.Time) runner.Liveness {
	j := started.Judge(domain.ProcessID{}, now, false)
	s.EndHolders(&j)
	return j
}

// EndHolders moves processes to j.Dead that cannot be at work because no other
// process has the lock of the folder: the earlier holders of the lock, even if their
// lease has not expired, and all processes without a lease, which need the lock to
// work. If [Store.Holds] is false, EndHolders leaves j as it is.
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
