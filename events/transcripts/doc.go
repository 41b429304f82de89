// Package transcripts reads the session files of other agents as events.
//
// [ReadClaudeCode] reads a session file of Claude Code into a [Transcript]:
// the sessions that the file holds, the tools seen in them, and a [Report] of
// what was counted and what was refused. [Transcript.Import] adds to a ledger
// what is not yet on record there.
//
// A file holds one session, named by the first session ID in it and the time
// at which it first says something; lines that name another ID are the same
// session resumed. Two files that begin alike are one session, and each adds to
// it what the other does not say; a copy under another ID is another session.
// Lines of a subagent are a session
// of their own, whose parent is the session of the file. Lines that share a
// message ID are one reply, whose tokens count once. A line that comes again
// with its uuid and its message is one record. A call is told apart by its
// reply and its call ID, as call IDs come back.
//
// What a turn offered is not in the file: each tool is recorded as observed,
// by its name alone, in a layer of the session, and each turn offers the tools
// that it called. A result that no call in the file asked for is recorded as
// the settlement of a call that nobody asked. A call is recorded as begun
// where its result says that it ran or where its progress does.
//
// # Promises
//
//   - Reading is pure: the same file gives the same IDs, times and events.
//   - The times of events are the times in the file. A line without one takes
//     the last before it.
//   - Importing a file again adds nothing, and importing one that has grown
//     adds the rest. Where a reply on record has grown, a further
//     ReplyReceived of the same message adds the rest of its text, its calls
//     and its tokens, and a further TurnMaterialized of the same turn adds
//     their tools.
//   - A call on record as settled is not settled again: another settlement of
//     it is recorded as late.
//   - What is whole in a damaged file is kept, and every line that is not is
//     in the report with the reason.
//   - Output that the other agent kept elsewhere is recorded as the text that
//     the file has, and the detail says where the rest was.
//
// # Concurrency
//
// ReadClaudeCode may be called by several goroutines, each with a reader of
// its own. A Transcript belongs to one goroutine. The package starts none. A
// Transcript holds the texts of its events in memory, and nothing else of the
// file.
//
// # Errors
//
// [ErrForeign]: the file is not of the format. [ErrContradicted]: what the file
// says is not what is on record of the same thing. Everything else is an error
// of the reader or of the ledger.
//
// How records are kept is the store's affair, and whether a log keeps the laws
// of calls is that of the projection that folds it. The promises are
// checked in promises_test.go.
package transcripts
