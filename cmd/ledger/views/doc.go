// Package views prints what the log says about sessions, turns, calls, events, the
// registry, approvals and outputs.
//
// Each List and Show function does the work of one command: it reads a store, selects by a
// filter, and prints rows or one page to a render.Printer, as a table for people or as
// JSON. The filters and the options are structs whose fields the flags of the command set:
// [CallFilter], [SessionOptions], [RegistryFilter], [ApprovalFilter], [ShowOptions], [Tail],
// [OutputPage]. [TailEvents] also follows the log. [Texts], [Summary] and [KindLabel] are
// the texts of an event. [MainField] and [StreamName] are short
// forms of an input and of a stream for the lines of other commands.
//
// # Promises
//
//   - The JSON keys of a row are always the same, and [SchemaVersion] rises when one changes
//     its meaning.
//   - No text that a model, a tool or an import wrote can control the terminal.
//   - A row has at most the beginning of a long input unless the caller asks for full
//     inputs, and says that it is shortened.
//   - ShowSession holds one entry of a session and 1,000 rows, however long the session is.
//   - A filter that names an unknown session, tool, agent, kind or stream is an error, and
//     never an empty list.
//
// # Concurrency
//
// The functions work on the goroutine of their caller. TailEvents with Tail.Follow runs
// until its context ends or the reader of the output leaves.
//
// # Errors
//
// Invalid arguments are fault.Error values with exit codes 2 and 4, as package query
// describes. Listing events continues behind a damaged place, reports it on the standard
// error, and returns a fault.Error with the code "damaged" at the end. Other errors of the
// store are returned unchanged.
//
// Package query looks up IDs and filters; package render formats.
package views
