package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/settlement-ledger/ledger/builtins/process"
)

const (
	// maxErrorOutput is the kept size of standard error, in bytes.
	maxErrorOutput = 16 << 10
	// gracePeriod is how long a process may take to end after its input was closed and
	// SIGTERM was sent.
	gracePeriod = 2 * time.Second
	// drainTime is how long the output of an ended process is read, which another process
	// may hold open.
	drainTime = 500 * time.Millisecond
	// writeTime is how long a server may take to read a message.
	writeTime = 10 * time.Second
)

// NewProcess returns a Link to a server that reads and writes lines on its standard input
// and output. start starts the command, as process.StartPiped does.
func NewProcess(c process.Command, start func(process.Command) (*process.PipedProcess, error), h Handlers) *Link {
	c.CaptureLimit, c.GracePeriod = maxErrorOutput, gracePeriod
	return newLink(h, func(context.Context) (carrier, error) {
		p, err := start(c)
		if err != nil {
			return nil, err
		}
		s := &processCarrier{process: p, lines: bufio.NewReaderSize(p.Stdout, 64<<10), closed: make(chan struct{})}
		s.joined.Go(s.watch)
		return s, nil
	})
}

// A processCarrier is a carrier over the pipes of a process.
type processCarrier struct {
	process *process.PipedProcess
	lines   *bufio.Reader
	// batch are the unread messages of the last line. Only Read uses it.
	batch   []json.RawMessage
	skipped atomic.Int64
	writing sync.Mutex
	closing sync.Once
	closed  chan struct{}
	joined  sync.WaitGroup
}

// watch ends the reading of a process that has ended, even if another process holds its
// output open.
func (s *processCarrier) watch() {
	select {
	case <-s.process.Exited():
		_ = s.process.Stdout.SetReadDeadline(time.Now().Add(drainTime))
	case <-s.closed:
	}
}

// Read returns the next message. It skips lines that are no messages.
func (s *processCarrier) Read(context.Context) (jsonrpc.Message, error) {
	for inRow := 0; ; {
		if len(s.batch) > 0 {
			raw := s.batch[0]
			s.batch = s.batch[1:]
			if msg, err := jsonrpc.DecodeMessage(raw); err == nil {
				return msg, nil
			}
			s.skipped.Add(1)
			continue
		}
		line, err := s.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		if line[0] == '[' && json.Unmarshal(line, &s.batch) == nil {
			continue
		}
		if msg, err := jsonrpc.DecodeMessage(line); err == nil {
			return msg, nil
		}
		s.skipped.Add(1)
		if inRow++; inRow > MaxNoise {
			return nil, fmt.Errorf("it wrote more than %d lines in a row to its standard output that are no JSON-RPC messages", MaxNoise)
		}
	}
}

// errOutputEnded is the reason of a process that ended or closed one of its pipes.
var errOutputEnded = errors.New("it closed its standard input or output")

// line returns the next line without surrounding space.
func (s *processCarrier) line() ([]byte, error) {
	var line []byte
	for {
		part, err := s.lines.ReadSlice('\n')
		if len(line)+len(part) > MaxMessage {
			return nil, fmt.Errorf("it sent a message over the limit of %d bytes", MaxMessage)
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && len(bytes.TrimSpace(line)) > 0 && errors.Is(err, io.EOF):
			return bytes.TrimSpace(line), nil // the last line may lack its end
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, os.ErrClosed):
			return nil, errOutputEnded
		case err != nil:
			return nil, err
		}
		return bytes.TrimSpace(line), nil
	}
}

// Write writes one line. It ends the process if it does not read the whole line in time,
// because a part of a line cannot be taken back.
func (s *processCarrier) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_ = s.process.Stdin.SetWriteDeadline(time.Now().Add(writeTime))
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.process.Stdin.SetWriteDeadline(time.Unix(1, 0))
		close(expired)
	})
	n, err := s.process.Stdin.Write(append(data, '\n'))
	if !stop() {
		<-expired // a later write has a deadline of its own
	}
	if err == nil {
		return nil
	}
	if n > 0 {
		_ = s.process.Stdin.Close() // the next message would continue a broken line
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it did not read a message within %v", writeTime)
	}
	if errors.Is(err, syscall.EPIPE) {
		return errOutputEnded // it has ended, or does not read
	}
	return fmt.Errorf("write to its standard input: %w", err)
}

// Close ends the process group.
func (s *processCarrier) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.process.Stop()
	})
	s.joined.Wait()
	return nil
}

// SessionID returns no ID: a process is one session.
func (s *processCarrier) SessionID() string { return "" }

func (s *processCarrier) initialized(string, func(jsonrpc.Message)) {}

func (s *processCarrier) noise() int64 { return s.skipped.Load() }

// end returns the reason with how the process ended and with its standard error.
func (s *processCarrier) end(reason error) error {
	result := s.process.Stop()
	var b strings.Builder
	switch {
	case errors.Is(reason, errOutputEnded) && result.Signal != 0:
		fmt.Fprintf(&b, "the process was ended by the signal %v", result.Signal)
	case errors.Is(reason, errOutputEnded):
		fmt.Fprintf(&b, "the process ended with the exit status %d", result.Exit)
	default:
		b.WriteString(reason.Error())
	}
	return &EndError{Reason: b.String(), ErrorOutput: errorOutput(result.Output), cause: reason}
}

// An EndError says how a process ended.
type EndError struct {
	Reason string
	// ErrorOutput is the kept part of the standard error.
	ErrorOutput string
	cause       error
}

// Error returns the reason with the last lines of the standard error.
func (e *EndError) Error() string {
	tail := strings.TrimSpace(e.ErrorOutput)
	if tail == "" {
		return e.Reason
	}
	const most = 1000
	if len(tail) > most {
		tail = "…" + strings.ToValidUTF8(tail[len(tail)-most:], "")
	}
	return e.Reason + "; its standard error ends with: " + tail
}

// Unwrap returns the cause.
func (e *EndError) Unwrap() error { return e.cause }

// errorOutput returns the kept standard error as text.
func errorOutput(c process.Capture) string {
	text := string(c.Head)
	if c.Lost > 0 {
		text += fmt.Sprintf("\n[%d bytes lost here]\n%s", c.Lost, c.Tail)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
