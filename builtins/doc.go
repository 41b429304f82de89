// Package builtins makes the built-in tools: read, write, edit, apply_patch, glob,
// grep and bash.
//
// [Tools] makes them from a [Config] and returns them by name. The tools reach
// files through a workspace.Root, ask a [permission.Evaluator] before they act, and read
// stored outputs of other calls through an [OutputOpener]. Each tool is in a
// file of its own, and the description that the model reads is in the .md file
// of the same name.
//
// # Promises
//
//   - A tool asks for permission before its first side effect: first for
//     external_directory if the path lies outside the workspace, then for its own
//     action. write, edit and apply_patch read files earlier only to show a person the
//     diff. If a rule decides the request, no file is read before the decision, so
//     a refusal does not depend on content.
//   - read, write, edit, apply_patch, glob and grep open the path before they ask. If
//     a link, file or directory takes its place while a person decides, the call fails.
//     The same holds for the working directory of bash; on Linux the command runs
//     in the directory that was opened.
//   - read says that a path does not exist before it asks, and then suggests near names.
//     It suggests only files that rules or approvals allow the call to read.
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
//   - edit inserts the new text literally. edit and write keep the byte order mark,
//     the line ends and the mode of the file. If the file changed in the meantime,
//     edit fails and leaves the file unchanged.
//   - apply_patch prepares all changes in memory before it changes the first file. It adds
//     and moves files to free paths only, and refuses a link, a file that is not UTF-8
//     text, and a patch that names a file twice. If a file changed since it was prepared,
//     nothing is changed, unless another process changed the file after the last check:
//     then the failure lists the changes before and after it. An interruption does not
//     end a patch that has changed its first file. Of several calls with patches of the
//     same content, one succeeds.
//   - edit, write and apply_patch fail and leave the file unchanged if its content is
//     not the one that the session last read or wrote. A file that the session never read or wrote
//     may be changed. The versions of a session survive a restart with
//     [Config].FileVersions; without it, and for a session that 1,024 other sessions
//     followed, the tools know the calls of this process only. bash neither reads nor
//     writes in this sense. If calls of one message run concurrently on one file, their
//     order is not defined; the session may then have to read the file again.
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
// The tools may be called by several goroutines at once. Calls of one session that change
// files wait for each other after permission was given. The package starts no
// goroutine; bash runs commands with package process, which does.
//
// # Errors
//
// Tools returns [ErrBadConfig]. A tool returns a *domain.Failure for the model, a
// *domain.Denied or *domain.Declined as Permission returned it, the cause of its
// context, or an error of Permission, OutputOpener or Config.FileVersions for the operator.
// Implementations of OutputOpener return [ErrAbsent] or a *[Pruned].
//
// Package permission decides requests, package filesearch searches for glob and grep,
// package media decodes images for read, and the registry stores output over the
// limits. The laws are in the _test.go file of each tool, an example is in
// example_test.go.
package builtins
