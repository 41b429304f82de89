// Package eventstest checks that an implementation of events.Store keeps the laws
// of a Store.
//
// [Laws] returns the laws, each a [Law] with a name, a sentence, a check and a
// saboteur. A [Harness] gives a check access to an implementation: it opens a
// store over some storage, closes it, opens it again and, if the storage
// supports it, cuts its power. [Test] is the complete law test of an
// implementation:
//
//	func TestLaws(t *testing.T) { eventstest.Test(t, harness) }
//
// A [Step] is an operation on a store, and [RandomHistory] makes a sequence of
// steps from a seed. [Compare] runs a sequence on two implementations and returns
// the first difference that a caller can observe; [TestSame] does so for many
// seeds and shrinks a sequence that shows a difference.
//
// A [Slice] is the simplest store that keeps the laws: the reference for
// [TestSame], the store of other packages' tests, and the base of the saboteurs.
//
// # Promises
//
//   - The check of a law fails for its saboteur, a store that breaks this law and
//     no other. [Report] runs every law on its saboteur.
//   - A check forces the order of events that it tests. It does not sleep and
//     does not depend on the scheduler.
//   - A failure quotes the sentence of its law.
//
// # Concurrency
//
// A check joins its goroutines before it returns. Checks on different harnesses
// may run concurrently.
//
// # Errors
//
// A check returns lawtest.ErrNotApplicable if the harness cannot cut power and
// the law needs it, and otherwise an error with the observed and the expected
// result. A store that does not respond ends a check with [ErrHangs].
//
// Package lawtest runs the laws and their saboteurs; eventstest_test.go tests
// the suite.
package eventstest
