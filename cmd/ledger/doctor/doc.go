// Package doctor checks a store and what stands between it and this program.
//
// A [Doctor] runs checks one after the other: the address and the network of a
// database, or the folder and its disk; the server, its version and cluster; rights;
// the time of reading and, if asked to, of writing; clocks; processes, consumers and
// cached projections. A [Report] has a [Check] for each finding: whether it is well,
// the detail, advice, and figures.
//
// # Promises
//
//   - Nothing is written to the log, unless the caller asks for timed appends to the
//     stream doctor-probe.
//   - No detail holds a credential.
//   - No step waits longer than the timeout of the Opener, which is 3 seconds unless the
//     user gives another.
//   - A check that cannot be made is reported as failed, and the next ones follow where
//     that makes sense.
//
// # Concurrency
//
// A Doctor is used by one goroutine, and sets the Timeout of its Opener.
//
// # Errors
//
// [Doctor.Run] returns a fault.Error with exit code 1 if a check failed, and an error
// of another code only for an address that makes no sense and for an interruption.
package doctor
