// Package backup makes and restores backups of an embedded store.
//
// A backup is a folder with the files of a store, each named by its SHA-256, and a
// [Manifest] that lists them with their paths. [Make] takes a snapshot of a [Source],
// which is an open store, verifies it and copies the files that the folder does not have
// yet; [Written] counts them. A [Component] is other data that belongs to the store, such
// as the outputs to which records refer; a [Referenced] component reports data that is
// missing. [Restore] makes a store of a backup.
//
// # Promises
//
//   - A backup is of one time. Each component has the data to which the records of the
//     backup refer, except the data that the manifest lists as missing.
//   - Make verifies a backup before it replaces an earlier one, and an error, a kill or a
//     power cut leaves the earlier one intact.
//   - Restore makes the same records, or returns an error and leaves no store. It removes
//     no file that another program wrote.
//
// # Concurrency
//
// Make and Restore run on the goroutine of their caller. Locks exclude a second Make into
// the same folder, and another process from the folder of a Restore.
//
// # Errors
//
// [ErrNotABackup] means that a folder is no backup, [ErrNotEmpty] that Restore would mix
// files, and [ErrBadBackup] that a backup is damaged. storedir.ErrIncomplete means that a
// new backup would have less than the earlier one in its folder. A folder or a store in
// use is an events.ErrInUse.
//
// Package embedded provides the Source. The tests are backup_test.go and restore_test.go
// of package embedded; docs/formats.md draws the folder.
package backup
