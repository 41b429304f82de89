// Package jsonl publishes records to a file, one JSON object per line.
//
// A [Publisher] is a watermill Publisher. [Open] opens or creates the file of one
// consumer, and removes a partial line that a power cut left at its end. A line
// is, without the line breaks shown here,
//
//	{"id":"evt_…","position":"42","stream":"session-ses_…","revision":7,
//	 "kind":"CallSettled","version":1,"time":"2026-03-01T12:00:00.000001Z",
//	 "session":"ses_…","agent":"build","tool":"bash","topic":"ledger.session.CallSettled",
//	 "metadata":{…},"data":{…}}
//
// with session, agent, tool and metadata if the record has them. Data and metadata
// are unchanged, except that line ends between their values become spaces. Bytes
// that are not JSON are in data_base64 or metadata_base64 instead.
//
// # Promises
//
//   - Every record that Publish acknowledges is durable.
//   - Each record is in the file once, in the order of the first publication: a
//     record that is in the file is not written again.
//   - After another process truncates the file, new lines follow the remaining
//     whole lines. A file that is moved away or removed is recreated under its
//     name before the next acknowledgement.
//   - The file holds whole lines. A partial line at the end is removed before the
//     next write.
//   - A file with other contents is not changed.
//
// # Concurrency
//
// A Publisher is safe for concurrent use. Its mutex is held during writes and syncs. On
// Unix, a file lock excludes other processes. The package starts no goroutine.
//
// # Errors
//
// [ErrForeign] and [ErrInUse] come from Open. A failed write is a
// publish.ErrUnavailable: the Publisher truncates the partial write, and the relay
// retries. A closed Publisher returns [ErrClosed].
//
// Package publish decides which records are published and when. The promises are
// checked in jsonl_test.go and change_test.go.
package jsonl
