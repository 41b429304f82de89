// Package verify checks that the log and the outputs of a store keep the laws of the
// ledger.
//
// [Run] reads the whole log once, without a checkpoint or an index, and prints a [Report]: the
// counts, and an [ExceptionRow] for each violation of a law. Package projections/calls
// states the laws of calls. This package adds the laws of single records, of the order
// of a stream, of records that an administrator of a database deleted, and of the
// outputs that settlements name. If there is an index, Run rebuilds it in a temporary folder
// and compares the rows.
//
// # Promises
//
//   - Run changes nothing in the store, and reads with any number of exceptions to the end
//     of the log.
//   - A record of a kind that this program does not know is counted, and is no exception.
//   - An output of a node that does not answer is counted as unreachable, and is no
//     exception.
//   - Memory does not grow with the log. It grows with the number of exceptions, of unknown
//     kinds, and of records in streams of which an administrator deleted records.
//   - The index does not influence any other check. An absent index is no exception, nor is
//     one that the next command rebuilds.
//
// # Concurrency
//
// Run reads and decodes records ahead on other goroutines, which end before it returns.
//
// # Errors
//
// Run returns a fault.Error with exit code 3 and code "exceptions" if there is at least
// one exception, and the errors of the store unchanged. A damaged record is an exception
// and not an error.
//
// The caller opens and closes the store. Damage of the files of a folder is found by
// package maintenance.
package verify
