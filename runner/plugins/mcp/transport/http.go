package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// endTime is how long the request that ends a session may take.
	endTime = time.Second
	// maxResponse is the size of one response in bytes, with all events of a stream.
	maxResponse = 4 * MaxMessage
	// resumptions is the number of attempts to resume a cut stream.
	resumptions = 2
	// maxStreamPause is the longest pause before the stream of notifications is opened
	// again.
	maxStreamPause = 30 * time.Second
)

// NewHTTP returns a Link to a server with the streamable HTTP transport. The headers go
// with each request.
func NewHTTP(address string, headers map[string]string, h Handlers) *Link {
	return newLink(h, func(ctx context.Context) (carrier, error) {
		base, err := url.Parse(address)
		if err != nil {
			return nil, errors.New("the address is no URL")
		}
		c := &httpCarrier{address: address, base: base, headers: headers, ctx: ctx, transport: http.DefaultTransport.(*http.Transport).Clone()}
		client := &http.Client{Transport: c, CheckRedirect: c.checkRedirect}
		c.client = client
		// The Link opens the stream of notifications itself: the SDK would end the session
		// when that stream is cut.
		t := &sdk.StreamableClientTransport{Endpoint: address, HTTPClient: client, MaxRetries: resumptions, DisableStandaloneSSE: true, MaxEventSize: MaxMessage}
		c.Connection, err = t.Connect(ctx)
		return c, err
	})
}

// An httpCarrier is a carrier over HTTP requests. It is the transport of their client.
type httpCarrier struct {
	sdk.Connection
	address   string
	base      *url.URL
	headers   map[string]string
	ctx       context.Context // ends with the Link
	transport *http.Transport
	client    *http.Client
	joined    sync.WaitGroup
	isOpen    atomic.Bool // the stream of notifications
	version   atomic.Pointer[string]
	refused   atomic.Pointer[statusError]
}

// A statusError is a refusal that a person must resolve.
type statusError struct {
	status    int
	challenge string
}

// Error returns the status and what to do.
func (e *statusError) Error() string {
	text := fmt.Sprintf("it answered %d %s", e.status, http.StatusText(e.status))
	if e.challenge != "" {
		text += fmt.Sprintf(" (WWW-Authenticate: %.200s)", e.challenge)
	}
	return text + ": set a valid Authorization under headers of the server"
}

// checkRedirect refuses a redirect to another host, and more than three.
func (c *httpCarrier) checkRedirect(r *http.Request, via []*http.Request) error {
	if !c.isHome(r.URL) {
		return fmt.Errorf("it redirects to another host, %s: write the address of that host as the url", r.URL.Host)
	}
	if len(via) > 3 {
		return errors.New("it redirects more than three times")
	}
	return nil
}

// isHome reports whether a URL is on the host of the server.
func (c *httpCarrier) isHome(u *url.URL) bool {
	return u.Scheme == c.base.Scheme && u.Host == c.base.Host
}

// RoundTrip sends one request with the headers of the server. The request ends with the
// Link.
func (c *httpCarrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if !c.isHome(r.URL) {
		return nil, fmt.Errorf("the request leads to another host, %s", r.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	var stop func() bool
	if r.Method == http.MethodDelete {
		// The request that ends a session outlives the Link.
		stop = time.AfterFunc(endTime, func() { cancel(context.DeadlineExceeded) }).Stop
	} else {
		stop = context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	}
	release := func() {
		stop()
		cancel(nil)
	}
	r = r.Clone(ctx)
	for _, name := range slices.Sorted(maps.Keys(c.headers)) {
		r.Header.Set(name, c.headers[name])
	}
	if v := c.version.Load(); v != nil && r.Header.Get("Mcp-Protocol-Version") == "" {
		r.Header.Set("Mcp-Protocol-Version", *v)
	}
	response, err := c.transport.RoundTrip(r)
	if err != nil {
		release()
		return nil, err
	}
	if s := response.StatusCode; s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusProxyAuthRequired {
		c.refused.Store(&statusError{s, response.Header.Get("WWW-Authenticate")})
	}
	limit := int64(maxResponse)
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		limit = MaxMessage
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: limit, release: release}
	return response, nil
}

// A boundedBody is the body of a response with a limit.
type boundedBody struct {
	io.ReadCloser
	left    int64
	release func()
}

// Read returns an error once the body is over its limit.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("it sent a response over the limit of %d bytes", MaxMessage)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Close closes the body and frees the request.
func (b *boundedBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

// Write sends one message. It explains a refusal.
func (c *httpCarrier) Write(ctx context.Context, msg jsonrpc.Message) error {
	return c.explain(c.Connection.Write(ctx, msg))
}

// Read returns the next message of any response.
func (c *httpCarrier) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	return msg, c.explain(err)
}

// explain adds a refusal to an error.
func (c *httpCarrier) explain(err error) error {
	if refused := c.refused.Load(); err != nil && refused != nil {
		return fmt.Errorf("%w (%w)", refused, err)
	}
	return err
}

// Close ends the session and all requests.
func (c *httpCarrier) Close() error {
	_ = c.Connection.Close()
	c.joined.Wait()
	c.transport.CloseIdleConnections()
	return nil
}

func (c *httpCarrier) end(reason error) error { return reason }

func (c *httpCarrier) noise() int64 { return 0 }

func (c *httpCarrier) streaming() bool { return c.isOpen.Load() }

// initialized opens the stream on which a server of the older protocol sends
// notifications by itself.
func (c *httpCarrier) initialized(version string, receive func(jsonrpc.Message)) {
	c.version.Store(&version)
	c.joined.Go(func() { c.follow(receive) })
}

// follow reads the stream of notifications, and opens it again after it was cut, until the
// Link ends or the server has no such stream.
func (c *httpCarrier) follow(receive func(jsonrpc.Message)) {
	for pause := time.Second; ; pause = min(2*pause, maxStreamPause) {
		started := time.Now()
		if !c.readStream(receive) {
			return
		}
		if time.Since(started) > maxStreamPause {
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// readStream reads the stream of notifications once. It returns false if the server has no
// such stream.
func (c *httpCarrier) readStream(receive func(jsonrpc.Message)) (again bool) {
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.address, nil)
	if err != nil {
		return false
	}
	r.Header.Set("Accept", "text/event-stream")
	if id := c.SessionID(); id != "" {
		r.Header.Set("Mcp-Session-Id", id)
	}
	response, err := c.client.Do(r)
	if err != nil {
		return true
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return response.StatusCode >= 500
	}
	c.isOpen.Store(true)
	defer c.isOpen.Store(false)
	readEvents(response.Body, func(data []byte) {
		if msg, err := jsonrpc.DecodeMessage(data); err == nil {
			receive(msg)
		}
	})
	return true
}

// readEvents calls receive with the data of each event of a stream, until the stream ends
// or an event is over MaxMessage.
func readEvents(from io.Reader, receive func(data []byte)) {
	lines := bufio.NewReaderSize(from, 64<<10)
	var data, line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		if len(line)+len(data) > MaxMessage {
			return
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return
		}
		line = bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		} else if len(line) == 0 && len(data) > 0 {
			receive(bytes.TrimSuffix(data, []byte("\n")))
			data = nil
		}
		line = line[:0]
	}
}
