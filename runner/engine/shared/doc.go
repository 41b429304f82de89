// Package shared opens the folder of a store that several processes of one machine
// share.
//
// [Open] returns a [Store]. The process that has the lock of the folder is its
// holder: it has the database open and, through a [Holder], serves the log, the
// outputs and the checkpoints to the others at two free loopback ports. It describes
// them in an [Endpoint], a file in the folder that only the owner of the folder can
// read. The other processes are clients: they read the endpoint and connect, through
// a [Client]. When the holder ends or is killed, one of the clients that write takes
// the lock and becomes the holder. A process that only reads never does.
//
// # Promises
//
//   - A Store keeps the laws of package eventstest, as holder and as client. An
//     append that was acknowledged survives every takeover. One whose outcome is open
//     when the holder is gone is made again with the next one, under its IDs and at its
//     place, and is there once. A loop goes on behind the last entry that it yielded.
//   - Nothing is answered as if the store were closed, until Close.
//   - The holder serves before the program recovers what dead processes left, so
//     that a long recovery keeps nobody out.
//   - A holder that does not answer is named: through Config.Waiting after some
//     seconds, and in a [Silent] after the patience. A follower waits as long as its
//     context lasts.
//   - The service speaks TLS with a certificate, and asks for a password, that were
//     generated when it started. A client trusts this certificate alone, so that a
//     process that takes the port later learns no password.
//   - The endpoint file is replaced as a whole. A symbolic link in its place is
//     neither followed nor read, and a file that other users can read is refused.
//   - Nothing that is served here can be called by a web page: each request needs
//     the password, and a request of another origin is refused.
//
// # Concurrency
//
// A Store, a Holder and a Client are safe for concurrent use. A Store has a few
// goroutines, and a Holder those of its servers; Close joins them. One search for
// the next holder is under way at a time, and all operations wait for it. No lock is
// held while a process is waited for.
//
// # Errors
//
// [ErrNoEndpoint] says that a folder has no endpoint, [ErrBadEndpoint] that its
// file cannot be trusted or read, and [ErrAway] that the process at an endpoint
// does not answer. [ErrSilent] says that a holder was waited for in vain. Other
// errors are those of package embedded, of package outputs and, of a client, those
// of package eventstoredb and of package remote.
package shared
