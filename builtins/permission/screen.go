package permission

import (
	"fmt"
	"io"
	"sync"
)

// maxHeld is the number of bytes of background lines that a screen buffers while a question is
// open.
const maxHeld = 64 << 10

// A screen writes questions, and background lines between them.
type screen struct {
	mu     sync.Mutex
	out    io.Writer
	fresh  bool   // the last byte written ends a line
	asking bool   // a question is open
	held   []byte // background lines buffered while a question is open
	lost   int    // bytes dropped because held was full
}

// Write writes background lines, or buffers them while a question is open.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asking {
		return s.writeLocked(b)
	}
	if len(s.held)+len(b) > maxHeld || s.lost > 0 {
		s.lost += len(b)
	} else {
		s.held = append(s.held, b...)
	}
	return len(b), nil
}

// writeLocked writes to out. The caller holds mu.
func (s *screen) writeLocked(b []byte) (int, error) {
	if len(b) > 0 {
		s.fresh = b[len(b)-1] == '\n'
	}
	return s.out.Write(b)
}

// ask writes a part of the open question. It takes no lock: while a question is open, Write
// buffers and only the asker writes to out.
func (s *screen) ask(text string) error {
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("write a question: %w", err)
	}
	return nil
}

// open begins a question, on a line of its own.
func (s *screen) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh {
		_, _ = s.writeLocked([]byte("\n")) // the question itself meets the same error
	}
	s.asking = true
}

// close ends a question and writes the buffered lines. It drops write errors; the next write
// meets them again.
func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) > 0 {
		_, _ = s.writeLocked(s.held)
	}
	if s.lost > 0 {
		_, _ = s.writeLocked(fmt.Appendf(nil, "(%d more bytes were written while the question was open)\n", s.lost))
	}
	s.asking, s.held, s.lost = false, nil, 0
}
