// Package runner runs agent sessions: it asks the model, settles the calls of its
// replies, and recovers sessions that a dead process left open.
//
// A [Runner] takes steps. The function plan computes the next step of a session
// from its recorded events alone, and every step ends in an append. A step asks
// the model through a [Provider], settles the calls of a reply, or ends calls and
// permission requests that another process left open. [Runner.Run] takes steps
// until the session is idle. Recovery is therefore the ordinary path: to resume a
// session is to run it again.
//
// A turn is the request to a model with the tools that it may call. It is on
// record before the provider sends it, its reply before a call of the reply
// begins, and the end of each call before the model reads it. Calls of one reply
// run in parallel, each with its own end.
//
// [Runner.Fork] opens a session whose past is the beginning of another one. The fold of a
// fork begins with the events of its parent, so that plan, requests and the loop detector
// see the past, and no event is copied. [FindFork] finds the place.
//
// A [Lease] keeps the process on record as alive. [Processes] projects the leases
// of all processes, [ProcessList.Judge] decides which of them are dead, and
// [Runner.RecoverAll] ends the open work of these.
//
// # Promises
//
//   - A call that began and has no end is ended as lost, and never run again.
//   - A call is settled against the recorded offer of its turn, never against a
//     later one.
//   - A recovery asks no model and runs no tool.
//   - A step that appends no event ends the run with [ErrNoProgress].
//   - A reply that has a call without an ID, or two calls with the same ID, is
//     recorded as refused with the reason. No call of it runs, and the run
//     ends with [ErrBadReply].
//   - A request that fails is recorded with each attempt. A reply that breaks off is
//     recorded as refused with the parts that arrived, and no call of it runs.
//   - A turn names the system prompt, the parameters and the schemas of its request by
//     their digests. Its session has each text once, unless there are more than a thousand.
//   - A request that would not fit into the context of the model leaves out the beginning of
//     the session, of which it has a summary, and the turn names the event that says so. A
//     request that the provider refuses as too large is followed by a smaller one, or by
//     the end of the run if nothing more can be left out. The messages that the model has
//     not read are never left out.
//   - A process is dead if its lease ran out, or if it had no lease and the judging
//     process holds the store exclusively. Silence alone is no proof.
//   - A run that is interrupted or fails ends all open calls, dismisses open
//     permission requests and records the interruption, after its context has
//     ended too. Before that it resolves each append of unknown outcome: it repeats
//     the append until the log shows whether the events are on record.
//   - An admitted message is read by the current run or by the next one. A run that
//     ends idle has read every message admitted before.
//
// # Concurrency
//
// A Runner is safe for concurrent use. A second Run of a running session joins the
// first. Different sessions run in parallel. A semaphore per session admits one
// message at a time, and no message while a run begins, records a turn or decides
// that it is idle; it is acquired before the locks of the journal, the writer and
// the Runner. A run starts a goroutine for each call of a reply and joins them
// before its next step; the registry waits for tools that outlast the grace period
// of their interruption. A Lease owns one goroutine, which [Lease.Close] joins.
//
// # Errors
//
// FindFork returns [ErrNoPlace] and [ErrOpenPlace]. Run returns the errors of the provider, such as [ProviderError] and
// [IncompatibleError], and [ErrNoSession], [ErrImported], [ErrElsewhere], [ErrNoProgress],
// [ErrBadReply], [ErrBroken], conversation.ErrNoPast for a fork without its past, and events.ErrUnknownKind. Admit returns
// [ErrOtherText], and Note [ErrNotRunning]. [ErrLeaseLost] is the cause with which
// the context of a Lease ends. A *events.Conflict reports that another process
// appends to the session; the run then stops and records no event.
//
// Package registry settles calls, and package conversation decides which messages
// a model sees. The tests in crash_test.go cut the power at each append of a
// session and check the laws of calls.
package runner
