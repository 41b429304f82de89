// Package transcripts imports session files of other agents as events.
//
// A session is one conversation of an agent, a program that sends prompts to a model
// and runs the tool calls in its replies. [Read] reads a session file of a format of
// [Formats] into a [Transcript]: the sessions of the file, the tools seen in them, and a
// [Report] with counts, refused lines, cut texts and ignored records. An [Importer]
// appends the events that a ledger does not have yet. The readers of all formats build
// the same sessions, replies, calls and results, and one importer appends them.
//
// The records of Claude Code are assigned to sessions, replies and calls as follows:
//
//   - A session is named by the session ID of its records. A session that continues
//     another is a session of its own, with the setting "continues".
//   - A fork is a session that begins with copies of another session's records. A
//     copied record that names the session in which it was written belongs to that
//     session. Two files with parts of one session therefore complete each other.
//   - A sub-agent is an agent that a call of the session started. Its records form one
//     session, whose parent is the session of the call. They can be in the file of the
//     parent session, in a file of their own or in progress records of the call.
//   - Lines with one message ID form one reply, whose tokens count once. A line with
//     the uuid and message of an earlier line is ignored.
//   - A call is identified by its reply and its call ID, because the format reuses call
//     IDs.
//
// No format says which tools a turn offered. The import records each tool as
// observed, by its name, in a layer of the session; a turn offers the tools that its
// reply calls. It records a result without a call in the file as the settlement of an
// unknown call, and a call as begun if its result or its progress shows that the tool
// ran. It reads the outcome of a call from the text of the result, because the format
// has no other sign.
//
// Text that the program wrote in place of the user is recorded as context, and
// commands and hooks as commands; neither is a prompt.
//
// # Promises
//
//   - Reading is pure: the same file gives the same IDs, times and events.
//   - Events have the times of the file. A line without a time has that of the line
//     before it.
//   - Importing a file again adds no event, and importing a file that has grown adds
//     the rest. If a reply on record has grown, a further ReplyReceived of the same
//     message adds the rest of its text, calls and tokens, and a further
//     TurnMaterialized of the same turn adds the tools of these calls.
//   - A settled call is not settled again: another settlement of it is recorded as
//     late.
//   - The whole lines of a damaged file are imported, and the report lists every other
//     line with the reason.
//   - The report counts ignored records by kind and lists each text that was cut to a
//     limit by its line. A text over the limit does not affect other texts.
//   - A sub-agent finds its parent, also if the file of the sub-agent is imported first.
//   - A model or location that an opening event lacks is recorded once a file has it.
//   - The other agent can store a large output in a file of its own. The settlement
//     then has the text that replaces the output in the session file, and its detail
//     says where the output was.
//
// # Concurrency
//
// Read may run on several goroutines, each with a reader of its own. A
// Transcript and an Importer belong to one goroutine each. The package starts no
// goroutine. A Transcript holds the texts of its events in memory, and no other part
// of the file.
//
// # Errors
//
// [ErrForeign]: the file is not of the format. [ErrContradicted]: the file
// contradicts a recorded event. [events.ErrConflict]: another program appended at the
// same time. Other errors come from the reader or the ledger.
//
// The package leaves storage to the ledger and the laws of calls to the projection
// that folds them. The promises are checked in promises_test.go.
package transcripts
