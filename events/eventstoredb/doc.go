// Package eventstoredb keeps events in an EventStoreDB or KurrentDB database.
//
// A [Store] is an events.Store over the official client. [Open] takes a
// connection string. Two ledgers in one database are kept apart by their
// [Config]'s Namespace, which stands before the name of each stream. The
// revision of an entry is EventStoreDB's plus one, its position is EventStoreDB's
// with both its parts, and its event is what package mapping makes of the record.
// Every call asks the leader, because the ledger reads its own writes; a
// nodePreference for another node is not followed, and Open logs that.
//
// # Promises
//
// The laws of package eventstest, also while the server goes away and comes
// back, and
//
//   - A context that ends is obeyed at once, whatever the server does.
//   - A store outlives its server: it works again when that does. It goes where
//     the leader goes, and finds one again where the leader that was named is
//     dead, or where nobody leads for a while.
//   - An append that may have been made is sent again until it is certain, or
//     its context ends, and is never made twice.
//   - Nothing of others in the database is yielded, and the server filters it.
//     Of the events that others wrote into the ledger, kinds that it does not
//     know are yielded as they are.
//   - No panic of the client, no credentials and no connection string leave
//     the package.
//   - No connection and no goroutine outlives Close, but for a second at most,
//     or the client's wait for a server that is silent, gossipTimeout.
//
// # Concurrency
//
// A Store is safe for concurrent use. It owns a goroutine for each append, read
// and subscription under way, and one while it looks for a node; Close joins
// them. The calls of a store share one connection. The client of it is replaced
// when it breaks, and closed when the last call on it has ended. One call at a
// time asks the client for its connection, and waits for the server then if the
// client looks for one; no lock is held else while a server is waited for, and
// none while the body of a loop runs.
//
// # Errors
//
// Open returns [ErrBadAddress], [ErrBadNamespace], [ErrUnreachable],
// [ErrUnauthenticated], [ErrTooOld] and [ErrPreRelease]. Append returns a
// Conflict, ErrBadRecord, ErrTooLarge and ErrClosed of package events. Any call
// may return ErrUnreachable, and ErrTooOld where an older node has come to lead;
// an append that does was not taken. [ErrRefused] says
// that the server will not do it, such as reading all streams for a user
// without the right to, which Open says with [ErrForbidden] where the Config asks
// for the whole log. A loop ends with events.ErrDamaged at a record that is
// damaged, which names its position, and where somebody deleted a stream or cut
// it short, which is an [ErrDeleted] as well. [ErrBroken] is a bug of the client.
//
// What stands between here and a database, [Visit] tells: beside the errors of
// Open, [ErrTLS], [ErrCertificate] and [ErrForeign].
//
// A database that others use is best given a namespace: without one, every
// stream but the server's own is the ledger's.
//
// The laws are checked in laws_test.go, each fault of the client in
// faults_test.go, and a day of the server's life in soak_test.go.
package eventstoredb
