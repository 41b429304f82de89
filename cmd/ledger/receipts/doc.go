// Package receipts makes receipts of calls and checks them against a store.
//
// A [Receipt] is a JSON document about one call: the events of the session that concern it, byte
// for byte as recorded, with their places in the log, and the digests of the outputs that were
// kept. [Make] makes one, [Receipt.Encode] writes it, [Read] parses it, and [Check] compares it
// with a store. docs/formats.md specifies the form.
//
// An event is identified by its stream, its revision and its ID. Positions differ between a store
// and its copy, so another position is a [Discrepancy] among the notes of a [Report] and no difference.
//
// # Promises
//
//   - A receipt that Make made has no difference to its store and to each copy of it, also after
//     later events, and after the pruning of outputs by an event.
//   - Every changed value of a receipt is a difference or an error of Read. If the digests of the
//     receipt are computed again, every changed value but a position, the time, the program and the state
//     of an output is a difference to the store.
//   - A record that was changed, removed or added in the store, up to the head of the receipt and
//     about the call, is a difference, which names its place.
//   - Read returns an error for any bytes, and never panics. It reads at most 128 MiB.
//
// A receipt is not signed: who can write to the store can make another one that fits. The member
// tree_head is the place of a signed head of the log in a later version.
//
// # Errors
//
// [ErrNotAReceipt]: the bytes are not a receipt. [ErrNewerReceipt]: a newer program made it.
// [ErrOtherStore]: the store is not the one of the receipt, or lacks the session. All other errors
// come from the log, the outputs or the file system.
package receipts
