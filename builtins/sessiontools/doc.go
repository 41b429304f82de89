// Package sessiontools makes the built-in tools that act on the session of a call:
// todowrite, todoread, question, task, batch, plan_enter, plan_exit and invalid.
//
// [Tools] makes them from a [Config] and returns them by name. The tools act through a
// [CallSession]: the list of tasks, the agent of the next turn, the calls of the reply, the
// sessions of subagents and the questions to the person. A [Task] is the work that the
// tool task gives to a subagent, and a [TaskResult] its end. Each tool is in a file of its
// own, and the description that the model reads is in the .md file of the same name.
//
// # Promises
//
//   - A tool asks for permission before it changes the session. batch and invalid ask for
//     no permission: each call of a batch asks for its own, and invalid changes nothing.
//   - A refusal of the [permission.Asserter] or the CallSession is returned unchanged, so that
//     it differs from a failure of the tool.
//   - A call of todowrite that is refused leaves the list unchanged.
//   - The description of task lists only the agents that no rule of the turn denies.
//   - A batch of no calls, of more than 25 calls, or with a batch among its calls runs no
//     call. Otherwise each of its calls is settled like a call of the reply, and the result
//     has the result of each, in order.
//   - If a person declines a call of a batch without feedback, the batch is declined after
//     all its calls have ended, so that the run stops as after any other such call.
//   - plan_enter and plan_exit change the agent only if the person answers yes.
//
// # Concurrency
//
// The tools may be called by several goroutines at once. The package starts no goroutine.
//
// # Errors
//
// Tools returns [ErrBadConfig]. A tool returns a *domain.Failure for the model, a
// *domain.Denied or *domain.Declined as Permission or Session returned it, the cause of
// its context, or an error of Permission or CallSession for the operator.
//
// The engine implements CallSession; package permission decides requests and asks the
// person. The laws are in the _test.go file of each tool; an example is in
// example_test.go.
package sessiontools
