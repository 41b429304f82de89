package events

import (
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// ProcessStarted records that a program started to use the ledger. Version 1
// has neither Until nor Address.
type ProcessStarted struct {
	// Process is the ID of this run of the program, and of its stream.
	Process domain.ProcessID `json:"process"`
	// Host is the name of the machine.
	Host string `json:"host" codec:"intern"`
	// PID is the process ID on that machine.
	PID int `json:"pid"`
	// Program is the name of the program.
	Program string `json:"program" codec:"intern"`
	// Version is the version of the program.
	Version string `json:"version" codec:"intern"`
	// Until is the end of the process's lease, unless a LeaseRenewed extends it.
	// Zero: the process has no lease, because it holds the store exclusively.
	Until time.Time `json:"until,omitzero"`
	// Address is the URL at which other nodes can read the outputs of the
	// process. Empty: it does not serve them.
	Address string `json:"address,omitempty" codec:"intern"`
	// InStore reports that a process with a lease stores its outputs in the
	// folder of the store, and not on its own node. It is false for a
	// process without a lease, which always stores them in the folder of
	// the store. Older programs leave it false.
	InStore bool `json:"in_store,omitempty"`
}

// LeaseRenewed records that a process is alive and holds its lease at least
// until a time.
type LeaseRenewed struct {
	// Process is the holder of the lease.
	Process domain.ProcessID `json:"process"`
	// Until is the end of the lease, unless a later LeaseRenewed extends it.
	Until time.Time `json:"until"`
}

// ProcessStopped records that a program ended, and the reason. A process that
// left layers or calls open without a ProcessStopped has died or lost its
// lease; recovery then records one with the reason [ProcessLost].
type ProcessStopped struct {
	// Process is the process that ended.
	Process domain.ProcessID `json:"process"`
	// Reason is ProcessEnded, ProcessLost or another text.
	Reason string `json:"reason" codec:"intern"`
}

// The reasons for the end of processes, layers and registrations.
const (
	ProcessEnded = "ended"        // the process shut down
	ProcessLost  = "process lost" // the process died, and recovery closed its layers and calls
	ScopeClosed  = "scope closed" // the scope was closed by its owner
)
