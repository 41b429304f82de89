package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/plugins"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp/transport"
)

// A connection is one start of a server: the Link, the session of the SDK, and the open
// calls. It starts in the background.
type connection struct {
	server    *ToolServer
	at        plugins.PluginLocation
	link      *transport.Link
	started   time.Time
	waitUntil time.Time
	// ready is closed when the first list was read or the start has failed.
	ready  chan struct{}
	cancel context.CancelCauseFunc
	joined sync.WaitGroup
	tokens atomic.Int64
	// dirty is set if the list of tools has changed since it was read.
	dirty atomic.Bool
	// session is set before ready is closed.
	session *sdk.ClientSession
	closing sync.Once
	// counted is set once the end of the connection is on record. It belongs to Refresh.
	counted bool

	mu struct {
		sync.Mutex
		list     *listing
		err      error // why the start failed
		listErr  error // why the list could not be read again
		listedAt time.Time
		relist   chan struct{} // closed when the list was read again; nil: it is not being read
		calls    map[string]*remoteCall
	}
}

// newConnection begins to start a server.
func newConnection(s *ToolServer, at plugins.PluginLocation, wait time.Duration) *connection {
	c := &connection{server: s, at: at, started: time.Now(), ready: make(chan struct{})}
	c.waitUntil = c.started.Add(wait + endWait)
	c.mu.calls = map[string]*remoteCall{}
	ctx, cancel := context.WithCancelCause(context.Background())
	c.cancel = cancel
	link, err := s.link(at, transport.Handlers{
		Elicit: c.elicitRequest, Roots: c.roots, Progress: c.progress, ListChanged: func() { c.dirty.Store(true) },
	})
	if err != nil {
		c.mu.err = err
		close(c.ready)
		return c
	}
	c.link = link
	c.joined.Go(func() { c.run(ctx) })
	return c
}

// client returns a client of the SDK for the connection.
func (c *connection) client() *sdk.Client {
	return sdk.NewClient(&sdk.Implementation{Name: "ledger", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{
			//lint:ignore SA1019 servers of the protocols before 2026-07-28 ask for roots
			RootsV2:     &sdk.RootCapabilities{},
			Elicitation: &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}},
		},
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		// The Link handles this notification. The handler makes the SDK subscribe to it.
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { c.dirty.Store(true) },
	})
}

