// Package script replays a recorded trajectory in place of a model.
//
// [Parse] reads a [Script] from a document in ATIF 1.x, the Agent Trajectory
// Interchange Format. The document is one JSON object with the members
// schema_version, agent and steps. A step has a source. A step of the user is a
// prompt. A step of the agent is a reply, which may contain calls of tools. Steps of
// the system are ignored.
//
// A Script is a [runner.Provider]. It chooses a reply by the number of replies in the
// session: to a session with n replies it returns reply n, counted from 0. It does
// not look at the tool results. A Script stores no progress, so a session that was
// interrupted continues with the reply after the last recorded one.
//
// # Promises
//
//   - Every call has the ID, name and arguments of the document, in the same order.
//   - Parse rejects a document that is not ATIF 1.x, or that has a call without an ID
//     or a name, and returns no Script. The error lists each fault with its step or
//     line.
//   - Parse ignores the tool results in the document. The runner executes the calls
//     and records new results.
//
// # Concurrency
//
// A Script is immutable and may serve several sessions at once. The package starts no
// goroutine.
//
// # Errors
//
// Parse returns [ErrNotATIF] for an invalid document. Reply yields [ErrExhausted] if
// the trajectory has no further reply.
//
// The runner executes the calls. Examples are in example_test.go.
package script
