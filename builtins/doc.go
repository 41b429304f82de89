// Package builtins makes the built-in tools: read, write, edit, glob, grep and
// bash.
//
// [Tools] makes them from a [Config] and returns them by name. The tools reach
// files through a workspace.Root, ask a [Permission] before they act, and read
// stored outputs of other calls through an [OutputOpener]. Each tool is in a
// file of its own, and the description that the model reads is in the .md file
// of the same name.
//
// # Promises
//
//   - A tool asks for permission before its first side effect: first for
//     external_directory if the path lies outside the workspace, then for its own
//     action. write and edit read the file earlier only to show a person the diff.
//     If a rule decides the request, the file is not read before the decision, so
//     a refusal does not depend on its content.
//   - read, write, edit, glob and grep open the path before they ask. If a link,
//     file or directory takes its place while a person decides, the call fails.
//     The same holds for the working directory of bash; on Linux the command runs
//     in the directory that was opened.
//   - glob and grep omit files that a rule denies to read, and files that need a
//     permission which was not given. They count these files without reading them.
//   - A refusal of the Permission is returned unchanged, so that it differs from a
//     failure of the tool.
//   - bash asks about every command in its command line, and about every file of
//     a redirection, as a resource of its own. See package shellcommand for lines
//     that cannot be parsed, and for programs that run other programs. A list of
//     denied commands is not a sandbox: a program can run another program without
//     naming it.
//   - The answer "always" to bash allows the same commands again, or the prefix of
//     a command that runs no other program.
//   - A command gets the environment variables in [InheritedVariables] and in its
//     Config, and no others.
//   - edit inserts the new text literally. It keeps the byte order mark and the
//     line ends of the file. If the file changed in the meantime, edit fails and
//     leaves the file unchanged.
//   - A page that read returns fits in the default limits of an output. Memory is
//     bounded by one page, wherever it lies in the file.
//   - glob and grep return the same results in the same order with and without
//     ripgrep. They omit files that a .gitignore, .ignore or .rgignore in the
//     workspace excludes, inside and outside a git repository. The directory that
//     a call names is searched even if it is excluded.
//   - The output of a command that was ended by a timeout or an interruption is
//     kept. Lost bytes are counted.
//
// # Concurrency
//
// The tools may be called by several goroutines at once. The package starts no
// goroutine; bash runs commands with package process, which does.
//
// # Errors
//
// Tools returns [ErrBadConfig]. A tool returns a *domain.Failure for the model, a
// *domain.Denied or *domain.Declined as Permission returned it, the cause of its
// context, or an error of Permission or OutputOpener for the operator.
// Implementations of OutputOpener return [ErrAbsent] or a *[Pruned].
//
// Package permission decides requests, and the registry stores output over the
// limits. The laws are in the _test.go file of each tool, an example is in
// example_test.go.
package builtins
