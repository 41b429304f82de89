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

// A Config configures clients of nodes. The zero Config is valid.
type Config struct {
	// User is the name for basic authentication. Empty: the credentials in the
	// address, if any.
	User string
	// Password belongs to User.
	Password string
	// TLS is the configuration for https. Nil: the certificates of the system.
	TLS *tls.Config
	// IdleTimeout is the time after which a request to an idle node fails. Zero: 15 s.
	IdleTimeout time.Duration
	// Retry is how long retryable errors are retried. Zero: 2 s; negative: not at all.
	Retry time.Duration
	// Colocated is set if the local store and the log are in one folder. Only OpenNodes
	// uses it. A process without a lease had this folder to itself, so each blob of
	// that process is in the local store or lost.
	Colocated bool
}

// A Client offers the methods of an outputs.Store at a node. It is safe for concurrent
// use. All of its errors have the node's address. The caller of Open closes it.
//
// An idempotent request is repeated with backoff after a retryable error. Keep and
// Prune are not idempotent: after a failed attempt, they first ask the node whether
// that attempt took effect. A request ends when its context ends, or when no data has
// moved for the idle timeout.
type Client struct {
	// address is the address of the node without credentials.
	address string
	base    *url.URL
	// user has the credentials. Nil: the client sends no credentials.
	user *url.Userinfo
	// timeout is Config.IdleTimeout, and retry Config.Retry, or their defaults.
	timeout   time.Duration
	retry     time.Duration
	transport *http.Transport
	closed    atomic.Bool
}

var _ BlobStore = (*Client)(nil)

// waitForContinue is how long an upload waits for a 100 Continue before it sends the
// body. A node that refuses the blob usually responds within that time, which saves
// the transfer.
const waitForContinue = 5 * time.Second

// Open returns a client of the node at an address: http://HOST:PORT or
// https://HOST:PORT, with an optional path. It returns an [ErrBadAddress] for an
// address in another form, and for an address to which the password would travel
// unencrypted over the network. Open sends no request; the caller closes the Client.
func Open(address string, cfg Config) (*Client, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no URL", ErrBadAddress) // the error of url.Parse quotes the password
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

// isLoopback reports whether a host name or address is certain to be this machine. It
// does not resolve names.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Address returns the address of the node, without credentials.
func (c *Client) Address() string { return c.address }

// Close closes the idle connections. Running calls and open readers finish; later
// calls return an outputs.ErrClosed. A second Close has no effect.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.transport.CloseIdleConnections()
	return nil
}

// A request is one HTTP request that attempt can send more than once.
type request struct {
	method string
	// path is relative to the address of the node. It includes the query.
	path   string
	header http.Header
	// body is nil for a request without one.
	body *requestBody
}

// The pauses between attempts double from the first to the longest.
const (
	firstPause = 25 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// do sends an idempotent request and passes the response to use. After a retryable
// error of the request or of use, it sends the request again with backoff. It returns
// the last error.
func (c *Client) do(ctx context.Context, q request, use func(http.Header, io.Reader) error) error {
	wait := c.newBackoff()
	for {
		err := c.attempt(ctx, q, use)
		if err == nil || !retryable(err) || !wait(ctx) {
			return err
		}
	}
}

// newBackoff returns a function that waits before the next attempt and returns true.
// The function returns false if no attempt may follow: the client is closed, the
// context ends during the wait, or the wait would end after the retry time. The retry
// time begins with the first failure.
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

// retryable reports whether another attempt may succeed soon: the node is starting or
// stopping, the connection broke, or the data changed in transit. It returns false for
// a rejected certificate, and for a node that was idle until the timeout, since another
// attempt could take as long.
func retryable(err error) bool {
	if _, wrong := errors.AsType[*tls.CertificateVerificationError](err); wrong || errors.Is(err, errIdle) {
		return false
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, outputs.ErrClosed) || errors.Is(err, ErrChecksum)
}

// attempt sends a request once and passes the response to use. It returns the error of
// use, the error that the response reports, ErrUnreachable, the cause of ctx, or, after
// Close, outputs.ErrClosed. use must not keep the body.
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
		defer q.body.detach() // the transport may still be reading the body
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

// newRequest returns the HTTP request of q with the credentials. It can be called
// again for another attempt, also while the transport still uses the previous request.
func (c *Client) newRequest(ctx context.Context, q request, idle *idleTimer) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, strings.TrimSuffix(c.address, "/")+q.path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask node %s: %w", c.address, err)
	}
	if q.header != nil {
		r.Header = q.header.Clone() // the transport may still read the header of the last attempt
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

// responseError returns nil for a response that reports success, and otherwise the
// error that the response reports. It returns an ErrNotANode for a response of another
// kind of server or of another version of the protocol.
func (c *Client) responseError(a *http.Response) error {
	errorText := a.Header.Get(errorHeader)
	switch version := a.Header.Get(protocolHeader); {
	case version == protocol && errorText != "":
		return fmt.Errorf("node %s: %w", c.address, decodeError(errorText))
	case version == protocol && a.StatusCode < 300:
		return nil
	case version == "":
		return fmt.Errorf("ask %s: %w: it responds %q", c.address, ErrNotANode, truncate(a.Status))
	}
	return fmt.Errorf("ask %s: %w: it has version %q of the protocol and answered %q, this program has version %s",
		c.address, ErrNotANode, truncate(a.Header.Get(protocolHeader)), truncate(a.Status), protocol)
}

// unreachable returns the error for a response that is missing or incomplete: the cause
// of ctx if ctx has ended, and otherwise an ErrUnreachable. The argument attempt is the
// context of the HTTP request, which the idle timer may have ended.
func (c *Client) unreachable(ctx, attempt context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case attempt.Err() != nil:
		err = context.Cause(attempt)
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.address, err)
}

