// Package transport connects the MCP client of the official SDK to a server and keeps a
// hostile server from harming the client.
//
// A [Link] is one connection, made by [NewProcess] or [NewHTTP]. It is a transport of the
// SDK and lies between the SDK and the server. Only answers to requests of the SDK reach
// the SDK. The Link answers every request of the server itself, passes questions,
// progress and changes of the list of tools to its [Handlers], and drops everything else.
// An [Exchange] has the result of one request as the server wrote it, because the SDK
// decodes a result of an unknown type to an empty success.
//
// # Promises
//
//   - No message of a server makes the client panic.
//   - The memory for a server is bounded, however much it writes: one message of at most
//     [MaxMessage], and no queue. A server that floods is read slowly.
//   - A line of a process that is no message is skipped and counted. After [MaxNoise]
//     such lines in a row the Link ends.
//   - An answer without an open request, such as a second or late one, is dropped and
//     counted.
//   - A process gets no other environment than the one of its command, and its process
//     group has ended when Close returns.
//   - Headers and requests go to the host of the URL only.
//   - The Link sends no request twice.
//
// # Concurrency
//
// A Link may be used by several goroutines. It starts goroutines that read and answer, and
// Close joins those that can be joined: a goroutine of a handler ends when its context
// does. The Handlers are called on these goroutines and must not block, except Elicit.
//
// # Errors
//
// Fault says why a Link ended, and is [ErrLinkClosed] after Close. The errors of Connect are those of
// the system and of the SDK.
//
// Package mcp uses the SDK over a Link and interprets the results.
package transport
