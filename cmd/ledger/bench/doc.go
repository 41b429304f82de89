// Package bench measures the embedded store against its performance goals, each
// a ratio to a floor that the same run measures.
//
// A [Trial] is a task that several contestants do in turn, round by round. A
// [Contestant] is set up once and returns a [Sample] in each round, with a
// number for each of several [Reading]s. A [Row] is one row of the table: a
// reading of ours over a reading of theirs, and a [Goal] for the ratio. The goal [Floor]
// marks a row that compares two floors and has no verdict. A
// [Suite] is trials and rows. [Own] returns the table that needs no other
// module; the nested module bench adds the peers to it. [Run] measures a table
// and returns a [Report], which writes itself as a table and as CSV, and has a form for
// JSON.
//
// [ScaleCommand] is another measurement: it runs the reading commands of the real program
// over logs of several sizes, each with its time, memory and growth.
//
// # Contestants
//
// The floors are as fast as an honest implementation can be. A growing file is
// a log as anyone writes it; a flat file is overwritten within allocated bytes,
// so that a sync has no metadata to write. The store and Pebble write their
// first log files before they are measured, so that they recycle log files. The
// file with group commit has one goroutine that commits all waiting events with
// one write and one fdatasync. Events are 400 bytes of JSON unless a row names
// another size, and each writer waits for its append before the next.
//
// # CSV
//
// The CSV has a line for each row and round, below the header
//
//	row,round,ours,theirs,unit,ratio,goal
//
// where row is the row's ID, round counts from 1, ours and theirs are in unit,
// ratio is ours over theirs, and goal bounds the median of the ratios, such as
// >=0.9, or is the word floor. For a row that is not a comparison theirs is empty and ratio is ours.
//
// # Promises
//
//   - The contestants of a trial are measured in turn, in an order that moves on
//     by one each round; a ratio is of two samples of one round.
//   - Measured is the median of the ratios; spread is the least and the
//     greatest ratio.
//   - A goal that is not met is a verdict in the report, and not an error.
//   - A run writes only in its temporary folder, and removes it at the end.
//   - If a table does not fit its time, each trial has an equal share of the
//     time left, and at least one round.
//
// # Concurrency
//
// Concurrent calls of Run distort each other's measurements. Run joins every
// goroutine and every process that it starts.
//
// # Errors
//
// The rows of a contestant that fails have no verdict, and the report names the
// error; all other rows are measured. Run returns [ErrBadTable], [ErrNoSpace]
// and [ErrOccupied] before the first trial, and otherwise the cause of its
// context.
//
// docs/performance.md discusses the numbers.
package bench
