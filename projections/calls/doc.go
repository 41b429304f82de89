// Package calls says of each call how far it came and how it ended.
//
// Its [State] is folded from the whole log. [State.Calls] lists every [Call]
// that a model asked for, [State.Sessions] every [Session] in numbers, and
// [State.Retained] every managed output that a settlement names. A call is
// named by a [Key]: session, message and call ID, as call IDs come again.
// [State.Orphans] are starts and results of calls that nobody asked for.
//
// A history can break the laws of calls: one that was imported, or written by
// another version. [State.Exceptions] lists each place where it does, with the
// [Law]. A session that ran here is held to all of them. An import is held to
// what its file can tell: that a call ends at most once, and that a result has a
// call. [State.Unfinished] lists the calls and the requests for permission that
// are open.
//
// The state is kept small, as it is checkpointed: it holds the first 256 bytes
// of texts and inputs, and no output. A call that ended is packed into some
// hundred bytes, which are compressed with those of its neighbours to a third.
// It is unpacked when it is asked for or when something comes of it after all;
// Exceptions and Orphans unpack none that they do not return something of. Who
// wants the whole reads the session's stream. Whether a managed output is there
// is for who has the outputs to say.
//
// # Promises
//
//   - A history that keeps the laws has no exception, and each breach is
//     listed once, at its event, in the order of the log.
//   - A call without an end and a request for permission without a decision are
//     unfinished until they have one. They break a law from the event on that
//     says that the process which has them stopped.
//   - A late result changes no call. One of a call that nobody asked for is an
//     orphan result.
//   - A call asked for again under its ID, with the same name and input, is one
//     call; so is one whose reply is recorded in several events.
//   - An idempotent call may begin again. A registration may close, or be hidden by
//     another one, between the event that led to a turn and the turn.
//   - A turn that offers a tool which another registration hid before is an
//     exception: a later one of its layer, or one of a layer above that the turn
//     names. The layers of a turn that offers nothing of them are not on record.
//   - A settlement under another registration than the one offered is no
//     exception where the fingerprints agree.
//
// # Concurrency
//
// A State may be read by several goroutines while nobody folds into it. The
// package starts none and holds no lock.
//
// # Errors
//
// There are none: what breaks a law is an [Exception], which is an answer.
//
// What a model is shown of a session is the affair of package conversation. The
// laws are in calls_test.go, an example in example_test.go.
package calls
