// Package integrity finds damage in the folder of a closed embedded store.
//
// [Check] reads all data of a store and calls a function with each [Finding]: a damaged
// part of a file, a missing or damaged record, an index entry and a record that differ,
// or a checkpoint that cannot be used. It continues past damage, and returns a [Report]
// of the data that it read.
//
// # Promises
//
//   - A changed bit in a file of a cleanly closed store is found.
//   - A store that its process closed, or that a kill or a power cut left, has no finding.
//   - Check changes no file.
//   - One damage to consecutive records is one finding.
//
// # Concurrency
//
// Check runs on the goroutine of its caller, and calls the functions in its [Options]
// there. It holds the shared lock of the folder, so that no process writes meanwhile. A
// folder without a lock file is checked without one, and [Report] says so.
//
// # Errors
//
// Damage is a Finding and no error. Check returns an error only if it cannot check; its
// documentation lists them.
//
// Package pebblefiles checks single files, package storedir inspects the folder, and
// package layout decodes records. The tests are check_test.go of package embedded.
package integrity
