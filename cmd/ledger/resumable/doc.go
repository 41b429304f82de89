// Package resumable writes a file that appears complete or not at all, and whose writing
// continues after an interruption.
//
// A [File] is written beside its path: the bytes into PATH.partial, and a line for each
// [File.Checkpoint] into PATH.partial.progress. [Open] continues after the last checkpoint,
// if both files are there and the content that they name is the one that the caller writes.
// [File.Finish] renames PATH.partial to PATH. A [Stream] writes the same bytes to a writer
// that cannot be continued, such as the standard output. Both are a [Sink].
//
// A path that ends with .gz or .zst is compressed. Each checkpoint ends a member of the gzip
// file, or a frame of the Zstandard file, and the decompressed bytes are those of all of them
// in order, as both formats define it.
//
// # Promises
//
//   - PATH never has a part of the content. It appears when all bytes are durable.
//   - After a kill or a power cut, Open continues at the last checkpoint that Checkpoint
//     acknowledged, or at a later one. Bytes after that checkpoint are removed.
//   - Open compares the bytes of PATH.partial with the digests in PATH.partial.progress. It
//     refuses a partial file that differs, or that is of other content, and changes nothing.
//   - If the caller writes the same bytes after a checkpoint as before the interruption, the
//     file has the same bytes as one written without interruption.
//   - A full disk is an error that names the path and the bytes written. The partial file
//     stays.
//
// # Concurrency
//
// A File belongs to one goroutine. It holds a lock, so a second process that opens the same
// path gets an [ErrInUse].
//
// # Errors
//
// [ErrExists]: PATH is there already. [ErrNotAFile]: it is something else. [ErrOtherContent], [ErrAltered]: the partial file
// cannot be continued. [ErrInUse]: another process writes it. [ErrNoSpace]: the disk is full.
// Other errors come from the file system, with the path.
package resumable
