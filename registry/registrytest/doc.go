// Package registrytest states and checks the laws of tools and calls.
//
// A [Law] is a promise with a name and a sentence. [Law.Check] holds it against
// a [Subject]: a registry over a log, with a journal and an output store, which
// [Open] makes of the real ones. The laws of tools are about what runs; those of
// calls about what is on record of it; those of conservation about the log as a
// whole.
//
// # Promises
//
//   - Each law has a saboteur, a Subject that breaks it, and catches it.
//   - A check forces the order that it is about. It never sleeps.
//   - A failure quotes the sentence of its law.
//
// # Concurrency
//
// Checks of different Subjects may run side by side. A check joins what it
// starts.
//
// # Errors
//
// Check returns what the Subject did against the law, or what broke in it.
//
// The laws of a store are in package eventstest, those of a projection in
// projectionstest. [Report] lists these and what became of their saboteurs.
package registrytest
