// Package catalog says which registration each name means in each layer.
//
// Its [State] holds every [Layer] with every [Registration] that it ever had.
// Given layers in rising precedence, [State.Effective] finds what one name
// means, [State.Catalog] everything that is in effect, and [State.Overlay] what
// a name would mean next. An [Entry] is one tool of a registration. Folded up to
// a position, the state answers for that position.
//
// Within a layer the latest active registration of a name is in effect; closing
// it reveals the one before. A layer hides those below it, name by name. A
// closed layer has nothing in effect, whatever is registered in it.
// [State.ClosedBy] and [State.Displaced] say which event ended a registration,
// or put another in its place.
//
// Events are ordered by how they were folded: each has an ordinal, counted over
// the events of layers. A registry that folds its own appends and a reader of
// the log agree on the order of one layer's events, which is that of its stream.
//
// # Promises
//
//   - A registration keeps its identity whatever happens to other names.
//   - Closing a registration removes its own tools and no others.
//   - The order of a catalog follows from what is active alone: the names of
//     the lowest layer first, each where its oldest active registration put it;
//     a higher layer's entry takes the place of the one that it hides.
//   - A layer that was never opened, or is closed, has nothing in effect.
//   - Events that repeat, or that name what is not there, change nothing.
//   - What a State returned is not changed by later events.
//
// # Concurrency
//
// A State may be read by several goroutines while nobody folds into it. The
// package starts none and holds no lock.
//
// # Errors
//
// There are none: what is not known is absent.
//
// Whether a call may still run is the affair of package staleness. The laws are
// in catalog_test.go, an example in example_test.go.
package catalog
