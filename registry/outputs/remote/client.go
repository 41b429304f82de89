package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A Config says how a node is asked.
type Config struct {
	User        string // empty: nobody in particular
	Password    string
	TLS         *tls.Config   // for https; nil: the certificates that this machine trusts
	IdleTimeout time.Duration // how long a node may be silent; zero: 15 s
	Retry       time.Duration // for how long what failed on the way is tried again; zero: 2 s, negative: not at all
	// Home says, to OpenNodes, that what is here lies beside the log: a process
	// without a lease held both alone, so that what it kept is here or gone.
	Colocated bool
}

// A Client reads and keeps outputs at a node. Whoever opened it closes it. All
// of its errors name the node's address.
type Client struct {
	address   string // without credentials
	base      *url.URL
	user      *url.Userinfo
	timeout   time.Duration
	retry     time.Duration
	transport *http.Transport
	closed    atomic.Bool
}

var _ BlobStore = (*Client)(nil)

// waitForContinue is how long an upload waits for the node to say that it
// wants it.
const waitForContinue = 5 * time.Second

// Open returns a client of the node at an address, http://HOST:PORT or
// https://HOST:PORT with or without a path. It returns an [ErrBadAddress] for
// any other, and for one at which a password would be sent in the clear to
// another machine. Nothing is asked before the first call.
func Open(address string, cfg Config) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no URL", ErrBadAddress) // its text would be shown whole, with a password
	}
	c := &Client{base: base, timeout: cfg.IdleTimeout, retry: cfg.Retry}
	if cfg.User != "" {
		c.user = url.UserPassword(cfg.User, cfg.Password)
	} else if base.User != nil {
		c.user = base.User
	}
	base.User = nil
	c.address = base.String()
	switch {
	case base.Scheme != "http" && base.Scheme != "https", base.Hostname() == "", base.RawQuery != "", base.Fragment != "":
		return nil, fmt.Errorf("%w: %q is not http://HOST:PORT or https://HOST:PORT", ErrBadAddress, c.address)
	case base.Scheme == "http" && c.user != nil && !isLoopback(base.Hostname()):
		return nil, fmt.Errorf("%w: the password would be sent to %s in the clear: use https", ErrBadAddress, c.address)
	}
	if c.timeout == 0 {
		c.timeout = 15 * time.Second
	}
	if c.retry == 0 {
		c.retry = 2 * time.Second
	}
	c.transport = &http.Transport{
		TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 8,
		IdleConnTimeout: time.Minute, ExpectContinueTimeout: waitForContinue,
		DialContext: (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext,
	}
	return c, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Address returns the address of the node, without credentials.
func (c *Client) Address() string { return c.address }

// Close ends the idle connections. Calls and outputs that are open end by
// themselves; another call is an outputs.ErrClosed. A second Close does nothing.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.transport.CloseIdleConnections()
	return nil
}

// A question is one request, which can be made more than once.
type request struct {
	method string
	path   string // with a query
	header http.Header
	body   *requestBody
}

// The pauses between tries.
const (
	firstPause = 25 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// ask asks a question that may be asked twice, until there is an answer, and
// hands that to use.
func (c *Client) do(ctx context.Context, q request, use func(http.Header, io.Reader) error) error {
	wait := c.newBackoff()
	for {
		err := c.attempt(ctx, q, use)
		if err == nil || !retryable(err) || !wait(ctx) {
			return err
		}
	}
}

// tries returns a function that waits before another try and reports whether
// there may be one. The time for them begins with the first that failed.
func (c *Client) newBackoff() func(context.Context) bool {
	var end time.Time
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval, pauses.Multiplier = firstPause, maxPause, 2
	return func(ctx context.Context) bool {
		now, pause := time.Now(), pauses.NextBackOff()
		if end.IsZero() {
			end = now.Add(c.retry)
		}
		if now.Add(pause).After(end) || c.closed.Load() {
			return false
		}
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// passing reports whether what failed may go well a moment later: the node is
// starting or stopping, or the way to it was cut.
func retryable(err error) bool {
	if _, wrong := errors.AsType[*tls.CertificateVerificationError](err); wrong || errors.Is(err, errIdle) {
		return false
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, outputs.ErrClosed) || errors.Is(err, ErrChecksum)
}

// once asks a question and hands the answer to use.
func (c *Client) attempt(ctx context.Context, q request, use func(http.Header, io.Reader) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.closed.Load() {
		return fmt.Errorf("ask node %s: %w", c.address, outputs.ErrClosed)
	}
	attempt, idle := withIdleTimeout(ctx, c.timeout)
	defer idle.end()
	r, err := c.newRequest(attempt, q, idle)
	if err != nil {
		return err
	}
	response, err := c.transport.RoundTrip(r)
	if q.body != nil {
		defer q.body.detach() // the transport may still want to read
	}
	if err != nil {
		return c.unreachable(ctx, attempt, err)
	}
	defer response.Body.Close()
	body := &responseBody{c, ctx, attempt, idle, response.Body}
	if err := c.responseError(response); err != nil {
		return err
	}
	return use(response.Header, body)
}

func (c *Client) newRequest(ctx context.Context, q request, idle *idleTimer) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, strings.TrimSuffix(c.address, "/")+q.path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask node %s: %w", c.address, err)
	}
	if q.header != nil {
		r.Header = q.header.Clone() // the transport may still read that of the try before
	}
	if c.user != nil {
		password, _ := c.user.Password()
		r.SetBasicAuth(c.user.Username(), password)
	}
	if q.body != nil {
		q.body.idle, q.body.trailer = idle, http.Header{digestHeader: nil}
		r.Body, r.ContentLength, r.Trailer = q.body, -1, q.body.trailer
	}
	return r, nil
}

// understand returns the error that an answer is.
func (c *Client) responseError(a *http.Response) error {
	errorText := a.Header.Get(errorHeader)
	switch version := a.Header.Get(protocolHeader); {
	case version == protocol && errorText != "":
		return fmt.Errorf("node %s: %w", c.address, decodeError(errorText))
	case version == protocol && a.StatusCode < 300:
		return nil
	case version == "":
		return fmt.Errorf("ask %s: %w: it says %q", c.address, ErrNotANode, truncate(a.Status))
	}
	return fmt.Errorf("ask %s: %w: it speaks version %q of the protocol and says %q, this program speaks %s",
		c.address, ErrNotANode, truncate(a.Header.Get(protocolHeader)), truncate(a.Status), protocol)
}

// unreachable returns why there is no answer, or not all of it: the context has
// ended, or else an ErrUnreachable.
func (c *Client) unreachable(ctx, attempt context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case attempt.Err() != nil:
		err = context.Cause(attempt)
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.address, err)
}

