// Package demo shows the ledger at work in a minute, without a network and without a
// model.
//
// [Run] has three parts. A recorded trajectory fixes a failing test with the real tools
// in a temporary folder, and Run prints the recorded calls. A child process runs a
// second trajectory and is killed in the middle of a call. Run then recovers the store,
// lists the calls of the killed session and verifies the log. The workspace, the
// permission rules and the trajectories are embedded files.
//
// With [Config.Live] the first trajectory runs once for each wire format of model providers
// instead, with the providers of package models against servers of this process. Run then
// compares the three sessions and verifies the log.
//
// # Promises
//
//   - Run removes its temporary folder, also after an error, unless [Config.Keep] is set.
//   - Run works in the store that --store names, and in one in its temporary folder if there
//     is no --store.
//   - The workspace needs only a POSIX shell.
//
// # Concurrency
//
// One goroutine uses a Config. Run ends the child process before it returns.
//
// # Errors
//
// Run returns the first error of a part, and an error if the sessions of the wire formats
// differ. The cancellation of the context ends it.
package demo
