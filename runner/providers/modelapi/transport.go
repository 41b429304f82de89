package modelapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// MaxResponse is the largest response in bytes.
const MaxResponse = 64 << 20

// The failures of a connection.
var (
	errStalled  = errors.New("the model server sent no byte for too long")
	errSilent   = errors.New("the model server sent bytes and no part of a reply for too long")
	errTooLarge = fmt.Errorf("the response has more than %d bytes", MaxResponse)
	errRedirect = errors.New("the server redirects the request: set the base URL to the address behind the redirect")
)

// A watchdog is the transport of one attempt. It notes the response, and resets the timer
// of the attempt whenever bytes arrive.
type watchdog struct {
	timer *time.Timer
	stall time.Duration
	// response is the last response. Its body belongs to the SDK.
	response *http.Response
}

// touch starts the timer again.
func (w *watchdog) touch() { w.timer.Reset(w.stall) }

// client returns a client over w that follows no redirect.
func (w *watchdog) client() *http.Client {
	return &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect }}
}

// RoundTrip sends a request with http.DefaultTransport.
func (w *watchdog) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	w.touch()
	w.response = response
	response.Body = &watchedBody{ReadCloser: response.Body, watchdog: w}
	return response, nil
}

// A watchedBody is the body of a response. It ends with errTooLarge behind MaxResponse
// bytes.
type watchedBody struct {
	io.ReadCloser
	watchdog *watchdog
	read     int64
}

// Read reads from the body.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watchdog.touch()
	}
	if b.read += int64(n); b.read > MaxResponse {
		return 0, errTooLarge
	}
	return n, err
}
