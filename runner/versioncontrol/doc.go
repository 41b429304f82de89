// Package versioncontrol reads the state of the working copy in a folder.
//
// [Read] returns the checked-out commit and branch of a git working copy, and whether its files
// differ from the commit. It runs the program git, and never fails: without git, without a
// working copy, or if git gives no usable answer in time, the state or a part of it is absent.
//
// # Promises
//
//   - Read returns within [Timeout] and a grace period of a fifth of a second.
//   - A working copy, its configuration and its submodules run no program: no hook, filter, file
//     system monitor, pager, credential helper or transport. A content filter would change what is
//     compared, so a file with a filter counts as changed if its size or time changed.
//   - Read writes no file, takes no lock of the working copy, and reaches no network.
//
// # Concurrency
//
// Read may be called by several goroutines at once.
//
// The laws are in git_test.go.
package versioncontrol
