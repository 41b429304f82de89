// Command ledger runs agent sessions over a ledger of their tool calls, and
// shows what is on record: what was registered, what each turn offered the
// model, what was called, and how it ended.
//
// An app is one use of the command, with everything that it takes from the
// outside: streams, environment, clock, randomness. Its commands are built by
// the function root and by one file for each noun. An address is where a store
// is, a folder or a database, and a ledgerStore one that is open, with its ledger
// and its outputs. A host serves one to others.
//
// # Promises
//
//   - A command that reads never makes a store; one that writes makes it where
//     there is none.
//   - Results go to the standard output, and nothing else does: errors, hints
//     and progress go to the standard error.
//   - A table is for a person and may change. With -o json or jsonl the keys
//     are stable, all of them are always there, IDs are whole, times are RFC
//     3339 in UTC with microseconds, and null stands for what there is not. The
//     schema_version that the version command tells rises when that changes.
//   - A table for a terminal is no wider than that; elsewhere it is as wide as it
//     is. Times in it are local, or UTC with --utc.
//   - A name in a filter that the log does not have is a fault, not an empty answer.
//   - No text of a tool or a model reaches a terminal as a control sequence,
//     but by the output command, which gives the bytes as they were kept.
//   - An ID may be shortened wherever one is taken, as long as one thing fits.
//   - No text holds a password of a connection string.
//   - A folder that is served is worked on through who serves it.
//   - The exit code says what kind of end it was; the root help lists them.
//   - A write to an output whose reader left interrupts the command, which ends
//     with 141 and no error text. A command that follows ends as soon as the
//     reader leaves.
//
// # Concurrency
//
// A command runs on one goroutine. Another waits for signals: the first ends
// the context with a cause, the second ends the process. While a command
// follows, a third waits for the reader of the results to leave. A host has one for each
// of what it serves and for publishing, and joins them.
//
// # Errors
//
// Every error that leaves a command becomes a fault: a stable word, a text, a
// hint what to do, and an exit code.
//
// This is the only place that wires the packages together. The stories of the
// subcommands are in testdata/script; command_test.go has what scripts cannot
// say.
package main
