// Package index fills a SQLite database from a log, so that queries read only the rows
// that they return.
//
// An [Index] is a folder with one database. [Index.CatchUp] reads the events that the
// index does not have yet, in batches; each batch is one transaction, with the position
// and the ID of its last event. [Index.Rebuild] fills a new database and replaces the old
// one. [Index.Query] runs a statement that only reads. [Index.Snapshot] answers the questions
// of the commands: lists by conditions and words, shortened IDs, paths, the registry at a moment, the offer of a turn. [Index.Status] compares the index
// with its log, and [Compare] compares every row with those of a rebuild.
//
// The schema is in schema.sql, and docs/schema.md describes it. It is meant to be read by
// other programs too: ledger.db in the folder is a symbolic link to the database, which
// any SQLite from 3.37 on reads. The index bounds what it copies: it has the first 8 KiB of a
// text for search and the first 256 bytes for lists. Each row names its session with a
// revision, or its position, by which the log has the whole event.
//
// The rules of a call and of a session are those of projections/calls. The index holds
// the calls and sessions of the latest batches in memory, and loads others when an event
// names them. Registrations are rows with the span of positions in which they are in
// effect. A Snapshot folds those that a question needs by projections/catalog, and compares
// offers by projections/staleness.
//
// # Promises
//
//   - An index filled in one pass, in batches of any size, with restarts, and rebuilt has
//     the same rows.
//   - The index is never believed if it is of another log, ahead of its log, of another
//     version of the schema, or reported as damaged by SQLite: CatchUp replaces it.
//   - The death of a process at any instant leaves an index that continues from its last
//     transaction. A database that was not complete is removed by the next fill. Deleting the
//     folder loses nothing.
//   - Programs that read while another process writes see the rows of whole batches.
//   - An event of an unknown kind is in unknown_events. A program that knows its kind
//     replaces the index.
//   - A statement of Query changes no file and reads no other database.
//
// CatchUp believes an index whose first and last events are in the log at their places: an
// append never writes the ID of an older event again. SQLite does not notice every changed
// byte of a file. Compare reads everything and finds each difference that changes an answer.
//
// # Concurrency
//
// An Index may be used by several goroutines and processes. CatchUp and Rebuild hold a
// lock of the folder and wait for it; readers take no lock. A [Rows] and a
// [Snapshot] belong to one goroutine each. CatchUp reads events ahead on other goroutines, which end before it returns.
//
// # Errors
//
// [ErrNoIndex]: there is no index to read. [ErrStatement]: SQLite refuses a statement.
// [ErrNoText]: it reads the full text, which the index does not have. [ErrNoWord], [ErrLongPhrase]: a text to search has no word, or is too long. [ErrManyPaths]: a name fits too many paths. [ErrUnwritable]: the
// folder takes no more bytes; [InMemory] needs none. [ErrDamagedIndex]: SQLite reports
// damage, or the file is no database. All other errors come from the log or the file
// system.
//
// Package where parses the conditions of lists, projections/calls has the rules of calls,
// cmd/ledger/indexing the commands.
package index
