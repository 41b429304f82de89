// Package projectionstest states and checks the laws of a projection.
//
// [Laws] returns them as data: each [Law] has a name, a sentence and a check, which
// folds a history in several ways and compares the answers as checkpoints encode them.
// [Test] checks all laws of one projection. [Report] shows that each law rejects its
// saboteur, a projection that breaks it.
//
// [History] generates a random history that keeps the laws of calls: processes, layers,
// registrations, native and imported sessions, turns, calls with every outcome,
// permissions, late results, managed outputs and unknown kinds. A [Log] builds a
// history by hand. Both encode and decode each event, so that its envelope equals the one
// that a reader of a store gets, with a revision and a position.
//
// # Promises
//
//   - The same seed gives the same history, IDs and times included.
//   - A projection keeps every law over every history if its Apply is a pure function and
//     its checkpoints encode the whole state.
//   - A check applies the events of a history in order, to the initial state or to an earlier
//     state of the same projection.
//
// # Concurrency
//
// Several goroutines may check laws at once. One goroutine uses a Log. The package starts no
// goroutine.
//
// # Errors
//
// A check returns an error with the sentence of its law, the first difference of two answers
// and, for a law that cuts the history, the index of the event. Adding an event that has no
// encoding to a Log panics: no store can contain it.
//
// The tests of a projection check that its answers are right. The saboteurs are in
// saboteur.go, the example is in law_test.go.
package projectionstest
