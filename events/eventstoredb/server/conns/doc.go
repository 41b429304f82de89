// Package conns bounds the connections of servers.
//
// A [Limiter] counts the connections of all listeners that it has wrapped with
// [Limiter.Listener]. A [Conn] is not authenticated until its server calls
// [Conn.Authenticated], and is closed if that does not happen within
// [Config.Grace]. Servers find the Conn of a request with [Of], by the
// connection, or with [FromContext].
//
// # Promises
//
//   - A connection over [Config.Unauthenticated] closes another one that is not
//     authenticated: the oldest of the address that has the most. One address
//     therefore displaces its own connections first.
//   - A connection over [Config.Max] closes one that is not authenticated in the
//     same way, and is itself closed if there is no other.
//   - An authenticated connection is never closed by another connection.
//   - The default of Max leaves file descriptors to the stores of the process.
//
// # Concurrency
//
// Everything may be used by several goroutines at once. The package starts no
// goroutine; each Conn has a timer until it is authenticated.
//
// Who is authenticated is the server's decision.
package conns
