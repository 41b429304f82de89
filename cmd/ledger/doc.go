// Command ledger runs agent sessions over a ledger of their tool calls, and
// shows the recorded registrations, the tools that each turn offered the model,
// the calls and their outcomes.
//
// An app is one execution of the command, with its inputs: streams,
// environment, clock and randomness. The function root builds the command tree,
// and one file for each noun builds its commands. A [stores.Address] names a
// store, which is a folder or a database; a [stores.Store] is an open one, with
// its ledger and its outputs. Package serve has the server process.
//
// # Promises
//
//   - A command that reads never creates a store.
//   - The standard output carries results only. Errors, hints and progress go
//     to the standard error.
//   - Tables are for people and may change. The JSON of -o json and jsonl is
//     stable: every key is always present, an absent value is null, IDs are
//     whole, times are RFC 3339 in UTC with microseconds. The schema_version of
//     the version command rises when a key changes its meaning or is removed.
//   - A table fits the width of the terminal; in a file or a pipe its width is
//     not limited. Its times are local, or UTC with --utc.
//   - A filter with a name that the log does not contain is a fault, and not an
//     empty result.
//   - No text of a tool or a model reaches a terminal as a control sequence,
//     except by the output command, which prints the bytes as kept.
//   - Every command that takes an ID accepts a unique part of it.
//   - No text contains the password of a connection string.
//   - A command on a folder that another process serves works through that
//     process.
//   - The exit code classifies the error; the root help lists the codes.
//   - A write to an output whose reader left interrupts the command, which ends
//     with 141 and no error text. A command that follows ends as soon as the
//     reader leaves.
//
// # Concurrency
//
// A command runs on one goroutine. A second one receives signals: the first
// signal cancels the context with a cause, the second exits the process. While a
// command follows, a third one watches for the reader of the results to close
// the pipe.
//
// # Errors
//
// Every error that leaves a command becomes a fault: a stable code, a text, a
// hint and an exit code.
//
// Only this package wires the other packages together. The scripts in
// testdata/script test the subcommands; command_test.go tests behaviour that a
// script cannot express.
package main
