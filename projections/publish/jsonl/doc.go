// Package jsonl publishes records to a file, one JSON object on a line.
//
// A [File] is a Publisher of watermill. [Open] opens the file of one consumer,
// or makes it, and mends what a power cut left at its end. A line is
//
//	{"id":"evt_…","position":"42","stream":"session-ses_…","revision":7,
//	 "kind":"CallSettled","version":1,"time":"2026-03-01T12:00:00.000001Z",
//	 "session":"ses_…","agent":"build","tool":"bash","topic":"ledger.session.CallSettled",
//	 "metadata":{…},"data":{…}}
//
// on one line, with session, agent, tool and metadata where the record has them.
// Data and metadata are as written, but that an end of line between their values
// is not kept. What is no JSON is under data_base64 or metadata_base64 instead.
//
// # Promises
//
//   - What Publish acknowledges is durable.
//   - Each record is in the file once, and in the order in which it was
//     published first: one that is there is not written again.
//   - What others truncate is gone, and what comes follows the whole lines that are
//     left. A file that is moved away or removed is made anew under its name before
//     more is acknowledged.
//   - The file holds whole lines. Half of one, at the end, is cut off before
//     more is written.
//   - A file that holds something else is left as it is.
//
// # Concurrency
//
// A File may be used by several goroutines. Its lock is held while it writes and
// syncs. On Unix the file is locked against other processes. The package starts
// no goroutine.
//
// # Errors
//
// [ErrForeign] and [ErrInUse] come from Open. What the disk does not take is a
// publish.ErrUnavailable: what was written of it is cut off, and it is tried
// again. A closed File is [ErrClosed].
//
// When to publish what is the affair of package publish. The promises are
// checked in lines_test.go.
package jsonl
