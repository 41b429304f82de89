// Package replay replays recorded sessions and compares each replay with its recording.
//
// A [Tape] is a session with the registrations that its turns offered, in the order of the
// log; [ReadTape] reads it. [Tape.Run] runs it again, as a new session whose origin names
// the recorded one: the runner and the registry are those of every session, the replies of
// the model and the results of the tools come from the tape, and prompts, registrations,
// closings, decisions, interruptions and the deaths of processes happen at their recorded
// places. Everything else is derived anew: offers, conversations, settlements and their
// order. The [Report] has each [Difference] with both sides, and each [Incomparable] part
// with the reason.
//
// Two other ways use a part of a tape. [Replies] gives the recorded replies to a session with
// real tools, and compares the end of each call. [LiveTools] gives the recorded results to a
// live model, and reports its misses and drifts.
//
// # Promises
//
//   - Run asks no model and runs no tool. LiveTools runs a tool only for a call that the tape
//     does not have, and only if it may.
//   - The record of the session is not changed.
//   - IDs and times are not compared. IDs in texts are compared by what they name.
//   - The order of the events is that of the tape as far as the runner can record it; an
//     event that it does not record is missing in the report, and the replay goes on.
//   - Of an imported session the prompts, replies, outcomes and texts of calls are
//     compared, because a transcript has no offers.
//
// # Concurrency
//
// A Tape is safe for concurrent use. Run uses the goroutines of the runner and one of its
// own, and joins them before it returns. It starts no timer: an actor waits for a place on
// the tape, and if every actor waits, the event at the cursor is missing.
//
// # Errors
//
// ReadTape returns [ErrNoTurns], runner.ErrNoSession and events.ErrUnknownKind, and Run
// returns errors of the store and of the kept outputs. A difference is no error.
//
// Package runner runs sessions, and package registry settles their calls. The tests plant
// differences and check that each is named.
package replay
