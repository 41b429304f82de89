// Package bench measures the embedded store against the goals that it is held
// to, each as a ratio to something measured beside it in the same run.
//
// A [Trial] is a task that several contestants do in turn, round by round. A
// [Contestant] is set up once and gives a [Sample] in each round, which has a
// number for each of several [Reading]s. A [Row] is one line of the table: a
// reading of ours over a reading of theirs, and a [Goal] for the ratio. A
// [Table] is trials and rows; [Own] is the one that needs nothing but this
// module, and the nested module bench adds the peers to it. [Run] measures a
// table and gives a [Report], which writes itself as a table and as CSV.
//
// # Contestants
//
// What ours is compared with is written to be as fast as it can honestly be.
// The file of a row is written over and over within bytes that it already has,
// so that a sync has no metadata to write; ours and Pebble's have written their
// first logs before they are measured, so that they recycle theirs. The file
// with group commit has one goroutine that makes of all that waits one write
// and one fdatasync. Events are 400 bytes of JSON where a row does not say
// otherwise, and each appender waits for its own before the next.
//
// # CSV
//
// One line for each row and round, under the header
//
//	row,round,ours,theirs,unit,ratio,goal
//
// where row is the row's ID, round counts from 1, ours and theirs are in unit
// (theirs is empty where the row is not a comparison, and then ratio is ours),
// ratio is ours over theirs, and goal is what the median of the ratios is held
// to, such as >=0.9.
//
// # Promises
//
//   - The contestants of a trial are measured in turn, in an order that moves on
//     by one each round; a ratio is of two samples of one round.
//   - Measured is the median of the ratios, spread the least and the greatest.
//   - Nothing is asserted about time: a verdict is told, and is no failure.
//   - What is written lies in a folder of its own, which is removed at the end.
//   - Of a table that does not fit its time, each trial has an equal share of
//     what is left and at least one round.
//
// # Concurrency
//
// One Run at a time, or they measure each other. Run joins every goroutine and
// every process that it starts.
//
// # Errors
//
// A contestant that fails takes its rows with it and nothing else: they have no
// verdict, and the report names the error. Run returns [ErrNoSpace] and
// [ErrOccupied] before anything is measured, and the cause of its context.
//
// What the numbers mean for the product is written in docs/performance.md.
package bench
