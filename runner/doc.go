// Package runner carries agent sessions forward through their ledger.
//
// A [Runner] takes steps: what a session needs next is a pure function, plan, of
// the session folded from the log, and every step ends in an append. A step
// asks the model through a [Provider], settles the calls of its reply, or ends
// what somebody left open. [Runner.Run] takes steps until the session rests.
// So recovery is the ordinary path: to resume is to run again.
//
// A turn is on record before the model is asked, its reply before a call of it
// begins, and the end of each call before the model reads it. Calls of one reply
// run side by side; each has an end of its own.
//
// # Promises
//
//   - A call that began and has no end is ended as lost, and never run again.
//   - A call is settled against the offer on record for its turn, never against
//     a later one.
//   - No run resumes unasked: Recover and RecoverAll ask no model and run no tool.
//   - A step that adds nothing to the log ends the run with [ErrNoProgress].
//   - A reply whose calls have no ID, or one ID twice, is on record as refused,
//     with the reason: none of its calls runs, and the run ends with [ErrBadReply].
//   - A process is dead when its lease ran out, or when it had none and cannot
//     have the store: never because it was not heard of.
//   - A run that is interrupted or fails leaves nothing open: one append ends
//     every call that has no end, dismisses the requests that wait and records
//     the interruption, in spite of the context that ended. An append whose
//     outcome was open is made certain first.
//   - An admitted message is read by the run that is under way or by the next
//     one. A run that rests has read every message admitted before.
//
// # Concurrency
//
// A Runner may be used by several goroutines. Whoever runs a session that runs
// already joins. Different sessions run side by side. Messages of a session are
// admitted one at a time, and none while a run begins, records a turn or decides
// to rest: that semaphore is taken before the locks of the journal, the writer
// and the Runner.
// The runner starts a goroutine for each call of a reply and joins them before it
// takes the next step; one that outlives the grace of its interruption is the
// registry's to wait for. A [Lease] owns one goroutine, which Close joins.
//
// # Errors
//
// [ErrNoSession], [ErrImported], [ErrElsewhere], [ErrNoProgress], [ErrBadReply],
// [ErrBroken] and events.ErrUnknownKind come from Run; [ErrOtherText] from Admit;
// [ErrNotRunning] from Note; [ErrLeaseLost] is the cause with which the context
// of a [Lease] ends. A *events.Conflict says that somebody else appends
// to the session: the run stops and changes nothing.
//
// How a call is settled is the registry's affair, what a model is shown that of
// the projection conversation, and which processes are dead that of whoever
// opened the store. The crash laws are in crash_test.go.
package runner
