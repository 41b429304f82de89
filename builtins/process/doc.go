// Package process runs a command and kills every process that the command leaves
// behind.
//
// A [Command] is a program with its arguments. [Run] starts it as the leader of a
// new session and process group, without input, captures its output and that of its
// descendants, and returns a [RunResult] when it has ended: the exit status or the
// signal, whether the timeout ended it, and the [Capture]. [StartPiped] starts a
// command as a [PipedProcess], whose standard input and output are pipes to the
// caller; its Stop ends it as Run ends a command.
//
// # Promises
//
//   - Standard output and standard error of Run are one stream, in the order in
//     which they were written. A Capture of a PipedProcess has standard error only.
//   - A Capture keeps the beginning and the end of the output, each up to half of
//     the limit, and counts the bytes that it lost between them.
//   - When the timeout expires or the context ends, the process group gets SIGTERM,
//     and SIGKILL after the grace period. The RunResult holds the output until then.
//   - When Run or Stop returns, every process of the group has been killed.
//   - On Linux, Run and Stop also kill descendants that left the group, as by setsid.
//     They find them by the variable [MarkVariable] in their environment, and miss a
//     process that was started with another environment or as another user. On
//     other systems such a descendant survives.
//   - On Linux the kernel kills the command if this process dies. Its descendants
//     survive, unless the process has called [KillAll] before it exits.
//
// # Concurrency
//
// Run and StartPiped may be called by several goroutines at once. They start two
// goroutines, one that reads the output and one that waits for the command. Run
// joins both before it returns, and Stop joins those of StartPiped.
//
// # Errors
//
// Run returns an error if the command does not start, and the cause of its context,
// with the output so far, if the context ended first. A non-zero exit status, a
// signal and a timeout are results, not errors. StartPiped returns an error if the
// command does not start. [ErrBadCommand] is returned for an invalid Command.
//
// Package permission decides which commands may run, and the caller interprets the
// output. The laws are in process_test.go and piped_test.go, an example is in example_test.go.
package process
