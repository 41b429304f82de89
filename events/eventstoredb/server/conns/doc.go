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
//   - When a new connection exceeds [Config.Unauthenticated], the limiter closes
//     an unauthenticated connection: the oldest one of the network that has the
//     most of them. An attacker therefore displaces the connections of the
//     attacker's own network first.
//   - When a new connection exceeds [Config.Max], the limiter closes an
//     unauthenticated connection in the same way. If all others are
//     authenticated, it closes the new one.
//   - A new connection never closes an authenticated one.
//   - The default of Max leaves file descriptors for the stores of the process.
//
// # Concurrency
//
// Everything here is safe for concurrent use. The package starts no goroutine.
// Each Conn has a timer until it is authenticated.
//
// The package leaves the authentication of requests and the closing of idle
// connections to the server.
package conns
