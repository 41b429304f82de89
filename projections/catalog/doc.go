// Package catalog resolves tool names to registrations, layer by layer.
//
// Tools are put into effect by registrations. Each belongs to a layer: of the
// application, of a location such as a working directory, or of a session. A
// [State] holds every [LayerHistory] with every [Registration] that it ever had. Given
// layers in rising precedence, [State.Effective] resolves one name,
// [State.Catalog] lists all entries in effect, and [State.Overlay] lists the
// entries of a name that hide each other. A [ToolEntry] is one tool of a
// registration. A state folded up to a position is the catalog as of that
// position.
//
// Within a layer the latest active registration of a name is in effect; closing it
// reveals the one before. A layer hides lower layers, name by name. A closed layer
// has no entry in effect, even after later registrations. [State.ClosedBy]
// and [State.Displaced] return the event that ended or hid a registration.
//
// Events are ordered as they were folded: each event of a layer has an ordinal. A
// registry that folds its own appends and a reader of the log agree on the order
// of events within a layer, which is the order of its stream.
//
// # Promises
//
//   - Events of other names do not change the identity of a registration.
//   - Closing a registration removes its own tools and no others.
//   - The order of a catalog depends on the active registrations alone: the
//     names of the lowest layer first, each at its oldest active registration;
//     the entry of a higher layer takes the place of the entry that it hides.
//   - An unknown or closed layer has no entry in effect.
//   - Repeated events, and events that name unknown layers or registrations, have
//     no effect.
//   - Later events do not change the values that a State returned.
//
// # Concurrency
//
// A State may be read by several goroutines while it is not folded into. The
// package starts no goroutine and holds no lock.
//
// # Errors
//
// There are no errors: lookups report an unknown name, layer or registration as
// absent.
//
// Package staleness decides whether a call may still run. The laws are in
// catalog_test.go, an example in example_test.go.
package catalog
