package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// The paths of what is served beside the log.
const (
	statusPath     = "/status"
	checkpointPath = "/checkpoints/"
	syncPath       = "/sync"
	backupPath     = "/backup" // of a store's folder alone
	outputsPath    = "/v1/"
	metricsPath    = "/metrics"
	healthPath     = "/healthz" // for everybody
)

// maxCheckpoint bounds what is taken as a checkpoint.
const maxCheckpoint = 1 << 30

// beside returns what is served beside the log by HTTP.
func (s *host) beside() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, s.status)
	mux.Handle("GET "+metricsPath, s.metrics())
	mux.HandleFunc("GET "+checkpointPath+"{name...}", s.checkpoint)
	mux.HandleFunc("PUT "+checkpointPath+"{name...}", s.keepCheckpoint)
	mux.HandleFunc("POST "+syncPath, s.sync)
	if s.store.folder != nil {
		mux.HandleFunc("POST "+backupPath, s.backup)
	}
	kept := remote.Serve(s.kept, remote.Serving{Authorize: s.admit})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, outputsPath) { // which says in its own way who is refused
			kept.ServeHTTP(w, r)
		} else if r.URL.Path == healthPath {
			s.health(w, r)
		} else if err := s.admit(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="ledger"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
		} else {
			mux.ServeHTTP(w, r)
		}
	})
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
		if role, ok = s.cfg.Users.Authenticate(r.Context(), name, password); !ok {
			return errNoUser
		}
	} else if !byAddress(r.Host) {
		return errOtherName
	}
	if role < protocol.Ledger && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return errNoRight
	}
	return nil
}

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
	*reading        // nil: of a node
	Program  string `json:"program"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
	Time     stamp  `json:"time"`
	Store    string `json:"store"`
	Node     string `json:"node"`     // where other nodes ask for outputs
	Asked    int64  `json:"requests"` // by HTTP
	Refused  int64  `json:"refused"`  // of these
}

func (s *host) status(w http.ResponseWriter, _ *http.Request) {
	now := status{nil, "ledger", version(), s.at.PID, stamp(s.now()), s.store.name, s.at.Node, s.asked.Load(), s.refused.Load()}
	if s.meter != nil {
		r := s.meter.read()
		now.reading = &r
	}
	text, err := encode(now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // whoever asked is gone
}

func (s *host) checkpoint(w http.ResponseWriter, r *http.Request) {
	data, err := s.store.checkpoints.LoadCheckpoint(r.Context(), r.PathValue("name"))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case data == nil:
		http.Error(w, "no such checkpoint", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(data) // whoever asked is gone
	}
}

func (s *host) keepCheckpoint(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCheckpoint))
	if err == nil && int64(len(data)) != r.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.store.checkpoints.SaveCheckpoint(r.Context(), r.PathValue("name"), data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// sync answers when what was saved before is durable.
func (s *host) sync(w http.ResponseWriter, r *http.Request) {
	if err := s.store.checkpoints.Sync(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// A backupOrder asks for a backup into a folder of this machine.
type backupOrder struct {
	To string `json:"to"` // an absolute path
}

// backup makes a backup while the store is served, for who asks from this
// machine: it writes files here.
func (s *host) backup(w http.ResponseWriter, r *http.Request) {
	if from, _, err := net.SplitHostPort(r.RemoteAddr); err != nil || !net.ParseIP(from).IsLoopback() {
		http.Error(w, "access denied: a backup is made for who asks on this machine", http.StatusForbidden)
		return
	}
	var order backupOrder
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&order); err != nil || !filepath.IsAbs(order.To) {
		http.Error(w, `a backup is asked for as {"to": an absolute path}`, http.StatusBadRequest)
		return
	}
	folder := s.store.folder
	made, wrote, err := folder.store.Backup(r.Context(), order.To, embedded.NamedPart{Name: outputsName, Part: engine.BackedUpOutputs{Store: folder.outputs}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text, err := encode(backupRowOf(order.To, folder.dir, made, wrote))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // whoever asked is gone, and the backup stands
}
