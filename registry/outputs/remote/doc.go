// Package remote is the HTTP client and server of the blob store of package outputs.
//
// A blob stays in the store of the process that settled its call; that process is a node.
// [Serve] returns the handler by which a node serves its [outputs.Store], and a [Client]
// offers the methods of a Store over HTTP. [BlobStore] is the interface of both, and
// [Local] adapts a Store to it. [Locate] searches the log for the process that settled
// the call of a blob, and for the addresses of nodes that may have the blob. [Nodes] uses
// a local store, Locate and Clients to read a blob from the local store or from the node
// that has it. An [Upload] stores one blob, again at another node if the first one dies.
//
// # Protocol
//
// The protocol is HTTP. The paths and a header of each response have its version.
//
//	GET, HEAD /v1/outputs/SETTLEMENT/CHANNEL        Open, Stat: all bytes or a Range; metadata in headers
//	PUT       /v1/outputs/SETTLEMENT/CHANNEL        Keep: 201
//	POST      /v1/outputs/SETTLEMENT/CHANNEL/prune  Prune: policy and at in the query
//	POST      /v1/settlements/SETTLEMENT/confirm    Confirm: 204
//	DELETE    /v1/settlements/SETTLEMENT            Drop: 204
//	GET       /v1/outputs                           All: one line each
//	GET       /v1/unconfirmed                       Unconfirmed: one line each
//
//	Ledger-Outputs     1, in each response: this server is a node
//	Ledger-Retained    bytes=N&lines=N&mime=M&ref=R&sha256=H: metadata of the blob
//	Ledger-Media-Type  media type of a PUT, percent-encoded
//	Ledger-Error       is=CODE&text=T; for a pruned blob also at=, policy= and retained=
//	Content-Digest     sha-256=:BASE64: of the bytes in the body; a trailer in a PUT
//
// The response to a range of at most 1 MiB, written bytes=FROM-TO, has a digest. A list
// ends with the line "end", or with a line of "error " and the value of a Ledger-Error.
//
// # Promises
//
//   - A client returns the stored bytes: it retries a transfer that was cut or changed, or
//     returns an error. A sequential read to the end also verifies the digest of the blob.
//   - Keep at a client stores exactly the bytes of its reader, or no blob.
//   - A Keep that the client repeats after a lost response stores the blob once.
//   - Memory use at both ends does not depend on the size of a blob.
//   - A call fails when the node was idle for [Config.IdleTimeout], and as soon as its
//     context ends. If the node restarts within [Config.Retry], the call continues.
//   - Errors of a store have the same identity, by errors.Is, through a client.
//   - A client sends a password only over TLS or to this machine, and no error text
//     contains it.
//
// # Concurrency
//
// A Client, Nodes and the handler of [Serve] are safe for concurrent use. Read and Seek
// of a [Reader] belong to one goroutine; ReadAt is safe for concurrent use. An Upload
// belongs to one goroutine. Keep of a Client calls its reader on another goroutine, and
// not after Keep has returned. Between calls a Client has only idle connections, which
// Close closes.
//
// # Errors
//
// [ErrUnreachable] reports a node that does not respond, [ErrNotANode] an address that
// belongs to another server, [ErrDenied] rejected credentials, [ErrTooLarge] a blob over
// the limit of the node, [ErrChecksum] bytes that every attempt changed in transit, and
// [ErrBadAddress] an invalid address. If Keep returns one of these errors, the error also
// matches outputs.ErrNotKept. After an ErrUnreachable of Keep the node may have the blob,
// unconfirmed; [outputs.Store.Sweep] deletes it later. All other errors are those of
// package outputs.
//
// The program that calls Serve opens the listener, and decides by
// ServerConfig.Authorize which requests are allowed. example_test.go has an example.
package remote
