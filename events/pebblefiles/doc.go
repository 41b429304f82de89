// Package pebblefiles checks, seals, locks and protects the files of a Pebble
// database.
//
// [Check] reads all files of a closed database and yields each [Damage] with its file
// and offset. [ReadOnly] is a file system that refuses changes. [ReportDamages] is a
// file system that returns a Damage in place of damaged bytes, so that a reader can
// continue with the other bytes.
//
// Pebble verifies the blocks of tables that it reads. But it takes an unreadable end
// of a log or a manifest for the result of a power cut, and ignores all bytes after
// it. A [Seal] distinguishes damage from a power cut. It is written when a database
// is closed, and lists the files with their checksums and a number of the caller.
// [Unseal] compares the files with it before the database is opened for writing, and
// [Intact] before it is opened for reading. The seal of a database whose process was
// killed lists no files. Then a [Replay] finds each [Tear], an unreadable place that
// whole records follow, in the logs and manifests that Pebble reads.
//
// A [FailStopFS] is the file system that a database is opened with. It stops at the
// first failed write. [Exhausted] recognizes a full disk. A [Resumer] waits for [Room]
// and reopens the database. A [HealthLog] counts the failures of background work.
// [Snapshot] copies an open database into a folder. A [Pinned] gives a reader
// an unchanging view of a database while writers change the folder. [ReadPinned]
// opens one, under the locks of [Disk], which readers share.
//
// # Promises
//
//   - Check or Unseal finds a flipped bit in any file of a sealed database, and a
//     table that was replaced by another table with the same name and length.
//   - Check, ReadOnly and Pinned change no file.
//   - A Pinned reads the database as of one time. Writers after Release do not change
//     its view.
//   - A seal lists files only until the database is opened for writing. Its number
//     stays until the next seal.
//   - After the first failed write no change reaches the storage of a FailStopFS. A
//     failed sync makes the failure permanent.
//
// # Concurrency
//
// FailStopFS and HealthLog are safe for concurrent use. The functions may be called
// concurrently on folders that no process writes to. Only [FailStopFS.Context] and
// [HealthLog.Watch] start goroutines. The owner of a database calls [Resumer.Run] on a
// goroutine of its own.
//
// # Errors
//
// Every Damage is an [ErrDamaged]. [ErrLocked] means that a writer has the lock,
// [ErrReading] that readers have it. [ErrNewerVersion] means that a newer program
// wrote the files. [ErrFailStop] is the error of an operation that a FailStopFS
// refuses after a failure. The read-only file systems return EROFS for a change.
//
// The packages that own a database interpret its values. The promises are checked in
// files_test.go and failstop_test.go. The tests of packages embedded and outputs also
// flip bits and cut the power.
package pebblefiles