// errIdle is the cause with which an idleTimer ends a request: the node neither sent
// nor received data for the whole timeout.
var errIdle = errors.New("no data from the node")

// An idleTimer cancels a request after the node has sent and received no data for the
// timeout. It is paused while the client itself works, for example while it reads the
// caller's reader.
type idleTimer struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

// withIdleTimeout returns a context and a running idleTimer, which cancels the context
// with errIdle when the timeout passes. The caller must call the method end of the
// timer.
func withIdleTimeout(ctx context.Context, timeout time.Duration) (context.Context, *idleTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &idleTimer{timeout, time.AfterFunc(timeout, func() {
		cancel(fmt.Errorf("%w for %v", errIdle, timeout))
	}), cancel}
}

// begin starts the timer anew: the node must send or receive data within the timeout.
func (t *idleTimer) begin() { t.timer.Reset(t.timeout) }

// pause stops the timer until begin is called.
func (t *idleTimer) pause() { t.timer.Stop() }

// end stops the timer and releases the context.
func (t *idleTimer) end() {
	t.timer.Stop()
	t.cancel(nil)
}

// A responseBody reads the body of a response. The idle timer runs during each Read.
type responseBody struct {
	client       *Client
	ctx, attempt context.Context
	idle         *idleTimer
	body         io.Reader
}

// Read returns io.EOF only at the end that the node declared, and an ErrUnreachable
// for a body that was cut short.
func (h *responseBody) Read(p []byte) (int, error) {
	h.idle.begin()
	n, err := h.body.Read(p)
	h.idle.pause()
	if err != nil && err != io.EOF {
		err = h.client.unreachable(h.ctx, h.attempt, err)
	}
	return n, err
}

// ignoreBody is the argument use of Client.do for a response whose body is empty.
func ignoreBody(http.Header, io.Reader) error { return nil }

// Confirm is [outputs.Store.Confirm] at the node. Confirming twice has no further
// effect, so it is repeated after a retryable error.
func (c *Client) Confirm(ctx context.Context, settlement domain.EventID) error {
	if err := c.do(ctx, request{method: http.MethodPost, path: "/v1/settlements/" + settlement.String() + "/confirm"}, ignoreBody); err != nil {
		return fmt.Errorf("confirm the outputs of %v: %w", settlement, err)
	}
	return nil
}

// Drop is [outputs.Store.Drop] at the node. Dropping twice has no further effect, so it
// is repeated after a retryable error.
func (c *Client) Drop(ctx context.Context, settlement domain.EventID) error {
	if err := c.do(ctx, request{method: http.MethodDelete, path: "/v1/settlements/" + settlement.String()}, ignoreBody); err != nil {
		return fmt.Errorf("drop the outputs of %v: %w", settlement, err)
	}
	return nil
}

// Prune is [outputs.Store.Prune] at the node. If the response to an attempt is lost,
// and a later attempt finds the blob pruned with the same policy and time, Prune
// succeeds. For a blob that was pruned with another policy or time, Prune returns the
// metadata of the blob and an outputs.PrunedError.
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

// Stat is [outputs.Store.Stat] at the node. For a pruned blob it returns both the
// metadata and an outputs.PrunedError.
func (c *Client) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	retained, err := c.stat(ctx, ref)
	if err != nil {
		return retained, fmt.Errorf("stat %v: %w", ref, err)
	}
	return retained, nil
}

// stat is Stat without the operation's name in its errors.
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

// valid returns a domain.ErrBadRef for a ref without a settlement or a channel.
func valid(ref domain.Ref) error {
	if _, err := domain.ParseRef(ref.String()); err != nil || ref.Settlement().IsZero() {
		return fmt.Errorf("%w: it names no output", domain.ErrBadRef)
	}
	return nil
}

// retained decodes the metadata in the headers of a response. It returns an ErrNotANode
// if the headers are missing or malformed, or describe another blob than ref.
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
