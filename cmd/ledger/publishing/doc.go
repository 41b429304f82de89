// Package publishing runs the consumers that relay records to other programs, and prints
// their state.
//
// [Flags.Jobs] turns the flags of ledger publish, or a configuration file ([ReadConfig]),
// into jobs: a job names its consumer, its target (a NATS server with JetStream, or a file
// of JSON lines) and the records that it selects. [Run] runs the jobs. [List],
// [ShowDeadLetters], [Retry] and [Forget] print and change consumers: the positions, dead
// letters and errors that the store keeps for each.
//
// # Promises
//
//   - A target is recorded and printed without its password.
//   - The path of a file target is absolute, so that a later run from another directory
//     continues the same file.
//   - Run prints each record that becomes a dead letter. For a record that is retried it
//     prints attempts 1, 2, 4, 8 and so on.
//
// # Concurrency
//
// The functions may be called concurrently with different printers. The jobs of one Run
// take turns at writing to the standard error.
//
// # Errors
//
// An invalid flag or configuration is a usage fault. Errors of the packages publish,
// jetstream and jsonl become the faults of [fault.Publishing].
package publishing
