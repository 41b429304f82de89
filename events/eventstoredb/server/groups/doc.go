// Package groups shares the entries of a store among competing consumers.
//
// A [Group] reads one stream, or all of them, and hands each entry to one of the
// consumers that have joined it. A [Consumer] acknowledges what it has dealt
// with, or says what is to be done with it instead: try again, park, skip. What
// is not answered in time is tried again, and what was tried too often is
// parked. Parked entries wait until they are replayed.
//
// [Groups] are all groups of a store. What they are and what is parked are
// records in streams of the store itself, one for each group, named
// subscription-SOURCE::NAME. Entries of such streams are handed to no consumer.
// How far a group has come is its mark, which is kept among [Checkpoints], the
// last in place of the one before.
//
// # Promises
//
//   - Each entry is handed out until it is acknowledged, skipped, or parked and
//     on record as parked: at least once, also over a restart.
//   - An entry that was acknowledged is not handed out again, unless the process
//     ends before the next mark. One is due when as many entries were settled as
//     the group asks for, and no more than ten are made in a second. It outlasts
//     a kill.
//   - A mark is never ahead of an entry that is not settled.
//   - A replayed entry stays on record as parked until it is acknowledged.
//   - A consumer has at most as many entries in hand as it asked for.
//   - A group holds a bounded number of entries in memory.
//   - There is no order among consumers. A pinned group hands the entries of one
//     stream to one consumer as long as that consumer is there.
//
// # Concurrency
//
// Everything here may be used by several goroutines at once. A group that was
// goroutines has two goroutines, one that reads and one that keeps records, which
// Close joins. No lock is held while the store is used.
//
// # Errors
//
// [ErrExists], [ErrNotFound], [ErrFull], [ErrBadGroup] and [ErrDeleted] say what
// is wrong with what was asked. [ErrStopped] says that a group stopped, and wraps
// what the store said.
//
// How entries travel to a consumer is left to the protocol. The promises are
// checked in groups_test.go.
package groups
