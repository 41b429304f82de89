// Package staleness says whether what a turn offered is still in effect.
//
// [Judge] gives the [Verdict] on one registration that was offered: what its
// name means now, whether that is another registration, whether the definitions
// agree, and since which event the two differ. A registry asks it before a call
// runs. The [State] of the projection does so for every [Turn] on record, as of
// the last event folded: folded up to a position, it tells what was stale there.
//
// A registration is its event and its name. So a tool that is registered again
// makes a call stale even where nothing about the tool changed, and what an
// overlay reveals is stale to a turn that was offered the overlay. What is
// hidden and revealed again is current again.
//
// The layers of a turn are not on record. The projection takes the layers of
// what was offered, and those open at the same time that the same process had
// for the application, for the session's location or one that was offered from,
// and for the session. [Turn.Layers] has them. A turn that offered nothing has
// no layers, and nothing that could be stale.
//
// # Promises
//
//   - Nothing that happens to another name, another location or another
//     session makes an offer stale.
//   - ChangedBy is the event after which what is in effect last became another
//     than what was offered; what happens later does not change it while the
//     two differ.
//   - Definitions agree if both fingerprints are known and equal.
//   - A turn of several events is judged as one.
//
// # Concurrency
//
// A State may be read by several goroutines while nobody folds into it. The
// package starts none and holds no lock.
//
// # Errors
//
// There are none: what was never registered is stale since no event.
//
// What follows from a verdict is the affair of the registry's policy. The laws
// are in staleness_test.go, an example in example_test.go.
package staleness