// errSilent is why a node is given up.
var errIdle = errors.New("it is silent")

// A watch ends a question when the node was silent for too long.
type idleTimer struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

func withIdleTimeout(ctx context.Context, timeout time.Duration) (context.Context, *idleTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &idleTimer{timeout, time.AfterFunc(timeout, func() {
		cancel(fmt.Errorf("%w for %v", errIdle, timeout))
	}), cancel}
}

func (t *idleTimer) begin() { t.timer.Reset(t.timeout) }
func (t *idleTimer) pause() { t.timer.Stop() }

func (t *idleTimer) end() {
	t.timer.Stop()
	t.cancel(nil)
}

// A heard body is what a node answers, while it is being said.
type responseBody struct {
	client       *Client
	ctx, attempt context.Context
	idle         *idleTimer
	body         io.Reader
}

// Read returns io.EOF only where all was heard that the node said it would say.
func (h *responseBody) Read(p []byte) (int, error) {
	h.idle.begin()
	n, err := h.body.Read(p)
	h.idle.pause()
	if err != nil && err != io.EOF {
		err = h.client.unreachable(h.ctx, h.attempt, err)
	}
	return n, err
}

// nothing is for answers that say no more than that all went well.
func ignoreBody(http.Header, io.Reader) error { return nil }

// Confirm is [outputs.Store.Confirm] at the node.
func (c *Client) Confirm(ctx context.Context, settlement domain.EventID) error {
	if err := c.do(ctx, request{method: http.MethodPost, path: "/v1/settlements/" + settlement.String() + "/confirm"}, ignoreBody); err != nil {
		return fmt.Errorf("confirm the outputs of %v: %w", settlement, err)
	}
	return nil
}

// Drop is [outputs.Store.Drop] at the node.
func (c *Client) Drop(ctx context.Context, settlement domain.EventID) error {
	if err := c.do(ctx, request{method: http.MethodDelete, path: "/v1/settlements/" + settlement.String()}, ignoreBody); err != nil {
		return fmt.Errorf("drop the outputs of %v: %w", settlement, err)
	}
	return nil
}

// Prune is [outputs.Store.Prune] at the node. One that had been made when its
// answer was lost, and is made again, succeeds.
func (c *Client) Prune(ctx context.Context, ref domain.Ref, policy string, at time.Time) (domain.Retained, error) {
	var retained domain.Retained
	query := url.Values{"policy": {policy}, "at": {at.UTC().Format(time.RFC3339Nano)}}
	tries := 0
	q := request{method: http.MethodPost, path: pathOf(ref) + "/prune?" + query.Encode()}
	wait := c.newBackoff()
	for {
		err := c.attempt(ctx, q, func(h http.Header, _ io.Reader) (err error) {
			retained, err = c.retained(ref, h)
			return err
		})
		p, gone := errors.AsType[*outputs.PrunedError](err)
		switch {
		case err == nil, gone && tries > 0 && p.Policy == policy && p.At.Equal(at):
			if gone {
				retained = p.Retained
			}
			return retained, nil
		case gone:
			return p.Retained, fmt.Errorf("prune %v: %w", ref, err)
		case !retryable(err) || !wait(ctx):
			return domain.Retained{}, fmt.Errorf("prune %v: %w", ref, err)
		}
		tries++
	}
}

// Stat is [outputs.Store.Stat] at the node.
func (c *Client) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	retained, err := c.stat(ctx, ref)
	if err != nil {
		return retained, fmt.Errorf("stat %v: %w", ref, err)
	}
	return retained, nil
}

func (c *Client) stat(ctx context.Context, ref domain.Ref) (retained domain.Retained, err error) {
	if err := valid(ref); err != nil {
		return retained, err
	}
	err = c.do(ctx, request{method: http.MethodHead, path: pathOf(ref)}, func(h http.Header, _ io.Reader) (err error) {
		retained, err = c.retained(ref, h)
		return err
	})
	if p, ok := errors.AsType[*outputs.PrunedError](err); ok {
		retained = p.Retained
	}
	return retained, err
}

// valid returns an ErrBadRef for what names no output.
func valid(ref domain.Ref) error {
	if _, err := domain.ParseRef(ref.String()); err != nil || ref.Settlement().IsZero() {
		return fmt.Errorf("%w: it names no output", domain.ErrBadRef)
	}
	return nil
}

// retained returns what an answer says is known of an output.
func (c *Client) retained(ref domain.Ref, h http.Header) (domain.Retained, error) {
	r, err := decodeRetained(h.Get(retainedHeader))
	if err == nil && r.Ref != ref {
		err = fmt.Errorf("it describes %v", r.Ref)
	}
	if err != nil {
		return domain.Retained{}, fmt.Errorf("ask node %s of %v: %w: %w", c.address, ref, ErrNotANode, err)
	}
	return r, nil
}