// run connects and reads the first list.
func (c *connection) run(ctx context.Context) {
	defer close(c.ready)
	limit := c.server.config.StartupTimeout
	late := fmt.Errorf("it did not answer initialize and list its tools within %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	// The SDK does not always obey its context, but its requests end with the Link.
	stop := context.AfterFunc(ctx, func() { c.joinedClose() })
	session, err := c.client().Connect(ctx, c.link, nil)
	var list *listing
	if err == nil {
		c.session = session
		list, err = c.list(ctx)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = c.explain("start", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.list, c.mu.err, c.mu.listedAt = list, err, time.Now()
}

// joinedClose closes the Link.
func (c *connection) joinedClose() { _ = c.link.Close() }

// explain returns an error with the reason why the connection has ended, if it has. It
// then also has the standard error of the process.
func (c *connection) explain(doing string, err error) error {
	select {
	case <-c.link.Ended():
		c.joinedClose()
		if fault := c.link.Fault(); !errors.Is(fault, transport.ErrLinkClosed) {
			err = fault
		} else if end, ok := errors.AsType[*transport.EndError](fault); ok && end.ErrorOutput != "" {
			err = fmt.Errorf("%w; its standard error has: %s", err, end.ErrorOutput)
		}
	default:
	}
	return fmt.Errorf("%s: %w%s", doing, err, c.dropped())
}

// dropped returns what the server sent in vain, for the reason of its end. It is empty if
// that is nothing.
func (c *connection) dropped() string {
	n := c.link.Counts()
	if n == (transport.Counts{}) {
		return ""
	}
	return fmt.Sprintf(" (dropped before: %d lines that are no messages, %d answers without a request, %d other messages)", n.Noise, n.Foreign, n.Ignored)
}

// close ends the connection and waits for its goroutines.
func (c *connection) close() {
	c.closing.Do(func() {
		c.cancel(transport.ErrLinkClosed)
		if c.link != nil {
			_ = c.link.Close()
		}
		c.joined.Wait()
		if c.session != nil {
			_ = c.session.Close()
		}
	})
}

// hasEnded reports whether the start has failed or the connection was lost.
func (c *connection) hasEnded() bool {
	select {
	case <-c.ready:
	default:
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return true
	}
	select {
	case <-c.link.Ended():
		return true
	default:
		return false
	}
}

// wasListed reports whether the first list was read.
func (c *connection) wasListed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.list != nil
}

// listed returns the list of tools, or why the start has failed. done is false if the
// server is still starting at the end of the time to wait. If the list has changed, listed
// reads it again and waits for a while.
func (c *connection) listed(ctx context.Context) (l *listing, done bool, err error) {
	if !waitFor(ctx, c.ready, time.Until(c.waitUntil)) {
		return nil, false, nil
	}
	if again := c.readAgain(); again != nil {
		waitFor(ctx, again, retryWait)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.list, true, c.mu.err
}

// waitFor waits for a channel, for at most a time and up to refreshReserve before the
// deadline of ctx. It reports whether the channel was closed.
func waitFor(ctx context.Context, ready <-chan struct{}, most time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)-refreshReserve)
	}
	timer := time.NewTimer(max(most, 0))
	defer timer.Stop()
	select {
	case <-ready:
		return true
	default:
	}
	select {
	case <-ready:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// readAgain begins to read the list again if it has changed, or if the server cannot
// report changes and the list is old. It returns a channel that is closed when the list
// was read, and nil if the list is current.
func (c *connection) readAgain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil || c.mu.relist != nil {
		return c.mu.relist
	}
	old := !c.link.Listens() && time.Since(c.mu.listedAt) > pollInterval
	if !c.dirty.Swap(false) && !old {
		return nil
	}
	done := make(chan struct{})
	c.mu.relist = done
	c.joined.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), c.server.config.StartupTimeout)
		defer cancel()
		l, err := c.list(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.relist, c.mu.listedAt, c.mu.listErr = nil, time.Now(), err
		if err == nil {
			c.mu.list = l
		} else {
			c.dirty.Store(true)
		}
	})
	return done
}

// listFault returns why the list could not be read again. Nil: it is current.
func (c *connection) listFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.listErr == nil {
		return nil
	}
	return fmt.Errorf("read the list of tools again: %w", c.mu.listErr)
}

// stillStarting returns the reason for a server that is not ready.
func (c *connection) stillStarting() error {
	return fmt.Errorf("it is still starting; its tools are offered once it has listed them, within %v", c.server.config.StartupTimeout)
}

// newToken returns a token for a request that no other request of the connection has.
func (c *connection) newToken() string { return fmt.Sprintf("ledger-%d", c.tokens.Add(1)) }

// roots answers roots/list with the folder of the location.
func (c *connection) roots() any { return c.rootList() }

// rootList returns the folder of the location as a root.
//
//lint:ignore SA1019 servers of the protocols before 2026-07-28 ask for roots
func (c *connection) rootList() *sdk.ListRootsResult {
	//lint:ignore SA1019 servers of the protocols before 2026-07-28 ask for roots
	return &sdk.ListRootsResult{Roots: []*sdk.Root{{URI: (&url.URL{Scheme: "file", Path: c.at.Folder}).String(), Name: "workspace"}}}
}

// progress passes a progress notification to its call.
func (c *connection) progress(params json.RawMessage) {
	var p struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress json.Number     `json:"progress"`
		Total    json.Number     `json:"total"`
		Message  string          `json:"message"`
	}
	var token string
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p.Token, &token) != nil {
		return
	}
	c.mu.Lock()
	call := c.mu.calls[token]
	c.mu.Unlock()
	if call == nil {
		return
	}
	report := domain.Progress{}
	if p.Message != "" {
		report.Content = domain.Contents{domain.Text(c.server.clean.line(p.Message, 1000))}
	}
	report.Structured, _ = json.Marshal(struct {
		Progress json.Number `json:"progress,omitempty"`
		Total    json.Number `json:"total,omitempty"`
	}{p.Progress, p.Total}) // numbers that were decoded
	call.report(report)
}
