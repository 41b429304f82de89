// Package layout defines the keys and values in the database of an embedded store.
//
// A record is stored under its sequence, which counts all records from 1 without gaps;
// [EntryKey] makes the key and [AppendRecord] the value. An index entry maps a stream and
// a revision ([IndexKey]) to a sequence. A checkpoint is stored under its name
// ([CheckpointKey]). Numbers are big-endian:
//
//	e/ sequence(8)              → record
//	s/ stream 0x00 revision(8)  → sequence(8)
//	c/ name                     → checkpoint
//
//	record:  format(1)=1  version(2)  len stream(2)  len kind(2)
//	         revision(8)  time(8, µs of Unix, signed)  ID(16)
//	         len data(4)  len metadata(4)
//	         stream  kind  data  metadata  sum(4)
//
// The sum is the CRC-32C of all bytes before it and the sequence, so a record under the
// key of another one is damaged.
//
// [ParseRecord] returns a value as a [RawRecord], whose fields can be read in place, and
// [Verify] compares it with its sum; [RecordAt] does both at an iterator. [Decode] returns
// an events.Entry. [OpenReadOnly], [Records] and [ReadDigest] read a database that no
// process writes to: that of a closed store, or a copy in a backup.
//
// # Promises
//
//   - Decode and Verify accept exactly the values that AppendRecord and Sum made for the
//     same sequence.
//   - ReadDigest and Records return an error for a damaged or missing record, and change
//     no file.
//
// # Concurrency
//
// The functions may be called concurrently. An [Interner] and an iterator belong to one
// goroutine.
//
// # Errors
//
// A value or a file that was changed after it was written is an events.ErrDamaged;
// [Damaged] names the position.
//
// Package embedded writes the database and checks in its tests that a changed byte of a
// value is found. docs/formats.md describes the whole folder.
package layout
