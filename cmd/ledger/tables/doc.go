// Package tables exports calls, turns and registrations as tables in Parquet, CSV or JSON
// lines.
//
// [Export] reads the rows of one moment from a snapshot of the index, and the whole inputs and
// texts of calls from the log, and writes them through package resumable. A [Filter] selects
// rows. docs/formats.md lists the columns, which the types of rows define for all three
// formats.
//
// # Promises
//
//   - The rows are those of the log up to the position at which the export began. An export
//     that is continued has the rows of that position, although the log has grown: the
//     selection is recorded at the beginning, and an index of the log up to that position is
//     filled in a temporary folder if the one of the store is later.
//   - The file of a continued export has the bytes of one written at once.
//   - Memory is bounded by a batch of calls with their texts and, in Parquet, by one row group:
//     at most 65,536 rows, or 32 MiB of texts and the row that exceeds them.
//   - A text cell of CSV never begins with a character by which a spreadsheet takes it for a
//     formula. JSON lines and Parquet have the exact texts.
//
// # Concurrency
//
// One goroutine does the work. Other processes may append meanwhile.
//
// # Errors
//
// Usage faults name the flag. Errors of files are those of package resumable.
package tables
