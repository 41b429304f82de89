// Package permission decides whether a call may do what it asks for.
//
// A tool passes an [Ask] to a [Gate]: an action, such as edit, on one or more
// resources, such as paths. The Gate evaluates rules first. They are ordered, the
// last matching rule decides, and over several resources deny beats ask beats allow.
// If the rules leave the request open, the Gate passes it as a [Request] to an
// [Approver]: [Headless], which rejects it, a person at a [Terminal], or a [Queue]
// whose requests another part of the program answers. [Gate.Check] evaluates rules
// and approvals only. A person answers with a [Choice]. The answer "always" is stored
// as an [Approval], which allows the same request again, and which can expire and be
// revoked.
//
// Rules are read by [ParseRules], one on each line: an effect (allow, ask or
// deny), the pattern of an action, and the pattern of a resource, which is the
// rest of the line.
//
//	# comments and blank lines are ignored
//	allow read *
//	ask   edit *
//	deny  bash rm *
//	allow external_directory ~/src/*
//
// A rule that denies a command is not a sandbox. It matches the names of programs,
// and a program can run another without naming it: under deny bash rm *, python and
// make can still remove files. Allow the commands that are needed and ask about all
// others.
//
// The patterns are those of [domain.Match]. A resource that begins with ~ or
// $HOME, alone or before a slash, begins with the home directory.
//
// # Promises
//
//   - A configured deny is never overridden, by an approval or by a person.
//   - An ask without a resource is an error, never a yes.
//   - The Recorder has recorded a request and its decision before the call acts
//     on them. A request that cannot be recorded is refused. An allow by rule has no
//     event of its own: [Allowances] store the rule until the end of the call. An
//     allow by approval has both events.
//   - An approval that makes a waiting request allowed answers that request.
//   - A refusal by a person, with feedback or without, refuses every request of
//     the same session that waits.
//   - An answer counts for the question at whose prompt it was typed. Input
//     from before that prompt, or for a question that was withdrawn, answers
//     nothing.
//   - A question shows the operation that it approves: the text of Ask.Preview with
//     its size, and the patterns that the answer "always" allows. The text is recorded.
//   - An ask whose call is interrupted leaves no pending request. The request
//     stays on record without a decision, and the end of its call closes it.
//   - An unknown agent is denied every action.
//
// # Concurrency
//
// A Gate, a Queue, a Terminal, [Approvals] and Allowances may be used by several
// goroutines. The package starts none: [Terminal.Run] reads on the goroutine
// that calls it. No lock is held while an Approver or a [Recorder] is called,
// and no lock is taken while another is held. A Terminal holds a lock while it
// reads a terminal device that has input.
//
// # Errors
//
// [Gate.Assert] returns a *domain.Denied, a *domain.Declined, [ErrNoResource],
// the cause of its context, or an error of the Recorder or the Approver.
// [ErrBadRule] comes from ParseRules, [ErrBadGate] from NewGate, [ErrNotPending]
// from Queue.Reply, [ErrInvalidValue] from parsing a Choice or an Authority and for an
// invalid answer of an Approver.
//
// The tool defines its resources; the Recorder stores the events. The laws are in
// gate_test.go and rules_test.go, an example is in example_test.go.
package permission
