// Package promptline edits a line at the bottom of a terminal while a program writes above
// it.
//
// A [Console] has the terminal. It puts the device into a mode without echo, takes the bytes
// that are typed ([Console.Input]), edits the line with them and returns it
// ([Console.Next]). What the program writes ([Console.Write]) appears above the line. While
// the program is busy ([Console.SetBusy]) an empty line is not shown, so that a text can be
// written in pieces; while a line is shown, only whole lines are written.
//
// The line has one row and scrolls sideways. It is edited with the arrow keys, Home, End,
// Delete, Backspace and the control keys A, B, D, E, F, H, K, N, P, U and W. A pasted text
// (bracketed paste) is one line, also with line ends in it.
//
// # Promises
//
//   - No character of a typed or pasted line controls the terminal.
//   - A line of up to [MaxLine] bytes is returned whole. A longer one is refused with a
//     message, and never cut.
//   - Close restores the mode that the device had before Open, and may be called several
//     times. A SIGQUIT restores it before it ends the process.
//   - ctrl-c and ctrl-\ keep their effect: they send SIGINT and SIGQUIT to the program.
//     ctrl-z has no effect while the line has the terminal.
//
// # Concurrency
//
// A Console is safe for concurrent use. Open starts a goroutine for the signals of the
// terminal, which Close joins. The caller reads the device and passes what it read to
// Input. A write to a stopped terminal blocks; Next and Interrupt do not wait for it.
//
// # Errors
//
// Open returns the error of the device. Next returns [ErrInterrupted], [ErrLineTooLong],
// io.EOF and the cause of its context. Write returns the error of the writer.
//
// Questions to a person have the terminal for themselves: a Console is a
// permission.LineEditor, which permission.Terminal suspends. The laws of the editor are in
// editor_test.go; the terminal tests of the command run it on a pseudo terminal.
package promptline
