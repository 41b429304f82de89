// Package staleness reports whether the tools that a turn offered are still in
// effect.
//
// [Judge] returns the [Verdict] on one offered registration: which registration
// its name resolves to now, whether that is another one, whether the two
// definitions agree, and since which event they differ. A registry asks it before
// it runs a call. The [State] of the projection judges every recorded [Turn], as
// of the last event folded.
//
// A registration is identified by its event and its name. A tool that is
// registered again, even without a change, makes earlier offers stale. A
// registration that an overlay hid and that is in effect again is stale to a turn
// that was offered the overlay, and current again to the turn that was offered it.
//
// Events do not record the layers of a turn. The projection takes the layers of the
// offered tools, and the layers open at that time that the same process had for
// the application, for the session's location or one of an offered tool, and for
// the session; see [Turn.Layers]. A turn without tools has no layers and no stale
// offers.
//
// # Promises
//
//   - Events of other names, locations and sessions make no offer stale.
//   - ChangedBy is the event since which the registration in effect differs from
//     the offered one. Later events do not change it while the two differ.
//   - Definitions agree if both fingerprints are known and equal.
//   - A turn of several events is judged as one.
//
// # Concurrency
//
// A State may be read by several goroutines while it is not folded into. The
// package starts no goroutine and holds no lock.
//
// # Errors
//
// There are no errors: an offer that was never registered is stale since no event.
//
// The registry's policy decides what follows from a verdict. The laws are in
// staleness_test.go, an example in example_test.go.
package staleness
