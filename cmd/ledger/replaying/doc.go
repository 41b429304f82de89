// Package replaying replays recorded sessions for the command and reports how the replay
// differs from the recording.
//
// [Replay] replays the tape of a session, with package replay: into the store of the
// recording, into another store, or into memory. [Show] prints the report, and [WriteJUnit]
// writes it as a JUnit file. A replay with differences is a fault with exit code 3.
//
// # Concurrency
//
// The functions may be called by one goroutine at a time for one printer.
//
// # Errors
//
// Errors are faults of package fault with an exit code, or errors of the stores.
package replaying
