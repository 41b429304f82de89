package events

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// ProcessStarted says that a program began to use the ledger. Version 1 had
// neither Until nor Address.
type ProcessStarted struct {
	Process domain.ProcessID `json:"process"`
	Host    string           `json:"host"`
	PID     int              `json:"pid"`
	Program string           `json:"program"`
	Version string           `json:"version"`
	// Until is when the process's lease runs out, unless a LeaseRenewed says
	// later. Zero: it has none, as it holds the store alone.
	Until time.Time `json:"until,omitzero"`
	// Address is where other nodes can ask for the outputs that the process
	// keeps. Empty: nowhere.
	Address string `json:"address,omitempty"`
	// InStore says that the process keeps its outputs in the folder of the store.
	// False: it has no lease and does so too, or it has one and keeps them on a node
	// of its own. A process of a program from before this field has it false.
	InStore bool `json:"in_store,omitempty"`
}

// unchanged is the upcast of a version that lacks only what may be absent.
func unchanged(data json.RawMessage) (json.RawMessage, error) { return data, nil }

// LeaseRenewed says that a process lives, and how long that holds at least.
type LeaseRenewed struct {
	Process domain.ProcessID `json:"process"`
	Until   time.Time        `json:"until"`
}

// ProcessStopped says that a program ended, and why. A process that left
// layers or calls open and no ProcessStopped died, or its lease ran out;
// whoever recovers the store writes it, with the reason [ProcessLost].
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
func (LeaseRenewed) Kind() string { return "LeaseRenewed" }

// Kind returns the name under which the event is kept.
func (ProcessStopped) Kind() string { return "ProcessStopped" }

func (ProcessStarted) event() {}
func (LeaseRenewed) event()   {}
func (ProcessStopped) event() {}
