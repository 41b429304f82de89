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
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// The paths of what is served beside the log.
const (
	outputsPath = "/v1/"
	metricsPath = "/metrics"
	healthPath  = "/healthz" // for everybody
)

// beside returns what is served beside the log by HTTP.
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
		case errors.Is(err, server.ErrBusy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, outputsPath): // which says in its own way that it refuses
			kept.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), refusalKey{}, err)))
		case err != nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="ledger"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// refusalKey is that of the error for which a request for outputs is refused.
type refusalKey struct{}

// about returns what a host says of itself.
func (s *host) about() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+stores.StatusPath, s.status)
	mux.Handle("GET "+metricsPath, s.metrics())
	return mux
}

// admit counts a request, and says what is wrong with it.
func (s *host) admit(r *http.Request) error {
	s.asked.Add(1)
	err := s.authorize(r)
	if err != nil {
		s.refused.Add(1)
	}
	return err
}

// The reasons for which a request is refused.
var (
	errNoUser    = errors.New("not authenticated: give a user and a password")
	errNoRight   = errors.New("access denied: this takes another role")
	errPage      = errors.New("access denied: a web page may have sent this")
	errOtherName = errors.New("access denied: ask by an address of this machine")
)

// authorize says what is wrong with a request: readers read, and ledger programs
// change. Where there are no users a page of another name, which a browser was
// made to believe is here, gets nothing.
func (s *host) authorize(r *http.Request) error {
	role := s.cfg.Anonymous
	if s.cfg.Users != nil {
		name, password, ok := r.BasicAuth()
		if !ok {
			return errNoUser
		}
		var err error
		if role, err = s.cfg.Users.Authenticate(r.Context(), name, password); errors.Is(err, server.ErrNotAuthenticated) {
			return errNoUser
		} else if err != nil {
			return err
		}
	} else if !byAddress(r.Host) {
		return errOtherName
	} else {
		conns.FromContext(r.Context()).Authenticated()
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if role < server.Ledger {
		return errNoRight
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && slices.Contains(pageTypes, kind) {
		return errPage
	}
	return nil
}

// pageTypes are the media types that a web page can send to any address without
// asking there first. Programs of the ledger send none of them.
var pageTypes = []string{"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}

// byAddress reports whether a host is an address of this machine, or localhost.
func byAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A status is what a serving process says of itself.
type status struct {
	*reading                  // nil: of a node
	Program  string           `json:"program"`
	Version  string           `json:"version"`
	PID      int              `json:"pid"`
	Time     render.Timestamp `json:"time"`
	Store    string           `json:"store"`
	Node     string           `json:"node"`     // where other nodes ask for outputs
	Asked    int64            `json:"requests"` // by HTTP
	Refused  int64            `json:"refused"`  // of these
}

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
	_, _ = w.Write(append(text, '\n')) // whoever asked is gone
}
