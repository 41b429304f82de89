// Package fault maps errors to the form in which the ledger command reports them.
//
// An [Error] has a cause, an exit code, a stable code for programs, and a hint that
// says what to do. Commands make one with [Usage] for arguments that make no sense
// and with [NotFound] for an ID that names nothing; [WithHint] gives an error another
// hint. Every other error goes through [Of], which looks its sentinel up in a table
// and maps what it does not know to exit code 1.
//
// # Promises
//
//   - Codes are stable: a program may compare them. Messages and hints are for people
//     and may change.
//   - The exit codes are those that ledger --help lists.
//   - Of returns an Error that it is given as it is, however often it was wrapped.
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
