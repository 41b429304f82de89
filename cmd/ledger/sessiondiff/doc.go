// Package sessiondiff prints the differences of two sessions.
//
// [Diff] reads two sessions, compares them by package comparison, and prints a summary and
// then each difference: for a person with differences of texts line by line, or as JSON.
// [Options] are the flags of the command.
//
// # Promises
//
//   - Diff reads both sessions twice: for the summary, and for the differences. Memory does not
//     grow with the sessions.
//   - A difference in the classes of Options.Ignore is neither counted nor printed. A
//     difference in times is never one.
//   - The fault of sessions that differ has the exit code [fault.ExitUnverified], and that of
//     equal sessions is nil.
//   - No text of a session can control the terminal.
//
// # Errors
//
// An unknown session or class is a fault of the command line, as in package query. Other
// errors of the store are returned unchanged.
//
// Package comparison has the rules; a test of this package checks the output.
package sessiondiff
