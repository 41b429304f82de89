// Package player plays a session on a terminal, event by event.
//
// A [Player] shows one event of the session at a time, with the events before it. It goes
// forwards and back by keys, or by itself at the pace of the recording, and finds texts.
// [Model] is its state as bubbletea runs it: Update and View are functions of the state and
// of a message. [Source] reads the events, a window at a time.
//
// # Promises
//
//   - A session of any length opens by reading one window of its stream. The player holds at
//     most one window, and of each event at most maxTexts bytes.
//   - No text of a session can control the terminal.
//   - A pause between two events is shortened to maxGap, and the screen says so.
//   - Each screen fits the terminal, down to one line of ten columns.
//   - Without colours, as with NO_COLOR, a screen has no styles.
//
// # Concurrency
//
// Play blocks until the user quits or its context ends. bubbletea runs commands, which read
// the store, on goroutines of its own and joins none that still reads: the reads end with
// the context.
//
// # Errors
//
// Play returns a usage fault if the standard input or output is no terminal, and the cause
// of the context. An error of the store is shown on the screen, and returned at the end.
//
// Package views has the labels and texts of events.
package player
