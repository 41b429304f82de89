package auth

// OccupyWorkers occupies all workers that check passwords until release is
// called.
func (u *Users) OccupyWorkers() (release func()) {
	c := u.checks
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.workers += c.limit
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.workers -= c.limit
		for ; c.mu.workers < min(c.limit, c.mu.waiting); c.mu.workers++ {
			go c.work()
		}
	}
}

// CheckNext runs the next waiting check and finishes it.
func (u *Users) CheckNext() {
	u.checks.mu.Lock()
	k := u.checks.nextLocked()
	u.checks.mu.Unlock()
	u.checks.compare(k)
}

// Waiting returns the number of checks that wait for a worker.
func (u *Users) Waiting() int {
	u.checks.mu.Lock()
	defer u.checks.mu.Unlock()
	return u.checks.mu.waiting
}

// Callers returns the number of calls that wait for a check.
func (u *Users) Callers() int {
	u.checks.mu.Lock()
	defer u.checks.mu.Unlock()
	return u.checks.mu.callers
}

// The bounds of waiting checks.
const (
	MaxChecks       = maxChecks
	MaxOriginChecks = maxOriginChecks
)

// FormatUserAt is FormatUser with a bcrypt cost.
var FormatUserAt = formatUser
