// Package registrytest states and checks the laws of tools and calls.
//
// A [Law] is a promise with a name and a sentence. [Law.Check] checks it on a [Subject]: the
// real registry with a journal over an in-memory log and an in-memory output store, which
// [Open] returns. The first laws govern the execution of tools, the next the records of
// calls, and the last the log as a whole.
//
// # Promises
//
//   - Each law has a saboteur, a Subject that breaks the law, and its check rejects the
//     saboteur.
//   - A check forces the order of operations that its law governs. It never sleeps.
//   - A failure quotes the sentence of its law.
//
// # Concurrency
//
// Checks of different Subjects may run in parallel. A check joins the goroutines that it
// starts.
//
// # Errors
//
// Check returns an error that describes the violation, or the error of an operation of the
// Subject that should have succeeded.
//
// Package eventstest has the laws of a store, package projectionstest the laws of a
// projection. [Report] lists the laws of tools and calls and the results of their saboteurs.
package registrytest
