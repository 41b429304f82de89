// Package storefile writes a store into one file of JSON lines, and makes an equal store from
// such a file.
//
// [Export] reads a store up to its end at the beginning of the export, and writes a line for
// each record, in the order of the log, and lines for each stored output behind the record of
// its settlement. [Import] reads the lines and appends the records that the target lacks, by
// package storecopy. docs/formats.md specifies the lines. Each line ends with a sum over
// itself and all lines before it, so that Import finds a changed, missing or moved line when
// it reads it.
//
// # Promises
//
//   - The target of a complete Import has the records of the source, byte for byte, with the
//     same streams, revisions and order, and the outputs that the file has. Its digest is the
//     one of the last line.
//   - Import appends no record of a line whose sum does not hold, and no record behind it.
//   - A repeated Import appends what is missing. A target with another record is a conflict
//     and is not changed.
//   - An interrupted Export continues, as package resumable describes, if the log has the
//     records that it has written. The file has the same bytes as one written at once.
//   - Both use memory for the largest record and a batch of records, whatever the size of the
//     store.
//   - An output that no reachable node has is a line of its own, and is counted as missing.
//
// # Concurrency
//
// One goroutine does the work. Other processes may append to the source of an export. They
// must not append to the target of an import.
//
// # Errors
//
// Errors of a file name its line. A file that ends early is a fault with the code "cut_off", a
// line whose sum does not hold one with the code "altered", and a later format one with the code
// "newer_format". A target with other records is a conflict, as in package storecopy.
package storefile
