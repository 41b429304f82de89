package permission

import (
	"fmt"
	"io"
	"sync"
)

// maxBuffered is the maximum size, in bytes, of the background lines that a screen
// buffers while a question is open.
const maxBuffered = 64 << 10

// A screen writes questions, and background lines between them.
type screen struct {
	mu           sync.Mutex
	out          io.Writer
	atLineStart  bool   // the last byte written ends a line
	asking       bool   // a question is open
	buffered     []byte // background lines buffered while a question is open
	droppedBytes int    // bytes dropped because held was full
}

// Write writes background lines, or buffers them while a question is open.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asking {
		return s.writeLocked(b)
	}
	if len(s.buffered)+len(b) > maxBuffered || s.droppedBytes > 0 {
		s.droppedBytes += len(b)
	} else {
		s.buffered = append(s.buffered, b...)
	}
	return len(b), nil
}

// writeLocked writes to out. The caller holds mu.
func (s *screen) writeLocked(b []byte) (int, error) {
	if len(b) > 0 {
		s.atLineStart = b[len(b)-1] == '\n'
	}
	return s.out.Write(b)
}

// writeQuestion writes a part of the open question. It takes no lock: while a question is open, Write
// buffers and only the asker writes to out.
func (s *screen) writeQuestion(text string) error {
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("write a question: %w", err)
	}
	return nil
}

// beginQuestion begins a question, on a line of its own.
func (s *screen) beginQuestion() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.atLineStart {
		_, _ = s.writeLocked([]byte("\n")) // the question itself meets the same error
	}
	s.asking = true
}

// endQuestion ends a question and writes the buffered lines. It ignores write errors,
// because the next write meets the same error.
func (s *screen) endQuestion() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buffered) > 0 {
		_, _ = s.writeLocked(s.buffered)
	}
	if s.droppedBytes > 0 {
		_, _ = s.writeLocked(fmt.Appendf(nil, "(%d more bytes were written while the question was open)\n", s.droppedBytes))
	}
	s.asking, s.buffered, s.droppedBytes = false, nil, 0
}
