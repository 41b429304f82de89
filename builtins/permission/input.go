package permission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// The limits of input that is not used yet.
const (
	maxLine  = 64 << 10
	maxLines = 100
)

// An input reads lines and keeps the lines typed while it accepts input. It drops all others,
// and also a line whose beginning it dropped.
type input struct {
	in      io.Reader
	device  *device       // nil: in is not a terminal
	arrived chan struct{} // of one place: bytes were read, or input ended
	ended   chan struct{} // closed when run returns
	mu      struct {
		sync.Mutex
		accepting bool
		dropped   bool // since the last discard
		skipping  bool // up to the end of the line
		line      []byte
		lines     []string
	}
}

func newInput(in io.Reader) *input {
	return &input{in: in, device: deviceOf(in), arrived: make(chan struct{}, 1), ended: make(chan struct{})}
}

// run reads until the input or ctx ends.
func (i *input) run(ctx context.Context) error {
	defer i.signal()
	defer close(i.ended)
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

func (i *input) read(b []byte) error {
	n, err := i.in.Read(b)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.takeLocked(b[:n], err != nil)
	return err
}

// readDevice holds the lock while it reads, so that no bytes are on their way
// between the device and the lines while input is discarded.
func (i *input) readDevice(ready func() error, b []byte) error {
	if err := ready(); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.device.readable() { // it was discarded meanwhile
		return nil
	}
	n, err := i.in.Read(b)
	if n == 0 && errors.Is(err, io.EOF) && !i.device.gone() {
		i.endOfFileLocked()
		return nil
	}
	i.takeLocked(b[:n], err != nil)
	return err
}

// endOfFile is the line that an end of file is which was typed at a terminal.
const endOfFile = "\x04"

// endOfFileLocked drops an unfinished line and takes the end of file in its place.
func (i *input) endOfFileLocked() {
	defer i.signal()
	if !i.mu.accepting {
		i.mu.dropped, i.mu.skipping = true, false
		return
	}
	i.mu.line = append(i.mu.line[:0], endOfFile...)
	i.endLocked()
}

// takeLocked keeps or drops bytes that were read. At the end of the input an
// unfinished line counts as finished.
func (i *input) takeLocked(b []byte, last bool) {
	defer i.signal()
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
			i.endLocked()
		}
	}
	if last && len(i.mu.line) > 0 {
		i.endLocked()
	}
}

// endLocked ends a line. One that was skipped is an empty line, which answers
// nothing.
func (i *input) endLocked() {
	if len(i.mu.lines) < maxLines {
		i.mu.lines = append(i.mu.lines, string(i.mu.line))
	}
	i.mu.line, i.mu.skipping = i.mu.line[:0], false
}

func (i *input) signal() {
	select {
	case i.arrived <- struct{}{}:
	default:
	}
}

// accept keeps lines that begin from now on.
func (i *input) accept() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.accepting = true
}

// mute drops what was kept and not used, and keeps nothing from now on.
func (i *input) mute() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.dropped = i.mu.dropped || len(i.mu.line)+len(i.mu.lines) > 0
	i.mu.skipping = i.mu.skipping || len(i.mu.line) > 0
	i.mu.accepting, i.mu.line, i.mu.lines = false, nil, nil
}

// discard drops the input that the device holds, and reports whether there was
// any, or any was dropped since the last discard.
func (i *input) discard() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	held := i.device.discard()
	dropped := i.mu.dropped
	i.mu.dropped = false
	if held {
		i.mu.skipping = false // the device dropped the rest of that line
	}
	return held || dropped
}

// next returns the next line that was kept, and whether there is one.
func (i *input) next() (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.mu.lines) == 0 {
		return "", false
	}
	line := i.mu.lines[0]
	i.mu.lines = i.mu.lines[1:]
	return line, true
}

// over reports whether no more input can come.
func (i *input) over() bool {
	select {
	case <-i.ended:
		return true
	default:
		return false
	}
}
