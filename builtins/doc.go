// Package builtins makes the tools that ship: read, write, edit, glob, grep and
// bash.
//
// [Tools] returns them under their names from a [Config]: the files they reach
// are those of a workspace.Root, what they may do is asked of a [Permission],
// and complete outputs of other calls are opened through [OutputOpener]. Each tool
// lies in a file of its own, with the words that a model reads of it in a .md
// beside it.
//
// # Promises
//
//   - A tool asks before its first side effect: external_directory, if the path
//     lies outside the workspace, and then the action that guards it. write and
//     edit read the file before they ask only to show a person its diff. A call
//     that a rule decides reads nothing before, and a refusal tells the model
//     nothing about the file.
//   - read, write, edit, glob and grep open the target before they ask. A link,
//     file or directory that is put in its place meanwhile is refused. So does
//     bash with the directory that it runs in; on Linux the command starts in the
//     directory that was opened.
//   - glob and grep leave out files that a rule denies to read, and those that
//     rules set apart to be asked about unless that is allowed, and count them
//     whatever they hold.
//   - A refusal is returned as it was given, so that it differs from a failure.
//   - Every command in a command line that bash is given is asked about as a
//     resource of its own, as is each file that it is redirected to or from.
//     A line that the shell and the parser may read differently is asked about
//     as a whole besides, under a name that no rule for one of its commands
//     matches. The list of resources is never empty.
//   - Rules that ask or deny see a command also behind a path and behind the
//     programs that run others, such as env, xargs and sudo. Rules that allow
//     see it as it is written. A list of denied commands is no fence: a program
//     can run another without naming it.
//   - An answer for always to bash allows the same commands again, or the prefix
//     of a command that runs no other program.
//   - A command gets the environment variables that [InheritedVariables] names, and those
//     of its Config, and no other.
//   - The new text of an edit is literal. A byte order mark and the line ends of
//     a file survive an edit. An edit that finds its file changed leaves it so.
//   - A page that read returns fits in the default limits of an output. It is
//     found without holding what comes before it in memory.
//   - glob and grep find the same, in the same order, with ripgrep and without.
//     They list no file that a .gitignore, .ignore or .rgignore of the workspace
//     excludes, in a git repository or not, and none outside the directory that
//     they search. A directory that is named is searched, excluded or not.
//   - What a command wrote before it was ended is not lost, and what was lost
//     of an output is counted.
//
// # Concurrency
//
// The tools may be called by several goroutines at once. The package starts
// none, but bash has a command run by package process.
//
// # Errors
//
// [ErrBadConfig] comes from Tools. A tool returns a *domain.Failure for the
// model, a *domain.Denied or *domain.Declined as Permission returned it, the
// cause of its context, or what broke in Permission or Outputs. An
// implementation of Outputs returns [ErrAbsent] or a *[Pruned].
//
// Who decides is the permission's affair; output that is too large is the
// registry's. The laws are in the _test.go beside each tool, an example in
// example_test.go.
package builtins
