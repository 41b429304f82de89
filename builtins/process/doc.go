// Package process runs a command and kills every process that the command leaves
// behind.
//
// A [Command] is a program with its arguments. [Run] starts it as the leader of a
// new session and process group, without input, captures its output and that of its
// descendants, and returns a [RunResult] when it has ended: the exit status or the
// signal, whether the timeout ended it, and the [Capture].
//
// # Promises
//
//   - Standard output and standard error are one stream, in the order in which
//     they were written.
//   - A Capture keeps the beginning and the end of the output, each up to half of
//     the limit, and counts the bytes that it lost between them.
//   - When the timeout expires or the context ends, the process group gets SIGTERM,
//     and SIGKILL after the grace period. The RunResult holds the output until then.
//   - When Run returns, every process of the group has been killed.
//   - On Linux, Run also kills descendants that left the group, as by setsid. It
//     finds them by the variable [MarkVariable] in their environment, and misses a
//     process that was started with another environment or as another user. On
//     other systems such a descendant survives.
//   - On Linux the kernel kills the command if this process dies. Its descendants
//     survive.
//
// # Concurrency
//
// Run may be called by several goroutines at once. It starts two goroutines, one
// that reads the output and one that waits for the command, and joins both before
// it returns.
//
// # Errors
//
// Run returns an error if the command does not start, and the cause of its context,
// with the output so far, if the context ended first. A non-zero exit status, a
// signal and a timeout are results, not errors. [ErrBadCommand] is returned for an
// invalid Command.
//
// Package permission decides which commands may run, and the caller interprets the
// output. The laws are in process_test.go, an example is in example_test.go.
package process
