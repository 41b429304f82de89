// Package openwork finds the sessions with open work: calls without a settlement,
// undecided permission requests and unanswered questions.
//
// # Promises
//
//   - The state holds open work and nothing of what has ended, so its size does not grow
//     with the log.
//   - A session in an import has no open work, because its calls ended in another program.
//     The state recognizes the last 1,024 imports; an event of an older one may list its
//     session, and the first event of that session then tells.
//   - The projection reads the kinds of events that begin or end work, and no other.
//
// # Concurrency
//
// A State may be read by several goroutines while it is not folded into.
//
// # Errors
//
// There are none.
package openwork
