// Package outputs keeps whole the outputs that are too large to show.
//
// A [Store] keeps them in a Pebble database of its own, each under the
// [domain.Ref] of the settlement event that it belongs to. [Store.Keep] reads
// an output in and returns what the event holds of it, a [domain.Retained];
// [Store.Open] gives it back as an [Output]. An output is unconfirmed until
// [Store.Confirm] says that its settlement is on record; [Store.Drop] takes it
// back. [Store.Prune] removes its bytes and leaves a [Pruned]. [Store.Sweep]
// removes what a crash left, [Store.Verify] looks for damage in one output and
// [Check] in a whole store that is closed. [Store.Snapshot] copies the store for
// a backup, [Store.Compact] gives space back. [OpenReader] opens a store that no
// process has open, to read it as it is.
//
// # Layout
//
// Numbers are big-endian. A key's first byte says what it is of.
//
//	f                               the format of the store: 01
//	h settlement[16] channel[1]     a head
//	b body[8] chunk[4]              a chunk of a body
//	i                               the ID of the store: 16 random bytes, drawn when it is asked for
//
//	head   01 | state[1] | body[8] | chunk size[4] | bytes[8] | lines[8] | SHA-256[32]
//	       | pruned at, Unix nanoseconds[8] | length[2] media type | length[2] policy | CRC-32C[4]
//	chunk  CRC-32C[4] | bytes
//
// A channel is 1 for text and 2 for structured; a state 1 unconfirmed, 2
// confirmed, 3 pruned. A checksum covers the key and what stands beside it. All
// chunks but the last are of the chunk size, 64 KiB; an empty output has one
// empty chunk. The first 16 chunks of a body go through the log, four in each
// batch, the last of them in one with the head. What follows is written as a
// table, incoming/BODY.body, which the database takes in before the head is
// written. The file seal says how the store was closed; package pebblefiles draws it.
//
// # Promises
//
//   - An output is kept whole or not at all, durably when Keep returns, and
//     never seen before.
//   - After a crash an output that was not acknowledged is absent, or whole
//     and unconfirmed.
//   - What is read is what was kept: a bit that flipped is an error.
//   - Memory does not depend on the size of an output.
//   - A store that was closed in order, and of which a bit flipped since, is not
//     opened, or what is read of it is right or an error.
//   - Opening a store whose process was killed takes away no acknowledged output
//     in silence: a log that was damaged is an ErrFiles, and where a power cut is
//     as likely the logger is told.
//   - The space of an output that was pruned is given back, by Compact at the
//     latest.
//   - A disk that is full fails a Keep and ends nothing else. If the database
//     itself could not write, the store is read and refuses to write. Where the
//     disk was full or the process could open no more files, it goes on by itself
//     when that is over, unless a sync failed; otherwise it is opened again. An
//     output that is not kept because of that can be kept afterwards.
//   - Sweep and Prune touch no file and no output but those they are about.
//   - No error of an output shows where it is kept. Those of Open do.
//
// # Concurrency
//
// A Store may be used by several goroutines, an Output by one, ReadAt excepted.
// Keep calls the reader on the goroutine of its caller, and counts what it gives
// on one of its own, which it joins. No lock is held while a
// reader, a loop's body or the question of a Sweep runs. While what a Snapshot calls
// before it copies runs, nothing is confirmed, dropped or pruned. Of the locks, the one
// over marks is taken first, then that of life, then mu.
//
// # Errors
//
// [ErrNotKept] and [ErrExists] come from Keep; [ErrNotFound], [ErrPruned] and
// [ErrDamaged] from each method that reads an output; [ErrInUse] and [ErrFiles] from
// opening, and [ErrFormat] from opening what another program wrote. Each method that
// writes returns [ErrReadOnly] in a store of OpenReader, and [ErrBroken] once a write
// has failed: for good, or, where the disk was full or the process could open no more
// files, until that is over. [ErrClosed] comes from everything after Close.
//
// When an output is too large, and what of it is shown, is the registry's
// affair. The tests named for them check the promises; see example_test.go.
package outputs
