// Package workspace reaches files under one root and nothing else.
//
// A [Root] is a directory. [Root.Resolve] makes a [ResolvedPath] of a path that a
// model wrote: every symbolic link is followed first, so that a target has one
// canonical path whatever the path it was reached by. A relative
// path counts from the root. An absolute path outside the root is a target too,
// an external one: Target.External names the directory that a permission must
// be asked for before anything is done with it.
//
// [ResolvedPath.Acquire] opens a target and reads nothing: it returns a [Handle] on the
// directory and the file that the path leads to now, reached one name at a time
// without following a symbolic link. A permission is asked for while the Handle is
// held. The file is then read through it ([Handle.Open], [Handle.ReadAll]), listed
// ([Handle.ReadDir]), searched ([Handle.Tree]) or written ([Handle.Write],
// [Handle.Replace]). Inside and outside the root the same code does it.
//
// # Promises
//
//   - A relative path that leaves the root, through .. or through a symbolic
//     link, is refused. A link that stays inside is followed when the path is
//     resolved.
//   - After that no link is followed. Acquire, Handle.Write, Handle.Replace and
//     Handle.Verify return an ErrChanged if a link, another directory or another
//     file is on the way to the target by then, or if the directory of the
//     workspace itself was replaced. A Handle reads the file that it found.
//   - A file is replaced as a whole or not at all, and synced before it takes the
//     place of the old one, in the directory that was opened. A crash can leave a
//     file named .ledger-write-N there. The new file has the owner, the group, the
//     mode with setuid, setgid and sticky, and on Linux the access control list
//     and the other extended attributes of the old one.
//   - A file with several names (hard links) is written itself, so that all names
//     keep leading to it. So is a file whose owner or attributes a new one cannot
//     have, or in whose directory no file can be created. Such a write is not
//     atomic: a reader can see a part of it, and so can everybody after a crash.
//     A file that grows is extended first, so that a full disk costs no content.
//   - Writes to one canonical path through one Root happen one after another;
//     writes to distinct paths do not wait for each other.
//   - Of the replacements that expect the same content, one succeeds.
//   - Only regular files are opened and written: never a device or a pipe. A file
//     that makes its readers wait, such as the log of the kernel, is given up
//     after two seconds.
//
// # Concurrency
//
// A Root, its targets and a [Tree] may be used by several goroutines; a Handle by
// one at a time. The package starts none. Two Roots do not serialise writes with
// each other; Replace still compares what it expects. Between the last check of a
// path and the rename that follows it, another process can still put a file in the
// place of the target, in the same directory; the rename replaces that file.
//
// # Errors
//
// [ErrRelativeEscape], [ErrLocationEscape], [ErrNotDirectory] and [ErrBadPath]
// come from resolving; [ErrNotRegular] from opening and writing; [ErrChanged] from
// Acquire and from a Handle; [ErrTooLarge] from ReadAll and ReadDir. What the
// system says, such as fs.ErrNotExist, is wrapped.
//
// Whether a target may be touched is the permission's affair. The laws are in
// workspace_test.go, an example in example_test.go.
package workspace
