// Package permission decides whether a call may do what it asks for.
//
// A call asks by an [Ask]: an action, such as edit, on one or more resources,
// such as paths. A [Gate] answers it. Rules come first: they are ordered, the
// last that matches decides, and over several resources deny beats ask beats
// allow. A request that the rules leave open goes to an [Approver] as a [Request]: a [Headless]
// one that refuses, a person at a [Terminal], or a [Queue] whose entries are
// answered from elsewhere. [Gate.Check] returns what rules and approvals say without
// asking. A person answers with a [Choice]; an answer for
// always is kept as an [Approval], which allows the same again and can expire
// and be revoked.
//
// Rules are read by [ParseRules], one on each line: an effect (allow, ask or
// deny), the pattern of an action, and the pattern of a resource, which is the
// rest of the line.
//
//	# comments and blank lines count for nothing
//	allow read *
//	ask   edit *
//	deny  bash rm *
//	allow external_directory ~/src/*
//
// A rule that denies a command is no fence. It matches the names of programs,
// and a program can run another without naming it: deny bash rm * leaves python
// and make to remove files. Allow what is wanted and ask about the rest.
//
// The patterns are those of [domain.Match]. A resource that begins with ~ or
// $HOME, alone or before a slash, begins with the home directory.
//
// # Promises
//
//   - A configured deny is never overridden, by an approval or by a person.
//   - An ask without a resource is an error, never a yes.
//   - The Recorder has recorded a request and its decision before the call acts
//     on them. A request that cannot be recorded is refused. An allow by rule asks nothing and has no
//     event of its own: [Allowances] keep the rule for the end of the call. An
//     allow by approval has its events.
//   - An approval that makes a waiting request allowed answers that request.
//   - A refusal by a person, with feedback or without, refuses every request of
//     the same session that waits.
//   - An answer counts for the question at whose prompt it was typed. Input
//     from before that prompt, or for a question that was withdrawn, answers
//     nothing.
//   - A question shows the operation that it approves: the text of Ask.Show, with its size,
//     and the patterns that an answer for always allows. That text is on record.
//   - An ask whose asker is interrupted leaves no pending request. The request
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
// from Queue.Reply, [ErrInvalidValue] from parsing a scope or a decider and for an
// invalid answer of an Approver.
//
// The tool defines its resources; the Recorder stores the facts. The laws are in gate_test.go and rules_test.go, examples in
// example_test.go.
package permission
