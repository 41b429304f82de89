// Package conns bounds the number of connections of servers.
//
// A [Limiter] counts the connections of all listeners that it has wrapped with
// [Limiter.Listener]. A [Conn] is unauthenticated until its server calls
// [Conn.Authenticated]; the limiter closes it if that takes longer than
// [Config.Grace]. Servers find the Conn of a request with [Of], by the
// connection, or with [FromContext].
//
// # Promises
//
//   - A connection over [Config.Unauthenticated] closes another one that is not
//     authenticated: the oldest of the network that has the most. A network
//     therefore displaces its own connections first.
//   - A connection over [Config.Max] displaces an unauthenticated one in the
//     same way, and is itself closed if every other is authenticated.
//   - A new connection never closes an authenticated one.
//   - The default of Max leaves file descriptors to the stores of the process.
//
// # Concurrency
//
// Everything here is safe for concurrent use. The package starts no goroutine.
// Each Conn has a timer until it is authenticated.
//
// The server decides which requests are authentic, and closes idle
// connections.
package conns
