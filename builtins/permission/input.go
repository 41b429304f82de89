package permission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// The limits of accepted input that no question has read so far.
const (
	maxLine  = 64 << 10 // bytes in a line; a longer one becomes an incompleteLine
	maxLines = 100      // finished lines; further ones are dropped
)

// An input reads lines. It keeps lines that are typed while it accepts input, and drops
// all others. If it dropped the beginning of a line, it drops the whole line. While no
// question is open it passes all bytes to a line editor, if there is one.
type input struct {
	in     io.Reader
	device *device       // nil: in is not a terminal
	notify chan struct{} // capacity 1: bytes were read, or input ended
	done   chan struct{} // closed when run returns
	mu     struct {
		sync.Mutex
		editor    LineEditor // receives the bytes typed while no question is open; nil: they are dropped
		asking    bool       // a question is open
		accepting bool       // a prompt is open, so keep lines
		dropped   bool       // input was dropped since the last discard
		skipping  bool       // drop bytes up to the next newline
		line      []byte     // the unfinished line
		lines     []string   // finished lines that no question has read, oldest first
	}
}

// newInput returns an input that accepts no lines yet.
func newInput(in io.Reader) *input {
	return &input{in: in, device: deviceOf(in), notify: make(chan struct{}, 1), done: make(chan struct{})}
}

// run reads until the input or ctx ends.
func (i *input) run(ctx context.Context) error {
	defer i.wake()
	defer close(i.done)
	read := i.read
	if i.device != nil {
		ready, stop, err := i.device.waiter(ctx)
		if err != nil {
			return fmt.Errorf("wait for an answer: %w", err)
		}
		defer stop()
		read = func(b []byte) error { return i.readDevice(ready, b) }
	}
	b := make([]byte, 4096)
	for {
		switch err := read(b); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read an answer: %w", err)
		}
	}
}

// read reads once from an input that is not a terminal device. It does not hold the
// lock during the read, which may block.
func (i *input) read(b []byte) error {
	n, err := i.in.Read(b)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.consumeLocked(b[:n], err != nil)
	return err
}

// readDevice waits until the device is readable and reads once. It holds the lock during
// the read, so that a concurrent discard cannot miss bytes that have left the device and
// are not in the lines yet.
func (i *input) readDevice(ready func() error, b []byte) error {
	if err := ready(); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.device.readable() { // a concurrent discard dropped the input
		return nil
	}
	n, err := i.in.Read(b)
	if n == 0 && errors.Is(err, io.EOF) && !i.device.hungUp() {
		i.endOfFileLocked()
		return nil
	}
	i.consumeLocked(b[:n], err != nil)
	return err
}

// endOfFile is the line that represents an end of file typed at a terminal (Ctrl-D).
const endOfFile = "\x04"

// incompleteLine is the line that represents a line whose beginning was dropped, or that is
// too long. It is not an answer to any question.
const incompleteLine = "\x18"

// endOfFileLocked adds endOfFile as a line, in place of the unfinished line. While
// input is not accepted it drops the end of file. The caller holds mu.
func (i *input) endOfFileLocked() {
	defer i.wake()
	if !i.mu.accepting {
		i.mu.dropped, i.mu.skipping = true, false
		return
	}
	i.mu.line, i.mu.skipping = append(i.mu.line[:0], endOfFile...), false
	i.endLineLocked()
}

// consumeLocked takes b, the bytes of one read. While no question is open it passes them to
// the line editor. While an answer is accepted it adds them
// to the current line and queues each complete line; a line longer than maxLine is queued
// as incompleteLine. Otherwise it drops them. last is true at the end of the input and after a read
// error: consumeLocked then queues a line without a line end, too. The caller holds mu.
func (i *input) consumeLocked(b []byte, last bool) {
	defer i.wake()
	if i.mu.editor != nil && !i.mu.asking {
		if len(b) > 0 {
			i.mu.editor.Input(b)
		}
		return
	}
	if !i.mu.accepting {
		if len(b) > 0 {
			i.mu.dropped, i.mu.skipping = true, b[len(b)-1] != '\n'
		}
		return
	}
	for len(b) > 0 {
		part, rest, whole := bytes.Cut(b, []byte("\n"))
		b = rest
		if !i.mu.skipping {
			i.mu.line = append(i.mu.line, part...)
		}
		if len(i.mu.line) > maxLine {
			i.mu.line, i.mu.skipping = nil, true
		}
		if whole {
			i.endLineLocked()
		}
	}
	if last && len(i.mu.line) > 0 {
		i.endLineLocked()
	}
}

// endLineLocked ends the unfinished line. In place of a line that skipped bytes it adds
// incompleteLine. The caller holds mu.
func (i *input) endLineLocked() {
	line := string(i.mu.line)
	if i.mu.skipping {
		line = incompleteLine
	}
	if len(i.mu.lines) < maxLines {
		i.mu.lines = append(i.mu.lines, line)
	}
	i.mu.line, i.mu.skipping = i.mu.line[:0], false
}

// wake wakes the question that waits for input. It never blocks.
func (i *input) wake() {
	select {
	case i.notify <- struct{}{}:
	default:
	}
}

// setAsking notes whether a question is open.
func (i *input) setAsking(asking bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.asking = asking
}

// startAccepting makes the input keep lines that begin from now on.
func (i *input) startAccepting() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.accepting = true
}

// stopAccepting drops all kept lines and the unfinished line. Input is then dropped
// until startAccepting.
func (i *input) stopAccepting() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.dropped = i.mu.dropped || len(i.mu.line)+len(i.mu.lines) > 0
	i.mu.skipping = i.mu.skipping || len(i.mu.line) > 0
	i.mu.accepting, i.mu.line, i.mu.lines = false, nil, nil
}

// discard drops the input in the buffer of the device. It returns true if the buffer
// had any input, or if i has dropped input since the last discard.
func (i *input) discard() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	hadInput := i.device.discard()
	dropped := i.mu.dropped
	i.mu.dropped = false
	if hadInput {
		i.mu.skipping = false // the device dropped the rest of that line
	}
	return hadInput || dropped
}

// nextLine removes the oldest kept line and returns it, or false if there is no such line.
func (i *input) nextLine() (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.mu.lines) == 0 {
		return "", false
	}
	line := i.mu.lines[0]
	i.mu.lines = i.mu.lines[1:]
	return line, true
}

// ended reports whether the input has ended: run has returned.
func (i *input) ended() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}
