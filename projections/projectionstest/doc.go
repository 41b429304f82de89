// Package projectionstest states and checks the laws of a projection.
//
// [Laws] returns them as data: each [Law] has a name, a sentence and a check,
// which folds a history in several ways and compares the answers as
// checkpoints keep them.
// [Test] is the whole of a projection's test of them. [Report] shows that each
// law catches its saboteur, a projection that breaks it.
//
// [History] makes a random history that keeps the laws of calls: processes,
// layers, registrations, sessions run here and imported, turns, calls with every
// outcome, permission, late results, managed outputs and kinds that are not
// known. A [Log] makes one by hand. The envelopes of both are what a reader of a
// store gets: they were encoded and decoded, and have revisions and positions.
//
// # Promises
//
//   - The same seed gives the same history, IDs and times included.
//   - A projection that is a pure fold, of which checkpoints keep the whole, keeps every law
//     over every history.
//   - The projection that is checked sees each history in order, from its
//     beginning, or goes on from its own answer.
//
// # Concurrency
//
// Laws may be checked by several goroutines at once. A Log belongs to one. The
// package starts none.
//
// # Errors
//
// A check returns what differs, with the sentence of its law and the place in
// the history. Adding what cannot be encoded to a Log panics, as no history
// holds it.
//
// What an answer should be is the affair of the projection's own tests. The
// saboteurs are in saboteur.go, the example in law_test.go.
package projectionstest
