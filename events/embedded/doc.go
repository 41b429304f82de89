// Package embedded stores events in a Pebble database in this process.
//
// A [Store] is an events.Store in a folder. [Open] creates or locks the folder, and names
// the storedir.Owner to a second process. [OpenReader] opens a folder without changing it. The
// [Durability] selects when an append is acknowledged. A store also keeps checkpoints of
// projections, and counts its work in [Stats]. [Store.Backup] copies it while it is in
// use, and [Store.Compact] rewrites tables. Over vfs.NewMem it is the store of unit tests, over
// vfs.NewCrashableMem that of crash tests.
//
// Package storedir describes the folder of a store, and package layout the keys and values
// of the database in it. Package integrity finds damage in a closed store, and package
// backup makes and restores backups. The sequence of a record is both parts of its position.
//
// # Promises
//
// The laws of package eventstest, and
//
//   - The Durability determines when an append is acknowledged and which records a power
//     cut can remove. Under [Sync], no record is acknowledged or visible to readers before
//     it is on the disk, nor is any answer based on one.
//   - Damaged or missing records are an error, never a wrong answer.
//   - After a failed write the store writes nothing and no append succeeds. It never
//     retries a sync.
//   - A stream with many appends does not delay the others.
//   - A folder that is not a store, or lacks files, stays unchanged.
//   - A cleanly closed store with a flipped bit does not open, or each answer is right or
//     an error.
//   - Opening the store of a killed process drops no acknowledged record silently: it
//     refuses a damaged log, and logs a warning with the lost records if a power cut is as
//     likely a cause.
//   - A backup is of one time, is verified, and replaces the earlier one only when it is
//     complete.
//   - A reader changes nothing in the folder, and reads the records that a writer would
//     read. A later writer does not change the reader's view, and waits only while the
//     reader opens the store.
//   - A checkpoint is saved as a whole and is never ahead of the records.
//
// # Concurrency
//
// A Store is safe for concurrent use. Appends wait in a queue of bounded bytes that serves
// streams round robin. Close joins the goroutines of the store: the committer, which
// writes the waiting appends as one commit group, one batch of Pebble; one that waits for
// the syncs of at most two groups in flight and answers their appends; one that syncs
// under [Interval]; one that resumes a paused store; and, from the first follower on, the
// notifier, which notifies followers. A call of Sync starts one until its sync ends. A
// follower at the end is served from memory, a slow one reads the database. No lock is
// held, and no database iterator is open, while the body of a loop or CaughtUp runs.
// Locks are taken in the order gate, mu, queue.
//
// # Errors
//
// Open and OpenReader return events.ErrInUse, ErrNewerFormat, ErrNotAStore,
// storedir.ErrIncomplete, and ErrDamaged for files that differ from those at the last closing. A
// write to a store of OpenReader is [ErrReadOnly]. Append returns a Conflict,
// ErrBadRecord, ErrTooLarge and ErrClosed. If the context of an append ends after the
// committer took it, or its write fails, its outcome is open: append the same records
// again, after [ErrPaused] to the same store, and otherwise after opening it again. Loops
// end with ErrDamaged at a damaged record.
//
// Package events interprets the bytes of a record. The laws are checked in store_test.go
// and durability_test.go, power cuts in crash_test.go and powercut_test.go; store_test.go
// has an example.
package embedded
