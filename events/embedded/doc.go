// Package embedded stores events in a Pebble database in this process.
//
// A [Store] is an events.Store in a folder. [Open] creates or opens the folder and
// locks it; a second process gets an error that names the first one, its
// storedir.Owner. [OpenReader] opens a store without changing its folder. The
// [Durability] of a store selects when an append is acknowledged. A store also keeps
// checkpoints of projections, and counts its work in [Stats]. [Store.Backup] copies the
// store while it is in use, and [Store.Compact] rewrites its tables. With the file
// system vfs.NewMem a Store serves unit tests, and with vfs.NewCrashableMem crash
// tests.
//
// Package storedir describes the folder of a store, and package layout the keys and
// values of the database in it. Package integrity finds damage in a closed store, and
// package backup makes and restores backups. A store numbers its records from 1; this
// number is the sequence of a record, and both parts of its position.
//
// # Promises
//
// The laws of package eventstest, and
//
//   - The Durability determines when an append is acknowledged and which records a
//     power cut can remove. Under [Sync], no record is acknowledged or visible to
//     readers before it is on the disk.
//   - Damaged or missing records are an error, never a wrong answer.
//   - After a failed write the store makes no further write and no append succeeds, until
//     a paused store has resumed. It never retries a sync.
//   - A stream with many appends does not delay the others.
//   - A folder that is not a store, or lacks files, stays unchanged.
//   - If a bit of a cleanly closed store flips, opening the store fails, or each read
//     returns the right records or an error.
//   - Opening the store of a killed process drops no acknowledged record silently: it
//     refuses a damaged log, and logs a warning with the lost records if a power cut is
//     as likely a cause.
//   - A backup is of one time, is verified, and replaces the earlier one only when it is
//     complete.
//   - A store of OpenReader changes no file, and reads the records that a writer would
//     read. A later writer does not change its view, and waits only while it is opened.
//   - A checkpoint is saved as a whole and is never ahead of the records.
//
// # Concurrency
//
// A Store is safe for concurrent use. Appends wait in a queue of bounded bytes that
// serves streams round robin. A store has these goroutines, which Close joins:
//
//   - The committer takes the waiting appends as a commit group and writes them as one
//     batch of Pebble.
//   - A second goroutine waits for the syncs of at most two groups in flight, and answers
//     their appends.
//   - A third one syncs at intervals under [Interval].
//   - A fourth one resumes a paused store.
//   - From the first follower on, the notifier wakes followers.
//   - Each call of Sync has a goroutine until its sync ends.
//
// A follower at the end is served from memory; a slow one reads the database. While the
// body of a loop or CaughtUp runs, no lock is held and no database iterator is open.
// Locks are taken in the order gate, mu, queue.
//
// # Errors
//
// Open and OpenReader return events.ErrInUse, ErrNewerFormat, ErrNotAStore,
// storedir.ErrIncomplete, and ErrDamaged for files that differ from those at the last
// closing. A write to a store of OpenReader is [ErrReadOnly]. Append returns a
// Conflict, ErrBadRecord, ErrTooLarge and ErrClosed. If the context of an append ends
// after the committer took it, or its write fails, its outcome is unknown. The caller
// then appends the same records again: after [ErrPaused] to the same store, and
// otherwise after opening the store again. Loops end with ErrDamaged at a damaged
// record.
//
// Package events interprets the bytes of a record. The laws are checked in store_test.go
// and durability_test.go, power cuts in crash_test.go and powercut_test.go; store_test.go
// has an example.
package embedded
