// Package storedir creates, inspects and locks the folder of an embedded store.
//
// A [Dir] is such a folder. It has four entries: FORMAT with the version of the folder;
// lock, the lock file; owner with an [Owner] as JSON while a process has the store open;
// and log, the database. [Open] creates or inspects a folder, locks it and writes the
// owner file; [Dir.Close] removes the owner file and unlocks it. [Holder] reports which
// process has a folder open.
//
// FORMAT is written last, after the database is durable. A folder with FORMAT.new and
// without FORMAT is a store whose creation has not finished; it has no records. A folder
// with RESTORING and without FORMAT is the target of a restore that has not finished.
// [Dir.Inspect] distinguishes these folders, a store, and a folder with other files. It
// changes no file.
//
// # Promises
//
//   - A folder that is not a store, is incomplete or has a newer format stays unchanged.
//   - If a kill or a power cut interrupts the creation of a store, the next Open creates
//     it again.
//   - A store whose FORMAT is lost keeps its database.
//   - At most one process has a folder open for writing.
//
// # Concurrency
//
// A Dir belongs to the goroutine that opened it, except for [Dir.PathOf]. The functions may
// be called concurrently.
//
// # Errors
//
// Open and Inspect return events.ErrNotAStore, events.ErrNewerFormat and [ErrIncomplete].
// Open returns events.ErrInUse if another process writes, or if readers keep the lock
// for pebblefiles.LockWait.
//
// Package layout defines the keys in the database. The tests of package embedded check
// the promises: folder_test.go, open_test.go and killed_test.go.
package storedir
