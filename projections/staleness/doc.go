// Package staleness reports whether the tools that a turn offered are still in
// effect.
//
// A turn is one request to a model. It offers a list of tools, each with its
// registration. The model may call a tool later, when another registration of the
// name is in effect: the offer is then stale. For one offered registration, [Compare]
// returns a [Comparison]: the registration to which the name resolves now, whether
// that is another one, whether the two definitions agree, and the event since which
// the two differ. A registry uses Compare before it runs a call. The [State] of the
// projection compares the offer of every recorded turn, a [TurnOffer], as of the last
// event folded.
//
// A registration is identified by its event and its name. A tool that is
// registered again, even without a change, makes earlier offers stale. A second
// registration of a name can hide the first and then close. The first is in effect
// again, and an offer of it is no longer stale; an offer of the second is.
//
// Events do not record the layers of a turn. The projection derives them from the
// offered tools: it takes the layers of these tools, and the other layers that the
// same process had open at the turn for the application, for the location or for the
// session; see [TurnOffer.Layers]. A turn without tools has no layers and no stale
// offers.
//
// # Promises
//
//   - Events of other names, locations and sessions make no offer stale.
//   - ChangedBy is the event since which the registration in effect differs from
//     the offered one. Later events do not change it while the two differ.
//   - Definitions agree if both fingerprints are known and equal.
//   - The offers of several events of one turn are compared as one offer.
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
// The registry's policy decides whether a stale call runs. The laws are in
// staleness_test.go, an example in example_test.go.
package staleness
