// Package engine puts a process to work in a ledger.
//
// [Start] records the process, renews its lease where the store is shared, and
// recovers what dead processes left open. The [Process] that it returns opens a
// [Workspace] for each location: the registry that settles the calls of its
// sessions, the runner that carries them forward, and the permission gate that
// its tools ask. [OpenFolder] does all of it for a store in a folder, in one
// call. A program that embeds the ledger uses this package, as the ledger command
// does.
//
// # Promises
//
//   - Nothing is registered before the process is on record as started, and
//     nothing of it is in effect once it is on record as stopped.
//   - A call that a dead process began is settled as lost before a session runs
//     in a store that this process holds alone.
//   - A permission request and its decision are on record in the session of the
//     call before the tool acts on them. A rule that allows at once is on record
//     with the end of the call.
//   - A session that the runner left in an orderly way passes every check of
//     package calls.
//
// # Concurrency
//
// A Process and a Workspace are safe for concurrent use. Start starts one
// goroutine where the process has a lease; Close joins it.
//
// # Errors
//
// [ErrBadConfig] says which field of a config is missing. Other errors are those
// of the store, of package registry and of package runner.
//
// The store, the outputs and the checkpoints that Start is given belong to the
// caller; those that OpenFolder opens are closed by [FolderWorkspace.Close]. The example is
// a complete program, which docs/embedding.md explains.
package engine

import "errors"

// ErrBadConfig says that a required field of a config is not set.
var ErrBadConfig = errors.New("incomplete engine configuration")
