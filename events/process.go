package events

import "github.com/settlement-ledger/ledger/domain"

// ProcessStarted says that a program began to use the ledger.
type ProcessStarted struct {
	Process domain.ProcessID `json:"process"`
	Host    string           `json:"host"`
	PID     int              `json:"pid"`
	Program string           `json:"program"`
	Version string           `json:"version"`
}

// ProcessStopped says that a program ended, and why. A process that left
// layers or calls open and no ProcessStopped died; whoever recovers the store
// writes it, with the reason [ProcessLost].
type ProcessStopped struct {
	Process domain.ProcessID `json:"process"`
	Reason  string           `json:"reason"`
}

// The reasons for the end of processes, layers and registrations.
const (
	ProcessEnded = "ended"        // the process ended in order
	ProcessLost  = "process lost" // the process died, and recovery found what it left
	ScopeClosed  = "scope closed" // whoever registered took it back
)

// Kind returns the name under which the event is kept.
func (ProcessStarted) Kind() string { return "ProcessStarted" }

// Kind returns the name under which the event is kept.
func (ProcessStopped) Kind() string { return "ProcessStopped" }

func (ProcessStarted) event() {}
func (ProcessStopped) event() {}
