// Package conversation says what a model is shown of a session.
//
// Its [State] is folded from one session's stream: each [Message] is a
// [Prompt] or a [Reply], each reply has its [Call] values with how far they
// came, and beside them stand the last turn, the requests for permission that
// are not decided, the approvals that hold, and whether the session was
// interrupted or closed. From the state alone a runner plans the next step.
// [State.ModelMessages] renders it as a model reads it.
//
// A reply that is recorded in several events is one message, as is a turn. The
// same call ID in another message is another call. Where one reply asks twice
// under one ID, both calls are kept, in place; they are the same call to the
// ledger, and so they share its one start and its one settlement, and are
// answered once.
//
// # Promises
//
//   - What is shown is a function of the state, and the state of the stream:
//     read back from the log or from a checkpoint, it is the same, byte for
//     byte of what the model wrote.
//   - Each call that is shown is answered once, in the order of its reply. A
//     call without a settlement is answered with [OutcomeUnknown].
//   - The first start and the first settlement of a call stand. A late result
//     is counted and never shown.
//   - Steps counts replies since the last prompt, whatever events record them.
//   - Kinds that are not known are named, once each, and change nothing else.
//   - Events of other sessions, layers and processes are passed over.
//
// # Concurrency
//
// A State may be read by several goroutines while nobody folds into it. The
// package starts none and holds no lock.
//
// # Errors
//
// There are none. Whoever cannot do without a kind that is not known looks at
// Unknown and answers with events.ErrUnknownKind.
//
// Which laws of calls a session breaks is the affair of package calls. The
// laws are in conversation_test.go, an example in example_test.go.
package conversation
