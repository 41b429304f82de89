// Package projections folds the events of a ledger into answers.
//
// A [Projection] is a pure fold: a value that stands for no events, and a
// function from an answer and one more event to the next answer. [Fold] applies
// it to a sequence: the whole log, one stream, or the log up to a position, and
// then the answer is what was so at that position.
//
// A projection says which events it reads; the others cost it nothing but
// their place.
//
// A [View] keeps an answer current while the log grows. [View.Run] follows the
// log, [View.Refresh] folds to the present end and returns, [View.Rebuild] does
// so from zero; [View.Read] looks at the answer, and [View.Await] waits until it
// holds an event. With [Checkpoints], a view goes on from where an earlier one
// left. A checkpoint is a line of JSON under the name of its projection, and
// behind the line the answer as [Pack] writes it:
//
//	{"projection": "calls", "version": 2,
//	 "position": "42", "stream": "session-ses_…", "revision": 7, "event": "evt_…",
//	 "folded": 40, "kinds": 2596069104, "crc32c": 305419896}
//
// The second row is an event of the log, through which all were folded or
// passed over; folded is how many the answer holds, kinds is the
// [events.KindsSum] of the program that folded them, and crc32c is that of the
// bytes of the answer. A program that knows other kinds folds the log again.
//
// # Promises
//
//   - An answer is the same in one go, in two, from a checkpoint and rebuilt
//     from zero.
//   - A checkpoint of another projection or version, one of a program that knew
//     other kinds of events, one that is damaged, and
//     one whose event is not right there in this log are as good as none: the
//     view is folded from zero.
//   - A checkpoint that is not saved costs no answer.
//   - Saving takes about a twentieth of the time that folding does, or less.
//   - When Await returns without an error, Read sees the event, if the
//     projection reads it. It returns for one that is passed over, too.
//   - An error of the log leaves the answer as it was before it, and the next
//     Run or Refresh goes on from there.
//   - In a store that scans, an event that is not read need not be whole.
//
// # Concurrency
//
// A Projection may be used by several goroutines, each with answers of its own.
// The methods of a View may be called by several goroutines; one at a time
// folds. While Run, Refresh or Rebuild catches up, events are read and decoded
// ahead by other goroutines, which have ended when it returns. A lock is held
// while an event is applied, while an answer is looked at and while it is
// encoded for a checkpoint; none while the log or the checkpoints are called,
// but for the one that keeps a second Run, Refresh or Rebuild out.
//
// # Errors
//
// [ErrRunning]: somebody else folds the view. [ErrCheckpoint]: a checkpoint was
// not saved, and the answer is current. All others are those of the log, with
// the name of the projection.
//
// What history means is the affair of the packages below, each with one
// projection. The laws of a projection are in projectionstest, those of a view
// in projections_test.go and
// reading_test.go, an example in example_test.go.
package projections
