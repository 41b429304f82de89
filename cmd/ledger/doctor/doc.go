// Package doctor diagnoses a store and the connection to it.
//
// A [Doctor] runs its checks one after the other:
//
//   - of a database: the address, the network, the nodes with their version, the
//     cluster, and the rights of the user;
//   - of a folder: the disk, the process that serves it, and the writes of Pebble;
//   - of both: the latency of reads and, if the caller asks for it, of appends; the
//     clocks; the processes that use the ledger; the consumers to which its records
//     are published; and the saved states of projections.
//
// A [Report] has a [Check] for each finding: whether it passed, the detail, advice, and
// figures.
//
// # Promises
//
//   - A Doctor appends to the log only if the caller asks for timed appends, and then
//     only to the stream doctor-probe.
//   - No detail contains a credential.
//   - No step waits longer than the timeout of the Opener, which is 3 seconds unless the
//     user gives another.
//   - A check that cannot run is reported as failed. The checks that do not depend on it
//     still run.
//
// # Concurrency
//
// One goroutine uses a Doctor. Run sets the Timeout of its Opener if that is 0.
//
// # Errors
//
// [Doctor.Run] returns a fault.Error with exit code 1 if a check failed, and an error
// of another code only for an invalid address and for an interruption.
package doctor
