// Package agents reads the agents that a session can run as.
//
// An [Agent] is a description, a system prompt and the limits of one role: its rules,
// the tools that it offers, its model and the number of its replies. [Load] reads agents
// from files, one agent NAME in each file NAME.md, and returns them as a [Set]. The
// built-in agents are files of the same form: build, which a person uses by default,
// plan, which reads and changes only its plan, and general, which a task uses.
//
//	---
//	description: Reviews a change and reports defects.
//	mode: subagent
//	rules:
//	  - deny edit *
//	  - deny bash *
//	  - allow bash git diff *
//	---
//	You review the change that the prompt names.
//
// A file in the project replaces a file of the user, which replaces a built-in agent. The
// rules of an agent and the configured rules are evaluated apart ([Agent.RuleSets]): deny
// beats ask, and ask beats allow. The rules of an agent begin with allow * *, so a file
// needs only the rules that restrict.
//
// # Promises
//
//   - No agent file allows what the configured rules deny or ask about.
//   - A project file that replaces an agent keeps the rule sets of the replaced agent, and
//     its list of tools if it has one. A cloned project cannot make plan change files.
//   - An invalid file is refused with a reason. Other agents are not affected.
//   - The name of a refused file is refused, also if another file or a built-in agent has
//     the name. Otherwise a mistake in a restricted agent would bring back the agent
//     without the restriction.
//   - A symbolic link in a project does not lead out of it.
//   - Load is bounded: by entries and bytes of a folder, and by bytes of a file.
//
// # Concurrency
//
// A Set is immutable and safe for concurrent use. Load starts no goroutine. The next Load
// reads a changed file.
//
// # Errors
//
// Parse returns an error of package frontmatter, [Set.Agent] an [ErrUnknownAgent] or an
// [ErrRefusedAgent].
//
// Package permission evaluates the rules. The engine selects the agent of a turn. The
// laws are in agents_test.go, an example is in example_test.go.
package agents
