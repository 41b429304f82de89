package shared

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// A Client sends requests for checkpoints, backups and outputs to the process at an
// endpoint. It implements DurableCheckpoints, and is safe for concurrent use. It does not
// repeat a request. The caller of NewClient closes it.
type Client struct {
	Endpoint Endpoint
	http     *http.Transport
}

// requestTimeout is how long the process at an endpoint may take for a response. It
// does not apply to a backup.
const requestTimeout = 15 * time.Second

// NewClient returns a client of an endpoint, which the caller closes. It sends no
// request. It returns an ErrBadEndpoint for an endpoint without a valid certificate.
func NewClient(e Endpoint) (*Client, error) {
	trusted, err := e.TLS()
	if err != nil {
		return nil, err
	}
	return &Client{e, &http.Transport{
		TLSClientConfig: trusted, DialContext: (&net.Dialer{Timeout: requestTimeout}).DialContext, TLSHandshakeTimeout: requestTimeout,
	}}, nil
}

// Close closes the idle connections and returns nil. Running requests finish.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Outputs returns a client of the blob store at the endpoint, which the caller closes.
// retry is its remote.Config.Retry: negative means no retry.
func (c *Client) Outputs(retry time.Duration) (*remote.Client, error) {
	trusted, err := c.Endpoint.TLS()
	if err != nil {
		return nil, err
	}
	return remote.Open(c.Endpoint.Web, remote.Config{User: c.Endpoint.User, Password: c.Endpoint.Password, TLS: trusted, Retry: retry})
}

// send makes a request with the credentials and returns the response, whose body the
// caller closes. It returns an ErrNoResponse if the process does not respond, and the
// cause of ctx if ctx ended.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.Endpoint.Web+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(c.Endpoint.User, c.Endpoint.Password)
	response, err := c.http.RoundTrip(r)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoResponse, err)
	}
	return response, nil
}

// Do makes a request and returns the body of the response, or nil for the status 404.
// It returns an ErrNoResponse if the process does not respond, or if it rejects the
// password, since another process has then replaced the one that wrote the endpoint.
// For every other status from 400 on it returns an error with the text of the
// response.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoResponse, err)
	case response.StatusCode == http.StatusNotFound:
		return nil, nil
	case response.StatusCode == http.StatusUnauthorized: // another process has replaced the endpoint
		return nil, fmt.Errorf("%w: it does not accept the password", ErrNoResponse)
	case response.StatusCode >= http.StatusBadRequest:
		return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return text, nil
}

// errRequestTimeout ends a request without a response in time.
var errRequestTimeout = errors.New("it did not answer in time")

// doTimeout is Do with a limit: after requestTimeout it returns an ErrNoResponse.
func (c *Client) doTimeout(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("%w: %w", ErrNoResponse, errRequestTimeout))
	defer cancel()
	return c.Do(ctx, method, path, body)
}

// SaveCheckpoint replaces the data under a name in the store. The data are durable
// after the next Sync.
func (c *Client) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if _, err := c.doTimeout(ctx, http.MethodPut, checkpointPath+url.PathEscape(name), data); err != nil {
		return fmt.Errorf("save checkpoint %s: %w", name, err)
	}
	return nil
}

// LoadCheckpoint returns the data under a name in the store, or nil without an error if
// there is no checkpoint of this name.
func (c *Client) LoadCheckpoint(ctx context.Context, name string) ([]byte, error) {
	data, err := c.doTimeout(ctx, http.MethodGet, checkpointPath+url.PathEscape(name), nil)
	if err != nil {
		return nil, fmt.Errorf("load checkpoint %s: %w", name, err)
	}
	return data, nil
}

// Sync returns nil when all data that were appended and saved before are durable.
func (c *Client) Sync(ctx context.Context) error {
	if _, err := c.doTimeout(ctx, http.MethodPost, syncPath, nil); err != nil {
		return fmt.Errorf("sync the store: %w", err)
	}
	return nil
}

// Backup has the process at the endpoint write a backup into a folder of this machine,
// an absolute path, and returns when the backup is complete. Only ctx limits it. The
// error names the process.
func (c *Client) Backup(ctx context.Context, dir string) (made BackupReport, err error) {
	request, err := json.Marshal(backupRequest{dir})
	if err != nil {
		return made, err
	}
	text, err := c.Do(ctx, http.MethodPost, backupPath, request)
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	if err != nil {
		return made, fmt.Errorf("backup by process %d, which serves the store: %w", c.Endpoint.PID, err)
	}
	return made, nil
}
