// Package process runs a command and lets nothing of it outlive the run.
//
// A [Command] is a program with its arguments. [Run] starts it as the leader
// of a process group of its own, with no input, captures what it and its
// descendants write, and returns a [RunResult] when it has ended: the exit status
// or the signal, whether its time ran out, and the [Capture].
//
// # Promises
//
//   - Standard output and standard error are one stream, in the order in which
//     they were written.
//   - A capture keeps the first half of its limit from the beginning and the
//     second half from the end, and counts exactly what it lost between them.
//   - When the time of a command runs out or its context ends, its group is
//     told to terminate, and is killed after a grace period. What it wrote
//     until then is in the result.
//   - When Run returns, the group has been killed: what a command leaves behind
//     in it does not outlive the command.
//   - On Linux, so has a descendant that left the group, as by setsid, unless
//     it was started with another environment or for another user: descendants
//     are told by the variable [MarkVariable]. On other systems it survives.
//   - If this process is killed, on Linux the command is killed with it. Its
//     descendants are not.
//
// # Concurrency
//
// Run may be called by several goroutines. It starts two, one that reads and
// one that waits, and has joined both when it returns.
//
// # Errors
//
// Run returns an error if the command was not started, and the cause of its
// context, with what was captured, if that ended before the command. An exit
// status other than zero, a signal and a timeout are results, not errors.
//
// What a command may do is the permission's affair; what its output means is
// the caller's. The laws are in process_test.go, an example in example_test.go.
package process
