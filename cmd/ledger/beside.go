package main

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
	metricsPath = "/metrics" // metrics of the host
	healthPath  = "/healthz" // the health check, which needs no authentication
)

// beside returns the HTTP handler for outputs, status and metrics. It checks each request
// with admit, except a health check. It answers 503 with Retry-After while too many password
// checks wait, and 401 to other refused requests; package remote answers refused requests
// for outputs itself, so that its clients recognize the error.
func (s *host) beside() http.Handler {
	mux := s.about()
	kept := remote.Serve(s.kept, remote.ServerConfig{Authorize: func(r *http.Request) error {
		refusal, _ := r.Context().Value(refusalKey{}).(error)
		return refusal
	}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath {
			s.health(w, r)
			return
		}
		err := s.admit(r)
		switch {
		case errors.Is(err, auth.ErrBusy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, outputsPath): // package remote encodes the refusal itself
			kept.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), refusalKey{}, err)))
		case err != nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="ledger"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// refusalKey is the context key of the error with which admit refused a request for outputs.
type refusalKey struct{}

// about returns a mux that serves the status and the metrics of the host. It does not
// authenticate: beside does that for remote clients, and shared.Holder for local ones.
func (s *host) about() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+stores.StatusPath, s.status)
	mux.Handle("GET "+metricsPath, s.metrics())
	return mux
}

// admit authorizes a request, and counts it and its refusal. It returns the reason of the
// refusal, or nil.
func (s *host) admit(r *http.Request) error {
	s.asked.Add(1)
	err := s.authorize(r)
	if err != nil {
		s.refused.Add(1)
	}
	return err
}

// The errors with which authorize refuses a request. Their texts are in the response.
var (
	errNoUser    = errors.New("not authenticated: give a user and a password")    // no credentials, or wrong ones
	errNoRight   = errors.New("access denied: this takes another role")           // a write by a role below auth.Ledger
	errPage      = errors.New("access denied: a web page may have sent this")     // a media type of pageTypes
	errOtherName = errors.New("access denied: ask by an address of this machine") // see byAddress
)

// authorize returns the error with which the host refuses a request, or nil. Any role may
// send GET and HEAD; other methods need the role auth.Ledger. A host without users serves
// only requests whose Host header is a loopback address, which stops DNS rebinding: a web
// page whose host name resolves to this machine. A write with a media type of pageTypes is
// refused, which stops cross-site request forgery.
func (s *host) authorize(r *http.Request) error {
	role := s.cfg.Anonymous
	if s.cfg.Users != nil {
		name, password, ok := r.BasicAuth()
		if !ok {
			return errNoUser
		}
		var err error
		if role, err = s.cfg.Users.Authenticate(r.Context(), name, password); errors.Is(err, auth.ErrNotAuthenticated) {
			return errNoUser
		} else if err != nil {
			return err
		}
	} else if !byAddress(r.Host) {
		return errOtherName
	} else {
		// The limiter closes connections that stay unauthenticated, and this host has no users.
		conns.FromContext(r.Context()).Authenticated()
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if role < auth.Ledger {
		return errNoRight
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && slices.Contains(pageTypes, kind) {
		return errPage
	}
	return nil
}

// pageTypes are the media types that a browser sends across origins without a CORS
// preflight. No program of the ledger sends them.
var pageTypes = []string{"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}

// byAddress reports whether a Host header, with or without a port, is a loopback address or
// localhost.
func byAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A status is the JSON document of the status path: the state of a host.
type status struct {
	*reading                  // counters of the store; nil: the host serves a node
	Program  string           `json:"program"`
	Version  string           `json:"version"`
	PID      int              `json:"pid"`      // of the process that serves
	Time     render.Timestamp `json:"time"`     // of the response
	Store    string           `json:"store"`    // the name of the store, without a password
	Node     string           `json:"node"`     // the URL at which other nodes request outputs
	Asked    int64            `json:"requests"` // HTTP requests since the start
	Refused  int64            `json:"refused"`  // refused HTTP requests since the start
}

// status writes the status document.
func (s *host) status(w http.ResponseWriter, _ *http.Request) {
	now := status{nil, "ledger", version(), s.at.PID, render.Timestamp(s.Now()), s.store.Name, s.at.Node, s.asked.Load(), s.refused.Load()}
	if s.meter != nil {
		r := s.meter.read()
		now.reading = &r
	}
	text, err := render.EncodeJSON(now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client closed the connection
}
