package serve

import (
	"context"
	"errors"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// The paths of the HTTP server for outputs and monitoring.
const (
	outputsPath = "/v1/"     // the outputs, by package remote
	metricsPath = "/metrics" // metrics of the process

	// HealthPath is the path of the health check, which needs no authentication.
	HealthPath = "/healthz"
)

// handler returns the HTTP handler for outputs, status and metrics. It checks each
// request with authorizeCounted, except a health check. It responds with 503 and
// Retry-After while too many password checks wait, with 401 to a request without valid
// credentials, and with 403 to a request that the user may not make. It passes refused
// requests for outputs to package remote, whose responses the clients of that package
// recognize.
func (s *serverProcess) handler() http.Handler {
	mux := s.monitoring()
	blobs := remote.Serve(s.outputs, remote.ServerConfig{Authorize: func(r *http.Request) error {
		refusal, _ := r.Context().Value(refusalKey{}).(error)
		return refusal
	}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == HealthPath {
			s.serveHealth(w, r)
			return
		}
		err := s.authorizeCounted(r)
		switch {
		case errors.Is(err, auth.ErrBusy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, outputsPath): // package remote encodes the refusal itself
			blobs.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), refusalKey{}, err)))
		case errors.Is(err, errNotPermitted) || errors.Is(err, errCrossSite) || errors.Is(err, errHostHeader):
			http.Error(w, err.Error(), http.StatusForbidden)
		case err != nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="ledger"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// refusalKey is the context key of the error with which authorizeCounted refused a
// request for outputs.
type refusalKey struct{}

// monitoring returns a mux that serves the status and the metrics of the process. It
// does not authenticate: handler does that for remote clients, and shared.Holder for
// local ones.
func (s *serverProcess) monitoring() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+stores.StatusPath, s.serveStatus)
	mux.Handle("GET "+metricsPath, s.metricsHandler())
	return mux
}

// authorizeCounted authorizes a request. It returns the reason if the request is
// refused, and nil otherwise. It counts all requests and the refused ones.
func (s *serverProcess) authorizeCounted(r *http.Request) error {
	s.requests.Add(1)
	err := s.authorize(r)
	if err != nil {
		s.refusedRequests.Add(1)
	}
	return err
}

// The errors with which authorize refuses a request. Their texts are in the response.
var (
	errNotAuthenticated = errors.New("not authenticated: give a user and a password")    // no credentials, or wrong ones
	errNotPermitted     = errors.New("access denied: this takes another role")           // a write by a role below auth.Ledger
	errCrossSite        = errors.New("access denied: a web page may have sent this")     // a media type of formMediaTypes
	errHostHeader       = errors.New("access denied: ask by an address of this machine") // see isLoopbackHost
)

// authorize returns the error with which the server refuses a request, or nil. Any role
// may send GET and HEAD; other methods need the role auth.Ledger. A server without
// users serves only requests whose Host header is a loopback address, which stops DNS
// rebinding: a web page whose host name resolves to this machine. A write with a media
// type of formMediaTypes is refused, which stops cross-site request forgery.
func (s *serverProcess) authorize(r *http.Request) error {
	role := s.access.Anonymous
	if s.access.Users != nil {
		name, password, ok := r.BasicAuth()
		if !ok {
			return errNotAuthenticated
		}
		var err error
		if role, err = s.access.Users.Authenticate(r.Context(), name, password); errors.Is(err, auth.ErrNotAuthenticated) {
			return errNotAuthenticated
		} else if err != nil {
			return err
		}
	} else if !isLoopbackHost(r.Host) {
		return errHostHeader
	} else {
		// The limiter closes connections that stay unauthenticated, and this
		// server has no users.
		conns.FromContext(r.Context()).Authenticated()
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if role < auth.Ledger {
		return errNotPermitted
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && slices.Contains(formMediaTypes, kind) {
		return errCrossSite
	}
	return nil
}

// formMediaTypes are the media types that a browser sends across origins without a CORS
// preflight. No program of the ledger sends them.
var formMediaTypes = []string{"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}

// isLoopbackHost reports whether a Host header, with or without a port, is a loopback
// address or localhost.
func isLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A statusResponse is the JSON document of the status path: the state of a serverProcess.
type statusResponse struct {
	*storeCounters                  // counters of the store; nil: the process serves a node
	Program        string           `json:"program"`
	Version        string           `json:"version"`
	PID            int              `json:"pid"`      // of the process that serves
	Time           render.Timestamp `json:"time"`     // of the response
	Store          string           `json:"store"`    // the name of the store, without a password
	Node           string           `json:"node"`     // the URL at which other nodes request outputs
	Asked          int64            `json:"requests"` // HTTP requests since the start
	Refused        int64            `json:"refused"`  // refused HTTP requests since the start
}

// serveStatus writes the status document.
func (s *serverProcess) serveStatus(w http.ResponseWriter, _ *http.Request) {
	now := statusResponse{nil, "ledger", s.Version, s.endpoint.PID, render.Timestamp(s.Now()), s.store.Name, s.endpoint.Node, s.requests.Load(), s.refusedRequests.Load()}
	if s.metered != nil {
		r := s.metered.counters()
		now.storeCounters = &r
	}
	text, err := render.EncodeJSON(now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client closed the connection
}
