// Package lawtest runs suites of laws and tests the suites themselves.
//
// A [Law] is a promise about a subject: a store, a projection, a registry. It
// has a name, a sentence for people, and a check that returns an error if the
// subject breaks the promise. A suite is a slice of laws over one type of
// subject.
//
// [Test] checks an implementation against every law of a suite. [TestSuite]
// tests the suite: each law must accept a subject that keeps it and reject its
// saboteur, a subject made to break it. A law that was never seen to fail
// proves nothing. [Report] does the same for a document: it writes one line
// for each law, from which docs/laws.md is generated.
//
// # Promises
//
//   - A failure quotes the name and the sentence of its law.
//   - Report returns an error unless every law accepts its correct subject and
//     rejects its saboteur.
//
// # Concurrency
//
// Test and TestSuite run the laws in parallel subtests, so one subject is never
// shared between two checks. Report runs them one after the other. The package
// starts no goroutine.
//
// # Errors
//
// A check returns [ErrNotApplicable] if the subject lacks the means to show the
// law, such as a power supply to cut. Test skips such a law by name.
//
// The suites are eventstest (stores), projectionstest (projections) and
// registrytest (tools and calls); they own their laws, subjects and saboteurs.
package lawtest
