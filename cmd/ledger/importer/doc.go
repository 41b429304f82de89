// Package importer imports session files of other agents into a store and prints a report.
//
// [Run] takes the names of files and folders, finds the session files in the folders, reads
// each with package transcripts and appends its events. The report has a row for each file
// that it imported or skipped, and notes about lines that it did not record.
//
// # Promises
//
//   - A file that fails does not stop the import of the others, unless the operating system
//     refuses a write or the context ends.
//   - Run opens or creates the store at the first file that it can read, so that an incorrect
//     path creates no store.
//   - A file that was imported before adds only its new records.
//
// # Concurrency
//
// Run imports one file at a time on the goroutine of its caller.
//
// # Errors
//
// Run returns one fault.Error for all failed files. Its exit code is 1, or 130 if the import
// was interrupted. An error of opening the store ends Run.
package importer
