// Package groups distributes the entries of a store among competing consumers.
//
// A [Group] follows one stream, or all streams, and delivers each entry to one
// [Consumer] that has joined it. The consumer acknowledges the entry with
// [Consumer.Ack], or rejects it with [Consumer.Nack] and a [NackAction]: retry,
// park, skip or stop. The group redelivers an entry that is not acknowledged
// before its timeout, and parks an entry after too many retries. A parked entry
// is a dead letter: it waits until [Group.Replay] delivers it again. An entry is
// settled when it is acknowledged, skipped, or recorded as parked.
//
// [Groups] are all groups of a store. A group's [GroupConfig] and its parked
// entries are recorded in a stream of the store, named
// subscription-SOURCE::NAME. Groups never deliver entries of such streams. The
// progress of a group, a [Cursor], is its checkpoint. A [CheckpointStore] holds only
// the latest checkpoint of each group.
//
// # Promises
//
//   - At-least-once delivery: an entry is delivered until it is acknowledged,
//     skipped, or recorded as parked, also across restarts.
//   - An acknowledged entry is not delivered again, unless the process ends
//     before the next checkpoint. The [Settings] give the number of settled
//     entries and the time after which a checkpoint is due. A group writes at
//     most ten checkpoints in a second. A written checkpoint survives a kill.
//   - A checkpoint never moves past an entry that is not settled.
//   - A replayed entry stays recorded as parked until it is acknowledged.
//   - A consumer holds at most as many unacknowledged entries as its capacity.
//   - A group buffers a bounded number of entries in memory.
//   - Entries have no order across consumers. A pinned group delivers the
//     entries of one stream to one consumer while that consumer stays.
//
// # Concurrency
//
// Everything here is safe for concurrent use. After the first Join or Replay a
// group has two goroutines, which Close joins: the reader follows the store,
// and the persister appends records, writes checkpoints and expires
// deliveries. Lock order: Groups.changing, Group.writing, then a mu. No mu is
// held while the store is called.
//
// # Errors
//
// [ErrExists], [ErrNotFound], [ErrFull], [ErrBadGroup] and [ErrDeleted] report
// errors of the caller. [ErrStopped] reports that a group stopped, and wraps
// the store's error.
//
// The package leaves the encoding of deliveries and the resolving of links to the
// server. groups_test.go and checkpoint_test.go check the promises.
package groups
