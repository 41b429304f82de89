// Package registry registers tools and settles the calls that a model makes to
// them.
//
// A plugin registers its tools through a [Scope]. A scope belongs to a [Layer]:
// the application, one location or one session. Within a layer the latest
// registration of a name is in effect, and closing a scope reveals the
// registration that it hid. [Layers] manages the layers of a process, and a
// [Registry] overlays some of them: a higher layer hides the same names in the
// layers below it.
//
// [Registry.Materialize] fixes the offer of one turn as a [Materialization]. The
// offer holds the identity of each registration and not its tool, so that a later
// call either reaches the registration that was offered or is rejected as stale,
// according to the [StalenessPolicy]. [Materialization.Settle] is the only function that
// runs a tool. It brings a call to exactly one end, its settlement: it resolves
// the name, runs the tool, bounds the output to the [Limits] and records the
// start and the end in a [Journal]. [Outputs] stores outputs that exceed the
// limits.
//
// # Promises
//
//   - The catalog of registrations is folded from events of the log; the process
//     adds only the tools themselves.
//   - Register registers either all tools of a list or no tool. RegisterValid
//     registers the valid entries and records the others with their reason.
//   - A tool runs only after [Journal.Begin] has returned nil.
//   - Settle returns a settlement only after [Journal.Settle] has returned nil.
//   - An unknown, stale or invalid call runs no tool.
//   - Registering, replacing or closing a tool does not change a call that has
//     begun.
//   - Output over the limits is retained in full, or the call does not succeed. If
//     the tool itself dropped bytes, the preview and the retained text give their
//     number in the first line, and the settlement records it.
//   - Every call has one end, and each text of it is within the limits, even if a
//     tool, a hook or a codec panics, hangs or ends its goroutine.
//
// # Foreign code
//
// Hooks, codecs, executors, presentations, the methods of the errors that they
// return, and [Outputs.Keep] run on their own goroutines. After the context of a
// call ends, Settle waits for each goroutine at most for the grace period of the
// [Config] and then leaves it behind. Settle then drops the result, except that it
// records the result of a tool as late. [Layers.Wait] waits for goroutines that
// were left behind. A panic is a defect of the call; a panic in Keep is a retention
// failure. Settle calls the Journal and [Outputs.Confirm] on its own goroutine, so
// these must return when their context ends.
//
// # Concurrency
//
// All types are safe for concurrent use. Settle starts one goroutine for each
// piece of foreign code and joins it or leaves it to Layers.Wait; a timer for the
// grace period ends with Settle. Locks are acquired in this order: the lock of the
// scope, of its layer, of Layers. A layer's lock is held while its stream is
// appended to. No lock is held while a tool, a hook, a journal or an output store
// is called.
//
// # Errors
//
// Register returns domain.ErrBadName, domain.ErrBadTool and [ErrClosed]. Closing
// and Materialize return [ErrUnrecorded]. [Layers.Registry] returns [ErrBadLimits]
// and [ErrMisplaced]. Settle returns [ErrCallConflict], [ErrBegan] and errors of
// the journal. A failure that the model should read is a settlement and never an
// error.
//
// The tool decides about permissions, and the runner decides when a call is
// settled. The tests in this package check each promise under a name that states
// it; package registrytest has the laws that every journal and store must keep;
// example_test.go has an example.
package registry
