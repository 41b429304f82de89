// Package shellcommand parses a shell command line into the commands and files
// that permission rules are asked about.
//
// [Analyze] returns an [Analysis]. Its resources are the simple commands of the
// line, with their arguments, and the files of its redirections. A command that
// runs another command, such as env, sudo, xargs or sh -c, yields both. Each
// resource can have further spellings: the same command without its directory,
// without the options of git, or behind a wrapper whose options the package does
// not know. An Analysis also holds the patterns that an approval for later calls
// saves, and the absolute paths that the line names. [LiteralPattern] makes a
// pattern of a resource.
//
// A line is uncertain if the shell and the parser may read it differently: text
// with control characters, invalid syntax, functions, an unknown shell, a command
// that changes how later commands are read. The resources of an uncertain line
// include the line as a whole, as "SHELL -c LINE", and no pattern for one of its
// commands matches that text.
//
// # Promises
//
//   - An Analysis has at least one resource and no empty one.
//   - Every program that the shell runs, and every file that it opens, is covered
//     by a resource, or the line is uncertain. This holds for the shell itself and
//     not for programs that run further programs without naming them.
//   - Rules that ask or deny also match the spellings. Rules that allow match the
//     resource only, so that a spelling never widens an allowance.
//   - Each resource matches one of the save patterns. The pattern is the resource
//     itself, or the prefix of a command that runs no other program.
//   - Time and memory are bounded: lines over 128 KiB, nesting deeper than 8 levels
//     and resources over 1 MiB together make a line uncertain.
//
// # Concurrency
//
// All functions may be called by several goroutines at once. The package starts
// no goroutine.
//
// # Errors
//
// The package returns no errors: a line that cannot be parsed is uncertain. [Dialect] reads the
// file system to resolve symbolic links, and treats an error as an unknown shell.
//
// The package decides no permission: package builtins passes the resources to
// its permission. The promises are checked against real shells in shells_test.go.
package shellcommand
