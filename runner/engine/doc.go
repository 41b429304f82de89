// Package engine starts a process in a ledger and runs sessions in it.
//
// [Start] records the process, renews its lease if the store is shared, and
// recovers the work of dead processes. The returned [Process] opens a [Workspace]
// for each location: a registry that settles the calls of its sessions, a runner
// that executes them, and a permission gate that its tools ask. [OpenFolder] does
// all of this for a store in a folder. Programs that embed the ledger use this
// package, as does the ledger command.
//
// [ReferencedOutputs], [OpenOutputs] and [ReadOutputs] check that the stored outputs
// belong to the log of a store and are complete.
//
// # Promises
//
//   - A tool is registered only after the start of the process is recorded, and no
//     tool of the process is in effect after its stop is recorded.
//   - In a store that this process has locked, the calls of dead processes are
//     settled as lost before a session runs.
//   - A permission request and its decision are recorded in the session of the call
//     before the tool acts on them. A rule that allows at once is recorded with the
//     settlement of the call.
//   - A session that the runner ended in order passes every check of package calls.
//
// # Concurrency
//
// A Process and a Workspace are safe for concurrent use. Start starts one goroutine
// if the process has a lease; Close joins it.
//
// # Errors
//
// [ErrBadConfig] names the missing field of a config. Other errors are those of the
// store, of package registry and of package runner.
//
// The caller owns the store, the outputs and the checkpoints that it passes to Start.
// [FolderWorkspace.Close] closes those that OpenFolder opened. The example is a
// complete program, which docs/embedding.md explains.
package engine

import "errors"

// ErrBadConfig says that a required field of a config is not set.
var ErrBadConfig = errors.New("incomplete engine configuration")
