// Package remote reads and keeps the managed outputs of another process.
//
// Outputs stay in the store of the node that settled: what opened that store,
// and serves it with [Serve]. A [Client] reads and keeps outputs there, as
// [outputs.Store] does here; [Outputs] is what both can, and [Local] makes a
// store one of them. [Locate] finds in the log which process settled the call
// that an output belongs to, and where that can be asked. [Nodes] puts it
// together: it reads an output from here or from wherever it is.
//
// # Protocol
//
// It is HTTP, versioned by its paths and by a header of each answer.
//
//	GET, HEAD /v1/outputs/SETTLEMENT/CHANNEL        bytes, or a Range of them; what is known of the output
//	PUT       /v1/outputs/SETTLEMENT/CHANNEL        Keep: 201
//	POST      /v1/outputs/SETTLEMENT/CHANNEL/prune  Prune: policy and at in the query
//	POST      /v1/settlements/SETTLEMENT/confirm    Confirm: 204
//	DELETE    /v1/settlements/SETTLEMENT            Drop: 204
//	GET       /v1/outputs                           All: a line each
//	GET       /v1/unconfirmed                       Unconfirmed: a line each
//
//	Ledger-Outputs     1, in each answer: a node of a ledger answers
//	Ledger-Retained    bytes=N&lines=N&mime=M&ref=R&sha256=H: what is known of the output
//	Ledger-Media-Type  of what is kept, with % for what a header cannot hold
//	Ledger-Error       is=WORD&text=T, and of a pruned output at=, policy= and retained=: why not
//	Content-Digest     sha-256=:BASE64: of the bytes that are sent; behind them, for a PUT
//
// A range of up to 1 MiB that is written bytes=FROM-TO comes with its digest. A
// list ends with the line "end", or with one that begins with "error " and goes
// on as a Ledger-Error.
//
// # Promises
//
//   - What is read through a client is what was kept: a transfer that was cut or
//     changed is an error, or is made again. What was read from its first byte
//     to its last has the digest that is known of the output.
//   - What is kept through a client is what its reader gave, or nothing is kept.
//   - A Keep that is made again because its answer was lost keeps the output
//     once.
//   - Memory does not depend on the size of an output, at either end.
//   - A node that does not answer is an error once it was silent for the
//     client's patience, and at once when the context ends. One that comes back
//     soon is carried on with.
//   - The errors of a store are the same through a client, by errors.Is.
//   - A password is sent only over TLS or on this machine, and is in no error.
//
// # Concurrency
//
// A Client, Nodes and what [Serve] returns may be used by several goroutines at
// once, an [Output] as [outputs.BlobReader] says. The reader given to Keep is called
// on another goroutine, and never after Keep has returned. Nothing runs between
// calls but the idle connections, which Close ends.
//
// # Errors
//
// [ErrUnreachable] says that a node cannot be had, [ErrNotANode] that something
// else answers at its address, [ErrDenied] that it does not accept the
// credentials, [ErrTooLarge] that it does not take so large an output,
// [ErrMangled] that bytes were changed on the way, time and again, and
// [ErrBadAddress] that an address cannot be used. A Keep with such an error is
// an outputs.ErrNotKept as well; after an ErrUnreachable it may be kept all the
// same, unconfirmed, and [outputs.Store.Sweep] removes it. All other errors are
// those of package outputs.
//
// Where a node listens, and who may ask it for what, is for whoever serves. The
// tests named for the promises check them; see example_test.go.
package remote
