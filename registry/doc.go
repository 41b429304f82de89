// Package registry finds the tool behind a name and settles calls to it.
//
// Tools are put into effect by a [Scope], which belongs to a [Layer]. Within a
// layer the latest registration of a name is in effect; closing its scope puts
// back the one before. A [Registry] overlays layers of the [Layers] of a
// process, the later hiding the earlier.
//
// What one turn may call is fixed by [Registry.Materialize]. The
// [Materialization] keeps the identity of each registration and not its tool, so
// that a call made later either reaches the very registration that was offered
// or is rejected as stale. [Materialization.Settle] is the only way in which a
// tool is run. Which fact is kept where is the affair of a [Journal], and where
// complete outputs go that of [Outputs].
//
// # Promises
//
//   - Nothing is known of registrations that the log does not hold, but for the
//     tools themselves.
//   - A list with a bad name registers nothing, or, where it comes from outside,
//     all but the bad entries, each of them on record with its reason.
//   - A tool runs only after [Journal.Begin] has returned nil.
//   - Settle returns a settlement only after [Journal.Settle] has returned nil.
//   - An unknown, stale or invalid call runs nothing.
//   - Registering, replacing or closing does not touch a call that has begun.
//   - Output over the [Limits] is kept whole, or the call has not succeeded.
//     Where the tool itself dropped bytes, the preview and the kept text say
//     how many in their first line, and the settlement records the number.
//   - Whatever a tool, a hook or a codec does, a call has one end, and no text of
//     it is over the limits.
//
// # Foreign code
//
// Hooks, codecs, executors, presentations, the methods of the errors that they
// return, and [Outputs.Keep] run on goroutines of their own. If the context of
// a call ends, each is given a grace to return and is then left behind: its
// result is dropped, or recorded as late where it is the tool's, and only
// [Layers.Wait] waits for it. A panic, and the end of the goroutine, is a defect
// of the call; in Keep, a retention failure. A [Journal] and [Outputs.Confirm]
// are called by Settle itself and must return when their context ends.
//
// # Concurrency
//
// Everything here may be used by several goroutines at once. Foreign code runs
// on goroutines that Settle or [Layers.Wait] waits for. The grace of an
// interrupted call is measured on one more, which ends with Settle. Of
// the locks, a scope's is taken first, then its layer's, which is held while the
// layer's stream is appended to, then that of the Layers. No lock is held while
// a tool, a hook, a journal or an output store is called.
//
// # Errors
//
// domain.ErrBadName, domain.ErrBadTool and [ErrClosed] come from Register;
// [ErrUnrecorded] from closing and from Materialize; [ErrBadLimits] and
// [ErrMisplaced] from overlaying. Settle returns [ErrCallConflict], [ErrBegan],
// and what broke in the journal; never an ending that the model should read:
// those are settlements.
//
// Permission is the tool's affair; when a call is settled, the runner's. Each
// promise is checked by a test whose name states it, in the file of its
// subject; an example is in example_test.go.
package registry
