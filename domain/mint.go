package domain

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// A Mint makes unique IDs of all kinds in increasing order, even if its clock
// stops or goes back. Times before 1970 count as 1970. It is safe for
// concurrent use.
type Mint struct {
	// now is the clock, and mu guards the rest.
	now func() time.Time
	mu  struct {
		sync.Mutex
		entropy *ulid.MonotonicEntropy
		// last is the latest ID. The next one is greater.
		last ulid.ULID
	}
}

// NewMint returns a Mint that reads the clock from now and random bytes from
// entropy. The Mint owns entropy from then on.
func NewMint(now func() time.Time, entropy io.Reader) *Mint {
	m := &Mint{now: now}
	m.mu.entropy = ulid.Monotonic(entropy, 1) // increment by one: ulid draws a random increment until it fits, which may never happen
	return m
}

// NewID returns an ID greater than every earlier ID of m. It panics if entropy
// returns an error, because no unique ID can be made.
func NewID[K IDKind](m *Mint) ID[K] {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms := max(uint64(max(m.now().UnixMilli(), 0)), m.mu.last.Time())
	u, err := ulid.New(ms, m.mu.entropy)
	if err != nil || u.Compare(m.mu.last) <= 0 { // 80 bits of one millisecond are used up, or entropy failed
		if u, err = ulid.New(ms+1, m.mu.entropy); err != nil {
			panic(fmt.Sprintf("domain: mint an ID: %v", err))
		}
	}
	m.mu.last = u
	return ID[K]{u}
}

// Session returns a new ID for a session.
func (m *Mint) Session() SessionID { return NewID[sessionKind](m) }

// Message returns a new ID for a message.
func (m *Mint) Message() MessageID { return NewID[messageKind](m) }

// Turn returns a new ID for a turn.
func (m *Mint) Turn() TurnID { return NewID[turnKind](m) }

// Event returns a new ID for an event.
func (m *Mint) Event() EventID { return NewID[eventKind](m) }

// Scope returns a new ID for a scope.
func (m *Mint) Scope() ScopeID { return NewID[scopeKind](m) }

// Layer returns a new ID for a layer.
func (m *Mint) Layer() LayerID { return NewID[layerKind](m) }

// Process returns a new ID for a process.
func (m *Mint) Process() ProcessID { return NewID[processKind](m) }

// Permission returns a new ID for a permission request.
func (m *Mint) Permission() PermissionID { return NewID[permissionKind](m) }
