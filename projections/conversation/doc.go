// Package conversation rebuilds one session from its stream: the messages that
// its model reads and the state from which the next step follows.
//
// A [State] has the session's messages, each a [Prompt] or a [Reply]; each reply
// has its calls, as [ReplyCall] values with their progress. It also has the last turn
// (one request to the model, with the tools that it offered), the undecided
// permission requests and questions, and whether the session was
// interrupted or closed. A runner plans the next step from the state alone.
// [State.ModelMessages] renders the session as a model reads it.
//
// A reply recorded in several events is one message; so is a turn. The same call
// ID in another message is another call. If one reply has two calls with one
// ID, the state keeps both in order. They are the same call in the ledger: they
// share one start and one settlement, and are answered once.
//
// # Promises
//
//   - The state depends on the stream alone, and ModelMessages on the state alone. A
//     state folded from the log and one loaded from a checkpoint give the model the
//     same text, byte for byte.
//   - ModelMessages answers each call once, in the order of its reply, and a call
//     without a settlement with [OutcomeUnknown].
//   - A compaction leaves messages and results out of ModelMessages, and of nothing else.
//   - The first start and the first settlement of a call count. A late result is
//     counted and never rendered.
//   - Steps counts the replies since the last prompt, however many events record
//     them.
//   - Unknown kinds are listed once each and have no other effect.
//   - Events of other sessions, layers and processes are ignored.
//
// # Concurrency
//
// A State may be read by several goroutines while it is not folded into. The
// package starts no goroutine and holds no lock.
//
// # Errors
//
// There are no errors. A caller that cannot continue after an unknown kind checks
// Unknown and returns events.ErrUnknownKind.
//
// Package calls finds the sessions that break a law of calls. The laws are in
// conversation_test.go, an example in example_test.go.
package conversation
