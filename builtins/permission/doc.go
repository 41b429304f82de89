// Package permission decides whether a call may do what it asks for, and asks a person.
//
// A tool passes an [Ask] to a [Gate]: an action, such as edit, on one or more
// resources, such as paths. The Gate evaluates rules first. A call is bound by one or more
// sets of rules, such as the configured ones and those of its agent. A set is ordered, and
// its last matching rule decides for it. Over several sets and several resources deny
// beats ask beats allow, so that no set opens what another does not.
// If the rules leave the request open, the Gate passes it as a [Request] to an
// [Approver]: [Headless], which rejects it, a person at a [Terminal], or a [Queue]
// whose requests another part of the program answers. [Gate.Check] evaluates rules
// and approvals only. A person answers with a [Choice]. The answer "always" is stored
// as an [Approval], which allows the same agent the same request again, and which can
// expire and be revoked.
//
// A Terminal may share its device with a [LineEditor], which reads other input of the person
// while no question is open.
//
// A tool asks a person questions of its own with [Gate.AskQuestions]. The Gate passes them as
// a [QuestionRequest] to a [Questioner], which Headless, Terminal and Queue are too. The
// person answers each question with options or a text, leaves it unanswered, or dismisses
// all of them.
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
// The patterns are those of [domain.Match]; a backslash counts as a slash only in rules
// that ask or deny. A resource that begins with ~ or $HOME, alone or before a slash,
// begins with the home directory.
//
// # Promises
//
//   - A deny of any set of rules is never overridden, by another set, by an approval or
//     by a person.
//   - An approval serves only requests of the agent whose request was answered.
//   - An ask without a resource is an error, never a yes.
//   - The Recorder has recorded a request and its decision before the call acts
//     on them. A request that cannot be recorded is refused. An allow by rule has no
//     event of its own: [Allowances] store the rule until the end of the call. An
//     allow by approval has both events.
//   - An approval that makes a waiting request allowed answers that request.
//   - The Recorder has recorded questions before a person sees them, and their answers
//     or dismissal before the call continues.
//   - A refusal by a person, with feedback or without, refuses every request and dismisses
//     every question of the same session that waits. A dismissal does the same.
//   - An answer counts for the question at whose prompt it was typed. Input
//     from before that prompt, or for a question that was withdrawn, answers
//     nothing.
//   - A question shows the operation that it approves: the text of Ask.Preview with
//     its size, and the patterns that the answer "always" allows. The text is recorded.
//   - A call that is interrupted leaves no pending request or question. These stay on
//     record without a decision or an answer, and the end of the run closes them.
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
// [Gate.AskQuestions] returns the same, and [ErrBadQuestion] in place of ErrNoResource.
// [ErrBadRule] comes from ParseRules, [ErrBadGate] from NewGate, [ErrNotPending]
// from the answers to a Queue, [ErrInvalidValue] from parsing a Choice or an Authority and
// for an invalid answer of an Approver or a Questioner.
//
// The tool defines its resources and decides which questions it asks; the Config defines
// the rules of a call; the Recorder stores the events. The laws are in gate_test.go,
// sets_test.go, question_test.go and rules_test.go, an example is in example_test.go.
package permission
