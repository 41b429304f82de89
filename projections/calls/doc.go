// Package calls lists every call of the ledger with its progress and outcome.
//
// A call is the request of a model to run a tool; its settlement is its recorded
// end. A [State] is folded from the whole log. [State.Calls] lists every [Call]
// that a model made, [State.Sessions] every [Session] with its counts, and
// [State.Retained] every managed output, an output that is stored outside the log,
// that a settlement names. A [Key] identifies a call by session, message and call
// ID, as call IDs repeat. [State.Orphans] lists starts and results without a call.
//
// A history can break the laws of calls if it was imported or written by another
// version. [State.Exceptions] lists every event that breaks a [Law]. A session that
// ran here must keep all laws. An import must keep the laws that its file can show:
// that a call ends at most once, and that a result has a call. [State.Unfinished]
// lists open calls and undecided permission requests.
//
// A [Checker] has the rules. It checks each session by the events of its stream, in
// order, and by facts of other streams, which it looks up by ID: the spans of layers and
// registrations, the ends of processes, undecided permission requests, and which settlement
// named a managed output first. Sessions and facts are in maps of package spill. With a
// temporary database such a map holds the values that were used last, so a Checker reads a
// log of any length in bounded memory, in one pass, whether or not sessions interleave. A
// State is a Checker without a database and the lists of calls and sessions; it is in memory
// as a whole, and suits tests and small logs.
//
// A Checker keeps of a call its key, tool, turn, progress and outcome, and a digest of its
// input. A State keeps the first 256 bytes of texts and inputs, and no output. The complete
// call is in the session's stream, and package registry/outputs knows whether a managed
// output exists.
//
// # Promises
//
//   - A history that keeps the laws has no exception. Each breach is listed once,
//     at its event, in log order.
//   - A call without an end and an undecided permission request are unfinished.
//     They become exceptions at the event that records the end of their process.
//   - A late result is a result that a tool returns after the settlement. It changes
//     no call. A late result without a call is an orphan.
//   - A call repeated under its ID, with the same name and input, is one call; so
//     is one whose reply is recorded in several events.
//   - An idempotent call may begin again.
//   - A turn may offer a tool whose registration closed, or was hidden by another
//     one, after the event that caused the turn and before the turn was recorded.
//   - A turn that offers a tool which was hidden before that is an exception. The
//     hiding registration is a later one of the same layer, or one of a higher layer.
//     The check knows only the layers of the tools that the turn names as offered or
//     hidden, so it does not detect hiding by another layer.
//   - A settlement under another registration than the offered one is no
//     exception if the fingerprints agree.
//
// # Concurrency
//
// A State may be read by several goroutines while it is not folded into. A Checker
// belongs to one goroutine. The package starts no goroutine and holds no lock.
//
// # Errors
//
// Only decoding a checkpoint returns errors. A broken law is an [Exception], which
// is a result. A failed disk is an error of the spill.Store of a Checker; its caller looks
// at spill.Store.Err before it believes a result.
//
// Package conversation has the messages of a session. The laws are in
// calls_test.go, an example in example_test.go.
package calls
