// Package shared opens the folder of a store that several processes of one machine
// share.
//
// [Open] returns a [Store]. The process that has the lock of the folder is the holder: it
// has the database open and, through a [Holder], serves the log, the blob store of outputs
// and the checkpoints to the others at two free loopback ports. It writes an [Endpoint],
// a file in the folder that only the owner of the folder can read. The other processes are
// clients: they read the endpoint and connect, through a [Client]. When the holder ends or
// is killed, one of the clients that write takes the lock and becomes the holder: a
// takeover. A process that only reads never becomes the holder.
//
// # Promises
//
//   - A Store keeps the laws of package eventstest, as holder and as client. An
//     acknowledged append survives every takeover. The Store repeats an append whose
//     outcome is unknown with the next holder, with the same IDs and revision, so that
//     the log has it once. A loop over entries continues behind the last entry that it
//     yielded.
//   - No operation fails with an error of a closed store before Close.
//   - The holder serves before the program recovers the work of dead processes, so that a
//     long recovery delays no client.
//   - If the holder does not respond, a Store reports which process it is: after some
//     seconds by a call of Config.Waiting, and after the timeout by an
//     [UnresponsiveError] from the operation. Follow has no timeout: it waits as long as
//     its context lasts.
//   - The servers use TLS and require a password, with a certificate and a password
//     generated at their start. A client trusts this certificate alone, so that another
//     process that takes the port later learns no password.
//   - Writing the endpoint replaces the file atomically. Neither reading nor writing
//     follows a symbolic link, and reading rejects a file that other users can read.
//   - No web page can call the servers: each request needs the password, and a
//     cross-origin request is rejected.
//
// # Concurrency
//
// A Store, a Holder and a Client are safe for concurrent use. A Store runs a few
// goroutines, and a Holder the goroutines of its servers; Close joins them. At most one
// search for the next holder runs at a time, and all operations wait for it. No lock is
// held during a request to another process.
//
// # Errors
//
// [ErrNoEndpoint] reports a folder without an endpoint, [ErrBadEndpoint] an endpoint file
// that is invalid or not private, [ErrNoResponse] a process at an endpoint that does not
// respond, and [ErrUnresponsive] a holder that did not respond until the timeout. A
// holder also returns the errors of packages embedded and outputs, and a client the
// errors of packages eventstoredb and remote.
package shared
