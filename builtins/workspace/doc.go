// Package workspace opens, reads and writes files under one root directory.
//
// A [Root] is an open directory. [Root.Resolve] converts a path that a model wrote
// into a [ResolvedPath]: it follows every symbolic link, so that a file has one
// canonical path. A relative path starts at the root. An absolute path outside the
// root is an external one: ResolvedPath.External names the directory for which a
// tool must ask for permission first.
//
// [ResolvedPath.Acquire] opens the path one name at a time, without following a
// symbolic link, and returns a [Handle]. It does not read content. A tool asks for permission
// while it holds the Handle, and then reads the file ([Handle.Open],
// [Handle.ReadAll]), lists it ([Handle.ReadDir]), searches it ([Handle.Tree]),
// writes it ([Handle.Write], [Handle.Replace]), moves it ([Handle.Move]) or removes it
// ([Handle.Remove]).
//
// # Promises
//
//   - Resolve rejects a relative path that leaves the root, through .. or through a
//     symbolic link. It follows a link that stays inside.
//   - Later no link is followed. Acquire and the methods of a Handle that write, move,
//     remove or verify return ErrChanged if a link, another directory or another file is
//     on the path by then, or if the directory of the root was replaced. A Handle reads
//     the file that it opened.
//   - A file is replaced atomically: the new file is synced before it is renamed to
//     the path, in the directory that was opened. A crash can leave a file named
//     .ledger-write-N there. The new file has the owner, the group and the mode of
//     the old one, with setuid, setgid and sticky, and on Linux its access control
//     list and other extended attributes.
//   - A file with several hard links is overwritten in place, so that all names keep
//     the same content. A file is also overwritten in place if a new file cannot
//     have its owner or attributes, or cannot be created in its directory. Such a
//     write is not atomic: readers can see a part of it, also after a crash. The
//     file is extended first, so that a full disk does not lose the old content.
//   - Writes, moves and removals of one canonical path through one Root are serialized.
//     Those of different paths run concurrently.
//   - If several replacements, moves or removals expect the same content, one succeeds.
//   - A file is moved with its owner, mode and attributes, and never over another file.
//     At every moment, also of a crash, the old or the new path has its content.
//   - Only regular files are opened and written, never a device or a pipe. A read of
//     a file without data, such as the log of the kernel, fails after two seconds.
//
// # Concurrency
//
// A Root, its paths and a [Tree] are safe for concurrent use. A Handle belongs to one
// goroutine at a time. The package starts no goroutine. Two Roots do not serialize
// writes with each other; Replace, Move and Remove compare the content in any case.
// Between the last check of a path and the rename or the removal, another process can
// still put a file at the path; that file is replaced or removed.
//
// # Errors
//
// Resolve returns [ErrRelativeEscape], [ErrLocationEscape], [ErrNotDirectory] and
// [ErrBadPath]. Opening and writing return [ErrNotRegular], Acquire and a Handle
// [ErrChanged], Move to an existing file fs.ErrExist, and ReadAll and ReadDir
// [ErrTooLarge]. Errors of the system, such as fs.ErrNotExist, are wrapped.
//
// Package permission decides which files may be used. The laws are in
// workspace_test.go and beside each file, an example is in example_test.go.
package workspace
