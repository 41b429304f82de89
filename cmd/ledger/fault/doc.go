// Package fault maps errors to the form in which the ledger command reports them.
//
// An [Error] has a cause, an exit code, a stable code for programs, and a hint for the
// user. Commands make one with [Usage] for invalid arguments and with [NotFound] for an
// unknown ID; [WithHint] replaces the hint of an error. [Of] maps every other error by its
// sentinel, or to exit code 1 if its table lacks the sentinel.
//
// # Promises
//
//   - Codes are stable: a program may compare them. Messages and hints are for people
//     and may change.
//   - ledger --help lists every exit code.
//   - Of finds an Error under any number of wrappers and returns it unchanged.
//
// # Concurrency
//
// Everything here may be used by several goroutines at once, but an [Error] may not be
// changed by one while another reads it.
//
// # Errors
//
// [ErrUnread] is the cause of a context that ended because the reader of the standard
// output, or of the standard error, closed the pipe. [IsUnread] recognizes it.
//
// Package render writes faults; the command returns their exit codes.
package fault
