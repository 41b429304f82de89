// Package indexing runs the commands over the index of a store: sql and index, and gives the
// other reading commands the snapshot from which they answer.
//
// [Answerer.Read] calls a command with a snapshot of the current index.
// [SQL] runs a statement over the index, after the index has read the rest of the log.
// [Status] prints how far the index is, and [Rebuild] fills it anew. The index is in the
// first folder of stores.Opener.IndexFolders that can be written, or for an Answerer in
// memory if there is none.
//
// # Promises
//
//   - A statement only reads. An index that SQLite finds damaged is rebuilt, and the
//     statement runs again, if none of its rows is printed yet.
//   - A command that answers from a snapshot of a damaged index runs again after a rebuild.
//   - With NoWait, SQL and an Answerer change no file. They say on the standard error how far behind the
//     log the answer is.
//   - JSON, JSON lines and CSV are written row by row. A table for people has at most
//     1,000 rows, and SQL says if there are more.
//
// # Concurrency
//
// The functions work on the goroutine of their caller.
//
// # Errors
//
// A statement that SQLite refuses is a usage fault. An absent index is a fault with exit code
// 4. Other errors are those of the store and of package index.
//
// Package projections/index has the schema and fills it.
package indexing
