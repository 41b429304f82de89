// Package query finds what the arguments and the flags of a command name in a store.
//
// [Session], [Call], [Turn] and [Approvals] look up an ID in the index, whole or shortened,
// and [Process] one in a list; [Last] is the newest. [OutputRef] finds the reference of an
// output, and [ParseMoment] a point of the log. [EventFilter] and [Period] select
// events and times, and the Check functions reject a filter that nothing in the log can
// match. [CallsWithInputs] reads the inputs that the index leaves out. The
// functions whose names end in Words return completions for a shell.
//
// # Promises
//
//   - A whole name wins over a shortened one, so an ID is not ambiguous because it also
//     begins another.
//   - An unknown or ambiguous ID is an error with candidates or with the command that lists
//     them, and never an empty result.
//   - No function of this package appends to the log.
//
// # Concurrency
//
// The functions work on the goroutine of their caller. An EventFilter and a Period are
// written by AddFlags and Resolve, and only read afterwards.
//
// # Errors
//
// An argument without meaning and an ambiguous ID are fault.Error values with exit code 2;
// an ID or a stream that the store does not have is one with exit code 4. Errors of the
// store are returned unchanged.
//
// Package views prints the results.
package query
