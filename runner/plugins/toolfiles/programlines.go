package toolfiles

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// A programLines reads the lines of a program within limits. One goroutine uses it.
type programLines struct {
	from   *bufio.Reader
	limits lineLimits
	// number is the number of the line that was read last, from 1.
	number int
	// total is the size of all lines so far, in bytes.
	total int
	// ended is set at the end of the output.
	ended bool
}

// newProgramLines returns a reader of lines.
func newProgramLines(from io.Reader, limits lineLimits) *programLines {
	return &programLines{from: bufio.NewReaderSize(from, 32<<10), limits: limits}
}

// next returns the next line without its end, or nil at the end of the output. The last
// line may lack its end. The line is valid until the next call. It returns a protocolError
// for a line or an output over its limit, and the error of reading.
func (r *programLines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := r.from.ReadSlice('\n')
		line = append(line, part...)
		r.total += len(part)
		switch {
		case len(bytes.TrimSuffix(line, []byte("\n"))) > r.limits.Line:
			return nil, broken("line %d is over the limit of %d bytes", r.number+1, r.limits.Line)
		case r.total > r.limits.Output:
			return nil, broken("line %d is over the limit of %d bytes for the whole output", r.number+1, r.limits.Output)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			r.ended = true
			return nil, nil
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		r.number++
		return bytes.TrimSuffix(line, []byte("\n")), nil
	}
}

// An exitReader reads a pipe up to its read deadline, which means that the program has
// ended or its time is over. The bytes that are in the pipe at the deadline are the last
// ones.
type exitReader struct {
	file *os.File
	// ended is set once the deadline has expired.
	ended bool
}

// Read reads from the pipe. It returns io.EOF at the end of the pipe and, after the
// deadline, once the pipe is empty.
func (r *exitReader) Read(p []byte) (int, error) {
	if !r.ended {
		n, err := r.file.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		r.ended = true
	}
	n, err := r.readAvailable(p)
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

// readAvailable reads bytes that are in the pipe, without waiting. It returns 0 for an
// empty pipe.
func (r *exitReader) readAvailable(p []byte) (n int, err error) {
	raw, err := r.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	for {
		if err := r.file.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
		err := raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), p) // an error, as for an empty pipe, is the end
			return true
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) { // the deadline may be set again meanwhile
			return max(n, 0), err
		}
	}
}
