// Package embedded keeps events in a Pebble database in this process.
//
// A [Store] is an events.Store in a folder of its own. [Open] makes the folder,
// locks it, and says who holds it to anyone who comes second. [OpenReader] opens a
// folder that no process has open, to read it as it is. Over vfs.NewMem it
// is the store of unit tests, over vfs.NewCrashableMem that of crash tests. It
// keeps checkpoints of projections beside the records. [Store.Backup] copies it
// while it serves, [Restore] makes a store of a [Backup], [Check] looks for
// damage in one that is closed, and [Store.Compact] rewrites it.
//
// The folder holds FORMAT, which says that it is a store and in which format,
// lock, owner with an [Owner] as JSON while the store is open, and log with the
// database. FORMAT is made last: a folder with FORMAT.new and without it holds
// nothing, and one without a log is no store. In the database, numbers are
// big-endian:
//
//	e/ sequence(8)              → record
//	s/ stream 0x00 revision(8)  → sequence(8)
//	c/ name                     → checkpoint
//
//	record:  format(1)=1  version(2)  len stream(2)  len kind(2)
//	         revision(8)  time(8, µs of Unix, signed)  ID(16)
//	         len data(4)  len metadata(4)
//	         stream  kind  data  metadata  sum(4)
//
// The sequence counts all records from 1 without gaps and is both parts of a
// position. The sum is CRC-32C over all that precedes it and the sequence.
//
// # Promises
//
// The laws of package eventstest, and
//
//   - When an append is answered, and what a power cut can take, is what the
//     [Durability] says. Under [Sync], nothing is answered or seen by a reader
//     before it is on the disk.
//   - No answer hangs on what a power cut may still take back.
//   - Records that are damaged or missing are an error, never a wrong answer.
//   - After a write that failed nothing is written and no append succeeds. A sync
//     is not tried again.
//   - A stream with much to append delays no other.
//   - A folder that is not a store, or lacks files of one, is left as it is.
//   - A store that was closed in order, and of which a bit flipped since, is not
//     opened, or each answer of it is right or an error.
//   - Opening a store whose process was killed cuts off no acknowledged record
//     in silence: it refuses a log that was damaged, and logs a warning that
//     names the records where a power cut is as likely.
//   - A backup is of one moment, was read back, and replaces the one before only
//     when it is whole.
//   - A reader changes nothing in the folder, and reads what a writer would read
//     that came in its place. A writer that comes afterwards changes nothing for
//     it, and waits only while a reader opens the store.
//   - A checkpoint is whole, and never ahead of the records.
//
// # Concurrency
//
// A Store is safe for concurrent use. It owns goroutines, which Close joins: the
// committer, which makes of the appends that wait one group, one batch of
// Pebble; one that waits for the syncs of at most two groups in flight, in their
// order, and answers them; one that syncs under [Interval]; and, once the store
// is followed, the herald, which wakes followers. A call of Sync owns one for as
// long as its sync takes. Pebble owns others, which Close joins as well. A
// follower at the end is served from memory; one that falls behind reads the
// database in its own time. Appends wait in a queue of bounded bytes, each until
// its context ends, and streams take turns in it. No lock is held, and no
// database iterator is open, while the body of a loop or CaughtUp runs.
//
// # Errors
//
// Open and OpenReader return events.ErrInUse, ErrNewerFormat, ErrNotAStore,
// [ErrIncomplete], and ErrDamaged for a folder that is not as it was closed. What
// would write to a store of OpenReader is [ErrReadOnly]. Backup and Restore
// return [ErrNotABackup], [ErrNotEmpty] and [ErrBadBackup]. Append returns a
// Conflict, ErrBadRecord, ErrTooLarge and ErrClosed; an append whose context
// ended after the committer took it, or whose write failed, is open, and
// appending the same again tells: after [ErrPaused] to the same store later, and
// otherwise after opening the store again. Loops end with ErrDamaged at a record that is damaged.
//
// What the bytes of a record mean is left to package events. The laws are
// checked in store_test.go and durability_test.go, power cuts in crash_test.go
// and powercut_test.go, an example is in store_test.go.
package embedded
