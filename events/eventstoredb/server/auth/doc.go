// Package auth authenticates the users of a server by name and password.
//
// [Users] holds the users of one server, each with a bcrypt hash and a [Role].
// [ParseUsers] reads them from a users file, [FormatUser] writes a line of it,
// and [SingleUser] makes one user for a password that a program has drawn at
// random. [Users.Authenticate] returns the role of a caller.
//
// One bcrypt comparison takes about 0.1 s of CPU time. A worker pool compares
// passwords; it has one worker for every two processors, and at least one. Two
// caches save comparisons: one has each user's last correct password, the other
// has refused passwords. Both contain HMAC digests under a random key of the
// process, and no password.
//
// # Promises
//
//   - An unknown user name takes as long to refuse as a known one.
//   - The networks of the callers take turns, each with one comparison. Within
//     a network, the connections without a refused password come first, and
//     among them the latest call.
//   - Calls with the same name and password share one comparison.
//   - The number of waiting comparisons and callers is bounded.
//   - No error contains a hash.
//
// # Concurrency
//
// Everything here is safe for concurrent use. A worker is a goroutine that ends
// when no comparison waits. The mutex of the workers guards the queues and the
// cache of refused passwords; the mutex of Users guards the cache of correct
// ones. No goroutine holds both.
//
// # Errors
//
// [ErrBadUsers] comes from ParseUsers and FormatUser. Authenticate returns
// [ErrNotAuthenticated], [ErrBusy], or the cause of its context.
//
// Package conns counts connections and closes those that do not authenticate in
// time; the server decides which role a request needs.
package auth
