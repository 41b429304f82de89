// Package eventstoredb stores the events of a ledger in an EventStoreDB or KurrentDB
// database.
//
// A [Store] implements events.Store and events.Scanner over the official client.
// [Open] takes a connection string and a [Config]. The Namespace of the Config is a
// prefix of every stream name and keeps two ledgers of one database apart; without
// one, the ledger owns every stream except the server's own. Every call requires the
// leader, because a ledger reads its own writes; Open logs a warning if the connection
// string prefers another node.
//
// An entry of the ledger is an event of EventStoreDB. Its revision is the event number
// plus one, and its position has the commit and the prepare position of the event.
// Package mapping converts the record.
//
// [Probe] describes each node of a database and the connection to it. [Store.Rights]
// reports the rights of a user, [Store.Deletions] the records that an administrator
// hid or deleted, and [Store.Skew] the difference of the clocks.
//
// # Promises
//
// The Store keeps the laws of package eventstest, also while the server restarts, and
//
//   - Every call returns as soon as its context ends, even if the server does not
//     answer.
//   - The Store reconnects after the server, the connection or the leader failed. It
//     follows a new leader, and it searches for a node again if the named leader is
//     dead or the cluster has no leader.
//   - Append repeats an append whose result is unknown until the result is certain or
//     its context ends. It never adds the records twice.
//   - A loop yields records of the ledger only. The server filters followers and
//     forward scans of all streams; the Store filters other loops itself. Events that
//     other programs wrote into the ledger's streams are yielded unchanged.
//   - The package recovers the panics of the client in its calls. No error and no log
//     message contains credentials or a connection string.
//   - Close ends every connection and goroutine within a second. If the client is
//     waiting for a server that does not respond, they end within gossipTimeout, a
//     setting of the connection string.
//
// # Concurrency
//
// A Store is safe for concurrent use. It runs a goroutine for each append, read and
// subscription, and one more during the search for a node; Close joins them. All calls
// of a Store share one client and its connection. The connector replaces a broken
// client, and the last call on the old client closes it. The client serves one request
// for its connection at a time, and that request may wait while the client searches
// for a node. No other lock is held during network I/O, and no lock is held while the
// body of a loop runs.
//
// # Errors
//
// Open returns [ErrBadAddress], [ErrBadNamespace], [ErrUnreachable],
// [ErrUnauthenticated], [ErrTooOld] and [ErrPreRelease], and [ErrForbidden] if the
// Config requires the right to read all streams. Append returns a Conflict,
// ErrBadRecord, ErrTooLarge and ErrClosed of package events. Every call may return
// ErrUnreachable, [ErrRefused] if the server denies it, ErrTooOld if a node of an
// older version became the leader, and [ErrBroken] for a bug of the client. An append
// that returns ErrUnreachable or ErrTooOld stored no record. At a damaged record a loop
// ends with an events.DamagedRecord, which has the position of the record. In a stream
// that was deleted or truncated, a loop ends with an error that matches
// events.ErrDamaged and [ErrDeleted]. The errors of a [Node] may also be [ErrTLS],
// [ErrCertificate] and [ErrForeign].
//
// The package leaves the encoding of events to package events and the rights and
// retention of streams to the administrator of the database. The laws are checked in
// laws_test.go, each known fault of the official client in clientfaults_test.go, and
// long operation in soak_test.go.
package eventstoredb
