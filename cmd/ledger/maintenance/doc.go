// Package maintenance runs the maintenance commands of a store folder.
//
// [Info] prints what a folder contains and how it grows, [Check] reads every file and
// lists damage, [Backup] copies the records and the outputs of one moment into another
// folder, [Restore] makes a new store from a backup, and [Compact] rewrites the files to
// give back space. Each takes a render.Printer for its result and a stores.Opener that
// names the folder.
//
// # Promises
//
//   - Info and Check change nothing in the folder.
//   - Check continues behind damage, and checks the files of a store that does not open.
//   - Backup never replaces an earlier backup by one that lacks its records or outputs.
//   - Compact removes no record and no output that the log still names.
//
// # Concurrency
//
// Each function works on the goroutine of its caller. Info and Backup work while another
// process has the folder open; Check, Restore and Compact need the folder for themselves.
//
// # Errors
//
// Check and Restore return a fault.Error with exit code 3 and code "damaged" if they find
// damage. Compact returns an error that wraps events.ErrInUse while another process has
// the folder open or holds a valid lease. A missing folder is a fault.Error with exit
// code 4; the address of a database is a usage error.
//
// Check detects bytes that changed after they were written. Package verify checks that
// the records keep the laws of the ledger.
package maintenance
