// Package workspace reaches files under one root and nothing else.
//
// A [Root] is a directory. [Root.Resolve] makes a [Target] of a path that a
// model wrote: every symbolic link is followed first, so that a target has one
// canonical path whatever the path it was reached by. A relative
// path counts from the root. An absolute path outside the root is a target too,
// an external one: Target.External names the directory that a permission must
// be asked for before anything is done with it.
//
// A target can be looked at ([Target.Stat]), opened ([Target.Open]), listed
// ([Target.ReadDir]), walked ([Target.Enter]) and written ([Target.Write],
// [Target.Replace]), inside and outside the root by the same code: each works
// through an os.Root that holds the directory in question.
//
// # Promises
//
//   - A relative path that leaves the root, through .. or through a symbolic
//     link, is refused. A link that stays inside is followed.
//   - What is opened or written is what was resolved: a link that is put in the
//     way later leads nowhere.
//   - A file is replaced whole or not at all, keeps its mode, and is synced
//     before it takes the place of the one before. A crash can leave a file
//     named .ledger-write-N beside it.
//   - Writes to one canonical path through one Root happen one after another;
//     writes to distinct paths do not wait for each other.
//   - Of the replacements that expect the same content, one succeeds.
//   - Only regular files are opened and replaced: never a device or a pipe.
//
// # Concurrency
//
// A Root and its targets may be used by several goroutines. The package starts
// none. Two Roots do not serialise writes with each other; Replace still
// compares what it expects.
//
// # Errors
//
// [ErrRelativeEscape], [ErrLocationEscape], [ErrNotDirectory] and [ErrBadPath]
// come from resolving; [ErrNotRegular] from opening and writing;
// [ErrChanged] from Replace; [ErrTooLarge] from [Target.ReadAll]. What the
// system says, such as fs.ErrNotExist, is wrapped.
//
// Whether a target may be touched is the permission's affair. The laws are in
// workspace_test.go, an example in example_test.go.
package workspace
