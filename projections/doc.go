// Package projections folds the events of a ledger into state.
//
// To fold is to compute a state from events by applying them one after the other. A
// [Projection] is a pure fold: an initial state and a function from a state and
// one more event to the next state. [Fold] applies it to a sequence: the whole
// log, one stream, or the log up to a position, which gives the state as of
// that position. A projection selects the events that it reads; a view skips the
// others.
//
// A [View] keeps a state current while the log grows. [View.Run] follows the log.
// [View.Refresh] folds to the present end of the log and returns. [View.Rebuild]
// folds from the beginning to the present end. [View.Read] reads the state, and
// [View.Await] waits until the view has folded an event. With [Checkpoints], a new
// view continues from the state that an earlier view saved. A checkpoint has the name
// of its projection. It is a line of JSON, followed by the state as [Pack] encodes
// it:
//
//	{"projection": "calls", "version": 2,
//	 "position": "42", "stream": "session-ses_…", "revision": 7, "event": "evt_…",
//	 "folded": 40, "kinds": 2596069104, "crc32c": 305419896}
//
// Position, stream, revision and event identify an event of the log; all events
// through it were folded or skipped. Folded is the number of folded events, kinds
// the [events.KindsSum] of the program that folded them, and crc32c the checksum of
// the state. A program that knows other kinds of events folds the log again.
//
// # Promises
//
//   - Folding in one pass, in two, from a checkpoint and from the beginning gives
//     the same state.
//   - A view ignores a checkpoint of another projection or version, of a program
//     with other kinds of events, with damage, or whose event is not at its
//     position in this log. It then folds from the beginning.
//   - A failed save of a checkpoint does not affect the state.
//   - Saving takes about a twentieth of the time of folding, or less.
//   - After Await returns nil, Read sees the event, if the projection reads it.
//     Await also returns for an event that is skipped.
//   - After an error of the log, the state is the one before the error, and the
//     next Run or Refresh continues from there.
//   - In a store that scans, a damaged event that the projection does not read is
//     no error.
//
// # Concurrency
//
// A Projection may be used by several goroutines, each with its own states. A View
// is safe for concurrent use; one goroutine at a time folds. While Run, Refresh or
// Rebuild catches up, other goroutines read and decode events ahead, and end
// before it returns. A lock is held while an event is applied, while the state is
// read, and while it is encoded for a checkpoint. The log and the checkpoints are
// called without it; only the lock that excludes a second Run, Refresh or Rebuild
// is held then.
//
// # Errors
//
// [ErrRunning]: another goroutine folds the view. [ErrCheckpoint]: a checkpoint
// was not saved; the state is current. All other errors come from the log, and
// name the projection.
//
// The packages below this one have one projection each. The laws of a projection
// are in projectionstest, the ones of a view in projections_test.go and
// scan_test.go, an example in example_test.go.
package projections
