// Package script replays a recorded trajectory in place of a model.
//
// [Parse] reads a [Script] from an ATIF 1.x document (Agent Trajectory Interchange
// Format): one JSON object with schema_version, agent and steps. The steps of the
// user are prompts, and the steps of the agent are replies with calls. A Script is a
// [runner.Provider]: to a session that has n replies it returns reply n of the
// trajectory, whatever the tools returned. It stores no progress, so a session
// resumes where its log ends.
//
// # Promises
//
//   - Every call has the ID, name, arguments and order of the document.
//   - A document that is not ATIF 1.x, or that has a call without an ID or a name, is
//     rejected as a whole. The error lists each fault with its step or line.
//   - Recorded observations are ignored: the tool results are those of the session.
//
// # Concurrency
//
// A Script is immutable and may serve several sessions at once. The package starts
// no goroutine.
//
// # Errors
//
// Parse returns [ErrNotATIF]. Reply yields [ErrExhausted] if the trajectory has no
// further reply.
//
// The runner executes the calls. Examples are in example_test.go.
package script
