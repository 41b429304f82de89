package lsp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// The limits of a message that a server sends.
const (
	maxMessage     = 16 << 20 // bytes of JSON
	maxHeaderLine  = 4 << 10  // bytes of one header line
	maxHeaderLines = 32
)

// errBadMessage says that a server does not keep to the framing of the protocol.
var errBadMessage = errors.New("invalid message of the language server")

// A frameCodec reads and writes the messages of the protocol: a header with
// Content-Length, an empty line, and JSON. It embeds the codec of the library for writing.
// It reads by itself, because the codec of the library sets no limits. Only one goroutine
// reads.
type frameCodec struct {
	jsonrpc2.VSCodeObjectCodec
	failed struct {
		sync.Mutex
		err error // of the read that ended the connection
	}
}

// ReadObject reads one message into v. It keeps the error that ends the connection.
func (c *frameCodec) ReadObject(r *bufio.Reader, v any) error {
	data, err := readFrame(r)
	if err == nil {
		if err = json.Unmarshal(data, v); err != nil {
			err = fmt.Errorf("%w: %w", errBadMessage, err)
		}
	}
	if err != nil {
		c.failed.Lock()
		c.failed.err = err
		c.failed.Unlock()
	}
	return err
}

// fault returns the errBadMessage that ended the connection, or nil if the connection
// ended for another reason.
func (c *frameCodec) fault() error {
	c.failed.Lock()
	defer c.failed.Unlock()
	if errors.Is(c.failed.err, errBadMessage) {
		return c.failed.err
	}
	return nil
}

// readFrame reads one message. It returns an errBadMessage for a header or a length over
// the limits, and an error of the reader. It allocates no more than it has read.
func readFrame(r *bufio.Reader) ([]byte, error) {
	length := -1
	for n := 0; ; n++ {
		line, err := readHeaderLine(r)
		if err != nil {
			return nil, err
		}
		if line == "" && length >= 0 {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || n == maxHeaderLines {
			return nil, fmt.Errorf("%w: header line %d is %q", errBadMessage, n+1, clip(line, 100))
		}
		if !strings.EqualFold(name, "Content-Length") {
			continue
		}
		value = strings.TrimSpace(value)
		if length, err = strconv.Atoi(value); err != nil || length < 1 || length > maxMessage {
			return nil, fmt.Errorf("%w: Content-Length is %q and not 1 to %d", errBadMessage, clip(value, 100), maxMessage)
		}
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(length)); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// readHeaderLine reads one line without its line end.
func readHeaderLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		b, err := r.ReadByte()
		switch {
		case err != nil:
			return "", err
		case b == '\n':
			return strings.TrimSuffix(string(line), "\r"), nil
		case len(line) == maxHeaderLine:
			return "", fmt.Errorf("%w: a header line is longer than %d bytes", errBadMessage, maxHeaderLine)
		}
		line = append(line, b)
	}
}

// A pipeStream is the standard input and output of a server as one stream. A Write fails
// if the server does not read it within timeout.
type pipeStream struct {
	stdin, stdout *os.File
	timeout       time.Duration
}

// Read reads from the standard output of the server.
func (p pipeStream) Read(b []byte) (int, error) { return p.stdout.Read(b) }

// Write writes to the standard input of the server. It returns an os.ErrDeadlineExceeded
// after the timeout.
func (p pipeStream) Write(b []byte) (int, error) {
	if err := p.stdin.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.stdin.Write(b)
}

// Close closes both pipes.
func (p pipeStream) Close() error { return errors.Join(p.stdin.Close(), p.stdout.Close()) }

// clip returns at most limit bytes of a text, cut between two characters.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
