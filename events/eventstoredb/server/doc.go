// Package server serves an events.Store under EventStoreDB's protocol.
//
// A [Server] answers the official clients of EventStoreDB and KurrentDB over
// gRPC: it reads streams and $all in both directions, appends, and keeps
// subscribers current. A [Config] says to whom: its [Users] are read from a
// file, each with a [Role].
//
// An entry that made its stream n long has revision n-1 on the wire, where
// counting begins at 0. Commit and prepare position are the parts of its
// events.Position. Its record travels as package mapping says; what others wrote
// is given back as they wrote it.
//
// # Promises
//
//   - What the store acknowledges is acknowledged, and nothing else is.
//   - An append that is made again succeeds, changes nothing and is told the
//     first place: one that names a length where the records are in place, one
//     that names none (Any, StreamExists) wherever in the stream their IDs are,
//     however long ago and however many callers make it at once. One that names
//     none is a conflict where the stream has some of its IDs and not others. Of
//     records that others write, the IDs are compared, as EventStoreDB does.
//   - Only the ledger writes into its own streams, and into others that are not
//     opened: a caller with the role Ledger, whose records say their version and
//     time.
//   - A subscriber is sent every entry behind its place, once, in order. One
//     that is slow delays nobody else and loses nothing.
//   - Nothing is deleted or hidden. Metadata of a stream that would have
//     EventStoreDB do that, or change rights, are refused; others are kept.
//   - The content type of what others write is given back as they declared it:
//     JSON or not.
//   - What is refused has a status and a text that say what and why.
//
// # Concurrency
//
// Everything here may be used by several goroutines at once. A server has a
// goroutine for each call and each connection, which Shutdown and Close join.
//
// # Errors
//
// [ErrNotSafe] comes from New, Config.Check and Serve; [ErrBadUsers] from what
// reads and writes users; [ErrDrained] is the cause for which calls end when the
// server shuts down. Callers on the wire are given UNAVAILABLE for a server or
// a store that closes, ABORTED for an append of which it is not known whether
// it took place, DATA_LOSS for a damaged record, INVALID_ARGUMENT,
// PERMISSION_DENIED and UNAUTHENTICATED for what they must do otherwise, and
// UNIMPLEMENTED for what a ledger does not do.
//
// The promises are checked with the official client in client_test.go and the
// other tests here.
package server
