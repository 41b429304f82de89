// Package server serves an events.Store under EventStoreDB's gRPC protocol.
//
// A [Server] serves the official clients of EventStoreDB and KurrentDB: it
// reads streams and $all in both directions, appends events, runs
// subscriptions, and manages groups of competing consumers, which
// EventStoreDB calls persistent subscriptions (package groups). A [Config]
// sets TLS, the [auth.Users] with their [auth.Role], and the streams that they may
// append to. Package conns bounds the number of connections.
//
// A stream's revisions begin at 0 on the wire: an entry with Revision n is
// sent with revision n-1. Its commit and prepare positions are the two parts
// of its events.Position. Package mapping converts between records and
// events. A foreign event is an event that a client other than the ledger
// appended; the server returns it unchanged.
//
// # Promises
//
//   - The server acknowledges an append if, and only if, the store does.
//   - A repeated append succeeds, adds no event and returns the position of
//     the first append. With an exact revision, the server compares the
//     records after that revision. With Any or StreamExists, it looks the
//     event IDs up in the whole stream, however old they are and however many
//     callers append them concurrently. If the stream has some of the IDs and
//     not others, the append is a conflict. Foreign events are compared by
//     their IDs alone, as in EventStoreDB.
//   - Config.Writable opens streams to foreign events. To every other stream,
//     only a caller with the role [auth.Ledger] may append, and only events
//     whose metadata have the version and the time of a record.
//   - A subscription sends every entry after its start point once, in order.
//     A slow subscriber misses no entry and delays no other subscriber.
//   - The server deletes and hides no event. It refuses stream metadata that
//     would make EventStoreDB delete or hide events, or change access rights.
//     It stores other stream metadata without effect.
//   - Foreign events keep the content type, JSON or binary, that their client
//     declared.
//   - Each refusal has a status code, and a text that gives the reason.
//
// # Concurrency
//
// Everything here is safe for concurrent use. A server runs a goroutine for
// each call and each connection, which Shutdown and Close join. No mutex is
// held while the store is called. Appends without an exact revision to one
// stream run one after the other.
//
// # Errors
//
// New, Config.Check and Serve return [ErrNotSafe]. Package auth returns the
// errors of users and passwords. [ErrDrained] is the cause with which calls end
// when the server shuts down.
//
// Clients receive UNAVAILABLE if the server or the store closes, ABORTED if an
// append may or may not have been written, DATA_LOSS for a damaged record,
// INVALID_ARGUMENT, PERMISSION_DENIED or UNAUTHENTICATED for requests that
// they must change, and UNIMPLEMENTED for features that a ledger does not
// have. docs/serving.md lists the treatment of every request field.
//
// client_test.go and the other tests check the promises with the official Go
// client.
package server
