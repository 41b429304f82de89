// Package transcripts reads the session files of other agents as events.
//
// [ReadClaudeCode] reads a session file of Claude Code into a [Transcript]:
// the sessions that the file holds, the tools seen in them, and a [Report] of its
// counts and of refused lines, cut texts and ignored records. An [Importer] adds the
// events that a ledger does not have yet.
//
// A session is named by the session ID of its records. A record that a fork copied
// from another session belongs to that session, so two files of one session
// complete each other. A session that goes on from another is a session of its own,
// with the setting "continues". A copy that names no origin, under another ID, is
// another session. The records of a sub-agent, in the file of the session, in a file
// of their own or in the progress of the call that began it, are one session, whose
// parent is the session of that call. Lines that share a message ID are one reply,
// whose tokens count once. A repeated line with the same uuid and message is one
// record. A call is identified by its reply and its call ID, as the format reuses
// call IDs.
//
// The file does not say what a turn offered: each tool is recorded as observed,
// by its name alone, in a layer of the session, and each turn offers the tools
// that it called. A result that no call in the file asked for is recorded as
// the settlement of a call that nobody asked. A call is recorded as begun
// where its result says that it ran or where its progress does. How a call ended
// is read from the text of its result, as the format has no other sign.
//
// Texts that the program writes in a person's place are recorded as context, and
// commands and hooks as commands; neither is a prompt.
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
//   - The whole lines of a damaged file are kept, and the report lists every
//     other line with the reason.
//   - The report counts the records that are not put on record by their kind, and
//     lists the texts that are cut to the limits by their line. One text that is
//     too long never costs the others.
//   - A sub-agent finds its parent in whatever order their files are imported.
//   - A model or location that the opening of a session lacked is recorded once a
//     file has it.
//   - Output that the other agent kept elsewhere is recorded as the text that
//     the file has, and the detail says where the rest was.
//
// # Concurrency
//
// ReadClaudeCode may be called by several goroutines, each with a reader of
// its own. A Transcript and an Importer belong to one goroutine each. The package starts none. A
// Transcript holds the texts of its events in memory, and nothing else of the
// file.
//
// # Errors
//
// [ErrForeign]: the file is not of the format. [ErrContradicted]: the file
// contradicts an event on record. Every other error is one of the reader or of the
// ledger.
//
// How records are kept is the store's affair, and whether a log keeps the laws
// of calls is that of the projection that folds it. The promises are
// checked in promises_test.go.
package transcripts
