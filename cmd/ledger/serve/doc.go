// Package serve is the server process of a store.
//
// [Run] serves a folder, or a node: the outputs and checkpoints that one machine keeps
// for a ledger in a database. For a folder it opens the log alone and runs a server of
// the EventStoreDB protocol (package server) over it. In both cases it runs an HTTP
// server for outputs (package remote), the status, the metrics and the health check,
// and a server for the other ledger processes of this machine (package shared). Run
// registers the process in the log if other nodes may look for its outputs, and renews
// the lease of that registration. It publishes the records of the log if [Config.Jobs]
// are given.
//
// # Promises
//
//   - Before Run serves a folder, [Config.Recover] has ended the work of dead processes.
//   - No request is served after the end of the process is recorded.
//   - A server without users listens on loopback addresses only. Unless [Options] name
//     users or a role for all requests, only the owner of the folder can connect: a user,
//     a password and a certificate are new at each start, in files that only the owner
//     can read (see [CredentialsFile]).
//   - When the context ends, requests in flight have the time of Options.Drain to finish.
//
// # Concurrency
//
// Run starts a goroutine for each server, one for publishing and one that renews the
// lease, and joins them. Request handlers run on goroutines of their own and share only
// atomic counters and stores that are safe for concurrent use.
//
// # Errors
//
// Run returns a fault.Error with a hint for invalid options, events.ErrInUse if another
// process has the folder and does not hand it over, and the error of a server that
// failed. A lost lease, and a record or a job that is not published, are logged and end
// no server.
//
// The command parses the flags and reads the configuration of publishing.
package serve
