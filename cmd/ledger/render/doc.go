// Package render writes the results, errors and progress of a command.
//
// A [Printer] has the two output streams, the environment and the clock of one run of the
// command. It writes in a [Format]: a [Table] or a page of fields for people, or
// JSON for programs. [Rows] writes a list and [Printer.Object] one object; both take a
// function that prints the form for people. [ProgressBar] is a progress bar on the
// standard error.
//
// # Promises
//
//   - A table on a terminal is no wider than the terminal: [Printer.Table] shortens texts,
//     omits columns, and writes each row as a block of lines if neither suffices.
//   - [Printable] and [OneLine] return text that cannot control a terminal.
//   - JSON has all keys of a row each time. A [Timestamp] is RFC 3339 in UTC with
//     microseconds; an absent value is null.
//   - Colours obey --color, NO_COLOR, FORCE_COLOR and TERM.
//   - Times for people are local, or UTC with --utc, and [Printer.ParseTime] reads the
//     same zone.
//   - A progress bar appears only if the standard error is a terminal.
//
// # Concurrency
//
// One goroutine uses a Printer at a time. [Printer.WhileRead] starts a goroutine, which
// the function that it returns joins.
//
// # Errors
//
// A write error stays in Out, and its Flush returns it. A write to a pipe without a
// reader ends the context of the command with fault.ErrUnread. Encoding a value that
// has no JSON form is an error of [Rows] and [Printer.Object].
//
// The callers open stores and select rows.
package render
