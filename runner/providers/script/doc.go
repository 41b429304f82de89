// Package script speaks the assistant's side of a recorded trajectory.
//
// A [Script] is read by [Parse] from an ATIF 1.x document (Agent Trajectory
// Interchange Format): one JSON object with schema_version, agent and steps. Its
// user steps are prompts, its agent steps replies with the calls that they ask
// for. A Script is a [runner.Provider]: to a session that holds n replies it
// gives reply n of the trajectory, whatever the tools answered. It holds nothing
// between calls, so that a session goes on where its log ends.
//
// # Promises
//
//   - Every call, with its ID, name and arguments, is asked for as the document
//     has it, in its order.
//   - A document that is not ATIF 1.x, or has a call without an ID or a name, is
//     refused as a whole with the place of each fault.
//   - Observations are never used: what a tool answered is what it answered in
//     the session.
//
// # Concurrency
//
// A Script is immutable and may serve several sessions at once. It starts no
// goroutine.
//
// # Errors
//
// [ErrNotATIF] comes from Parse, [ErrExhausted] from Reply where the trajectory has no
// further reply.
//
// What a session does with the calls is the runner's affair. Examples are in
// example_test.go.
package script
