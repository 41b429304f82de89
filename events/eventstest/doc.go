// Package eventstest states what every implementation of events.Store promises.
//
// A [Law] is a name, a sentence and a check of it. [Laws] returns them all. A
// [Harness] is how a check gets at an implementation: it opens a store over
// some storage, closes it, opens it again and, where the storage can, cuts its
// power. [Test] is the whole of an implementation's test of the laws:
//
//	func TestLaws(t *testing.T) { eventstest.Test(t, harness) }
//
// A [Step] is an operation on a store, and [RandomHistory] makes a sequence of
// them from a seed. [Compare] runs one on two implementations and returns the
// first difference that a caller can see; [TestSame] does so for many seeds
// and shrinks what it finds.
//
// [NewSlice] is the least store that keeps the laws. It is what other
// implementations are compared with, and what the saboteurs are made of.
//
// # Promises
//
//   - Each law has a saboteur, a store that breaks only it, and the law catches
//     it. [Report] runs each law against its saboteur and says so.
//   - A check forces the order that it is about. None sleeps, and none hopes
//     that a goroutine is late.
//   - The text of a failure quotes the sentence of the law.
//
// # Concurrency
//
// A check starts goroutines and joins them before it returns. Checks of
// different harnesses may run at once.
//
// # Errors
//
// A check returns [ErrNotApplicable] for storage that cannot do what the law is
// about, and otherwise what was seen and what was to be seen. A store that
// hangs ends a check with [ErrHangs].
//
// The laws are checked themselves in eventstest_test.go.
package eventstest
