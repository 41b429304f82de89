// Package pebblefiles reads the files of a Pebble database as they lie, and says which are damaged.
//
// [Check] reads every file of a closed database from its beginning to its end
// and yields each [Damage], with its place in the file. [ReadOnly] is a file
// system through which a database is opened and nothing is changed; [ReportDamages] is
// one that answers a read of what is damaged with the Damage, so that a reader
// can go on with what is whole.
//
// Pebble finds damage in what it reads again, and takes the end of a log or of a
// manifest that it cannot read for one that a power cut tore, as it may well be.
// A [Seal] tells the two apart: it is written when a database is closed in order
// and says what then lay in the folder. [Unseal] compares it before the database is
// opened, and then keeps only its number. Where no seal names a file, a [Replay] finds
// each [Tear] in the logs and manifests that Pebble reads to open a database.
// [Snapshot] copies an open database into a folder. A [FailStopFS] is the file system that a
// database is opened with: it stops at the first write that fails. A [Pinned] shows a reader a
// database as it was at one moment, also while a writer changes the folder afterwards;
// [Disk] has the lock that readers share while they open it. [Exhausted] knows the
// errors of a full disk; [AwaitRoom] and [Room] wait until a database whose disk was
// full can be opened again.
//
// # Promises
//
//   - A bit that flipped in a file of a sealed database is found by Check or by
//     Unseal.
//   - Check, ReadOnly and a Pinned change nothing.
//   - What is read through a Pinned is of one moment, whatever a writer does once
//     it was released.
//   - A seal names files only while the database is as it was when it was
//     sealed, or damaged. Its number stays until the next one.
//   - A table in the place of another of its name and length is found by Check
//     and by Unseal.
//
// # Concurrency
//
// The functions may be used by several goroutines at once, on folders that
// nobody else writes to. Only [FailStopFS.Context] starts a goroutine.
//
// # Errors
//
// [ErrDamaged] is what every Damage is. [ErrLocked] says that a writer has a lock,
// [ErrRead] that readers have it. [ErrFailStop] is the error of an operation that a
// FailStopFS refuses after an earlier one failed. The file systems return EROFS for what
// would change something.
//
// What the values in a database mean is left to the packages that own them. The
// promises are checked in files_test.go, and by the flipped-bit test of package
// embedded.
package pebblefiles
