// Package stores opens the store that a command line names.
//
// An [Address] locates a store: a folder, or a database with a connection string. An
// [Opener] finds the address in the flag --store and the environment, and opens it as a
// [Store]: the log of records; the ledger, which reads them as typed events; the
// checkpoints, which are saved states of projections; and the outputs of calls that are
// too large for the log. [Opener.Read] and [Opener.Write] open a store, call a function
// with it and close it. [Opener.Follow] follows a log while other processes open and
// close it.
//
// A folder is opened in one of three ways: by this process alone
// ([Opener.OpenFolder]), together with other processes of this machine
// ([Opener.OpenSharedFolder]), or to read it as it is, without a lock
// ([Opener.OpenToReadAt]). A database does not store outputs and checkpoints: they are
// in a folder of this machine, to which a [NodeStore] gives access. A machine with such
// a folder is a node of the ledger.
//
// # Promises
//
//   - Opening to read never makes the folder of a store and never changes its log or
//     outputs. Opening to write makes that folder only through OpenOrCreate and
//     OpenOrCreateAt.
//   - No text of an [Address] holds a password.
//   - A folder that another process serves is used through that process.
//   - [Store.Entries] continues after a damaged record if it finds the next readable one.
//
// # Concurrency
//
// A [Store] and a [NodeStore] may be used by several goroutines at once. An [Opener] may
// not be changed while one of its methods runs. A NodeStore closes idle outputs on the
// goroutine of a timer. Opener.Follow starts one goroutine per serving process, which
// watches its lock, and joins it before the loop ends.
//
// # Errors
//
// A function returns the error of the store, or a fault.Error with a hint: [NoStore] for a
// folder without a store, a usage error for an invalid address. If a file of a store is
// missing, opening fails with a general failure and not with [NoStore].
//
// The callers put processes on record, renew leases and recover sessions.
package stores
