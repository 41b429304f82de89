// Package storecopy copies a store into another store, and compares them.
//
// [Run] reads a source and a target, each a folder or a database, side by side. It
// appends the records that the target lacks in batches of consecutive records of one
// stream. If it appended any, it reads both stores again. Then it copies the outputs that
// settlements name. [Totals] is the result, with a digest of all records.
//
// # Promises
//
//   - Run copies the records that the source holds when it begins. Later records come with
//     the next run.
//   - A run that is interrupted or killed leaves a target that is a prefix of the source.
//     The next run continues from there.
//   - Run appends nothing behind a record of the target that differs from the source.
//   - A run that copied records compares the stored bytes of both stores, not the
//     acknowledgements of the appends.
//   - An output that no reachable node has is counted as missing, and is no error.
//
// # Concurrency
//
// One goroutine does the work. No other process may append to the target meanwhile: its
// records make the copy a conflict.
//
// # Errors
//
// Run returns a fault.Error with the code "conflict" and exit code 5 if the target holds
// other records, and with the code "differs" and exit code 3 if the target lost a record
// that it acknowledged. Errors of the stores are wrapped with the address of the store.
// Bytes of an output that do not match its settlement are an error that wraps
// outputs.ErrDamaged.
package storecopy
