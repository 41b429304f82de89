// Package filesearch lists the files below a directory and searches files for a regular
// expression.
//
// A [Lister] lists the files of an open directory that no ignore file excludes, as a
// [Listing]. A [Glob] matches paths of a Listing; [ParseGlob] makes it. An [Expression] is
// a regular expression; [CompileExpression] makes it. A [LineScanner] searches one file
// after the other for an Expression and collects each matching line as a [Match].
//
// # Promises
//
//   - List returns the same files with and without ripgrep. The .gitignore, .ignore and
//     .rgignore files of the workspace apply, inside and outside a git repository. The
//     ignore files above the directory apply too, unless they exclude the directory
//     itself. List omits every .git.
//   - No symbolic link is followed, and only regular files are listed.
//   - A directory that cannot be read, and one deeper than 256 directories, is reported
//     in the Listing. A file that cannot be read is reported by the LineScanner.
//   - Memory is bounded: by the limit of all names for a Listing, by one window of a line
//     for a scan, and by the limits of NewLineScanner for the matches. A match of at most
//     1 KiB is found wherever it lies in a line.
//   - The work between two checks of the context is bounded, whatever the expression and
//     the line are.
//   - A file with a NUL in its first 4 KiB has no matches.
//
// # Concurrency
//
// A Lister, a Glob and an Expression are safe for concurrent use. A LineScanner belongs to
// one goroutine. The package starts no goroutine of its own; it runs ripgrep as a child
// process and waits for it.
//
// # Errors
//
// ParseGlob returns [ErrBadPattern]. CompileExpression returns an error that names the
// limit or the syntax error. List and Scan return workspace.ErrTooLarge for a file over the
// limits, and the cause of an ended context. Errors of the system are wrapped.
//
// Package builtins asks for permission and omits the files that a call may not read. The
// laws are in the _test.go file of each part; an example is in example_test.go.
package filesearch
