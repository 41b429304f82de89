package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/backup"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// DurableCheckpoints stores checkpoints, and makes the stored ones durable in Sync.
// Implementations are safe for concurrent use.
type DurableCheckpoints interface {
	projections.Checkpoints
	// Sync returns nil when all data saved before are durable.
	Sync(ctx context.Context) error
}

// A BackupReport describes a backup and the number of bytes and files written for it.
type BackupReport struct {
	Backup  backup.Manifest `json:"backup"`
	Written backup.Written  `json:"written"`
}

// A HolderConfig configures a Holder, the server of a folder. Dir and Outputs are
// required. The caller owns the stores, and closes them after the Holder.
type HolderConfig struct {
	// Dir is the folder for the endpoint file.
	Dir string
	// Store is the log. Nil: the log is in a database.
	Store events.Store
	// Outputs is the blob store of the folder.
	Outputs *outputs.Store
	// Checkpoints are the served checkpoints. Nil: requests for them are not found.
	Checkpoints DurableCheckpoints
	// Backup writes a backup into a folder of this machine. Nil: the Holder responds to
	// requests for a backup with status 404.
	Backup func(ctx context.Context, dir string) (BackupReport, error)
	// Yield is called when another process requests the folder. It begins to give the
	// folder up, and returns before the folder is free. Nil: the Holder rejects such
	// requests.
	Yield func()
	// Status handles GET requests for paths that the Holder does not serve itself,
	// after the password was checked. Nil: such requests get status 404.
	Status http.Handler
	// Endpoint has Started, Command, Process, Before and the public addresses. Serve
	// sets the other fields.
	Endpoint Endpoint
	// Identity is the certificate and the password. Nil: Serve generates a new one.
	Identity *Identity
	// Logger receives errors of connections. Nil: they are discarded.
	Logger *slog.Logger
}

// The paths that a Holder serves in addition to the paths of package remote. All but
// outputsPath need the password in each request; package remote checks it below
// outputsPath.
const (
	// heartbeatPath serves a stream of heartbeats.
	heartbeatPath = "/alive"
	// checkpointPath serves GET and PUT of the checkpoint whose name follows.
	checkpointPath = "/checkpoints/"
	// syncPath serves POST of a sync.
	syncPath = "/sync"
	// backupPath serves POST of a backupRequest.
	backupPath = "/backup"
	// yieldPath serves POST of a request to give the folder up.
	yieldPath = "/yield"
	// outputsPath serves the paths of package remote.
	outputsPath = "/v1/"
)

// maxCheckpoint is the greatest size in bytes of a checkpoint.
const maxCheckpoint = 1 << 30

// maxConnections is the greatest number of client connections to both ports.
const maxConnections = 1024

// heartbeatInterval is the time between two heartbeats to a client.
const heartbeatInterval = 500 * time.Millisecond

// A Holder serves a folder to the processes of this machine that can read it, at two
// loopback ports: the event store protocol for the log, and HTTPS for everything else.
// Serve makes one. It is safe for concurrent use.
type Holder struct {
	cfg      HolderConfig
	identity *Identity
	// server serves the log. Nil: the log is in a database.
	server *server.Server
	// web serves the other requests.
	web *http.Server
	// closing ends when Close begins. The streams of heartbeats end with it.
	closing context.Context
	close   context.CancelFunc
	// running counts the goroutines that accept connections.
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		// endpoint is the current endpoint, and written whether it is in the folder.
		endpoint Endpoint
		written  bool
	}
}

// Serve begins to serve a folder at two free loopback ports. It generates a certificate
// and a password unless cfg has them. It does not write the endpoint into the folder;
// Publish does. The caller has the lock of the folder, and closes the Holder before the
// served stores.
func Serve(ctx context.Context, cfg HolderConfig) (*Holder, error) {
	s := &Holder{cfg: cfg}
	s.closing, s.close = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("serve %s to this machine: %w", cfg.Dir, errors.Join(err, s.Close(ctx)))
	}
	return s, nil
}

// open starts the two servers and completes the endpoint. After an error the caller
// calls Close, which stops a server that was started.
func (s *Holder) open(ctx context.Context) (err error) {
	s.identity = s.cfg.Identity
	if s.identity == nil {
		if s.identity, err = NewIdentity(); err != nil {
			return err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	e := s.cfg.Endpoint
	e.Host, e.PID = host, os.Getpid()
	e.User, e.Password, e.Certificate = s.identity.User, s.identity.Password, s.identity.Certificate
	connections := conns.New(conns.Config{Max: maxConnections})
	if s.cfg.Store != nil {
		if s.server, err = server.New(s.cfg.Store, server.Config{TLS: s.identity.TLS, Users: s.identity.Users, WithoutGroups: true, Connections: connections}); err != nil {
			return err
		}
		at, err := listen(ctx)
		if err != nil {
			return err
		}
		e.Log = at.Addr().String()
		s.running.Go(func() { s.ended(s.server.Serve(at)) })
	}
	at, err := listen(ctx)
	if err != nil {
		return err
	}
	e.Web = "https://" + at.Addr().String()
	s.mu.endpoint = e
	logger := s.cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	// An http.Server writes to its configuration of TLS, so each has a copy.
	s.web = &http.Server{
		Handler: s.routes(), TLSConfig: s.identity.TLS.Clone(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100}, ConnContext: conns.NewContext,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	s.running.Go(func() { s.ended(s.web.ServeTLS(connections.Listener(at), "", "")) })
	return nil
}

// listen listens at a free loopback port.
func listen(ctx context.Context) (net.Listener, error) {
	var opening net.ListenConfig
	return opening.Listen(ctx, "tcp", "127.0.0.1:0")
}

// ended logs err, the error with which a server stopped before Close. The Holder
// continues without that server: clients cannot connect to it again until the process
// ends.
func (s *Holder) ended(err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && s.cfg.Logger != nil {
		s.cfg.Logger.Error("processes of this machine are no longer served", "error", err)
	}
}

// Publish writes the endpoint into the folder, so that clients can connect. Close
// removes it.
func (s *Holder) Publish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.written = true
	return s.mu.endpoint.Write(s.cfg.Dir)
}

// UpdateEndpoint applies change to the endpoint. After Publish it also writes the
// changed endpoint into the folder. Connected clients keep the endpoint that they have
// read.
func (s *Holder) UpdateEndpoint(change func(*Endpoint)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.mu.endpoint)
	if !s.mu.written {
		return nil
	}
	return s.mu.endpoint.Write(s.cfg.Dir)
}

// drainTimeout is how long Close waits for the requests in progress.
const drainTimeout = 2 * time.Second

// Close ends the Holder. It removes the endpoint from the folder and ends the
// heartbeats, so that clients search for the next holder. It waits for the requests in
// progress, and after drainTimeout cuts them off. Close does not return earlier when
// ctx ends. It returns the error of removing the endpoint or of a server.
func (s *Holder) Close(ctx context.Context) error {
	s.close()
	s.mu.Lock()
	var err error
	if s.mu.written {
		err = retire(s.cfg.Dir)
		s.mu.written = false
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), drainTimeout, errDrainTimeout)
	defer cancel()
	var both sync.WaitGroup
	if s.web != nil {
		both.Go(func() {
			if s.web.Shutdown(ctx) != nil {
				_ = s.web.Close() // the error is that of calls that are cut off
			}
		})
	}
	if s.server != nil {
		if ended := s.server.Shutdown(ctx); ended != nil && !errors.Is(ended, errDrainTimeout) {
			err = errors.Join(err, ended)
		}
	}
	both.Wait()
	s.running.Wait()
	return err
}

// errDrainTimeout cuts off calls that still run when Close stops waiting.
var errDrainTimeout = errors.New("the service ended")

// routes returns the handler of all requests. It requires the password and rejects
// cross-origin requests of browsers.
func (s *Holder) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+heartbeatPath, s.heartbeat)
	if s.cfg.Checkpoints != nil {
		mux.HandleFunc("GET "+checkpointPath+"{name...}", s.checkpoint)
		mux.HandleFunc("PUT "+checkpointPath+"{name...}", s.saveCheckpoint)
		mux.HandleFunc("POST "+syncPath, s.sync)
	}
	if s.cfg.Backup != nil {
		mux.HandleFunc("POST "+backupPath, s.backup)
	}
	mux.HandleFunc("POST "+yieldPath, func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Yield == nil {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		s.cfg.Yield()
	})
	if s.cfg.Status != nil {
		mux.Handle("GET /", s.cfg.Status)
	}
	blobs := remote.Serve(s.cfg.Outputs, remote.ServerConfig{Authorize: s.authorize})
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch err := s.authorize(r); {
		case strings.HasPrefix(r.URL.Path, outputsPath): // package remote calls authorize itself
			blobs.ServeHTTP(w, r)
		case err != nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="ledger"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case origins.Check(r) != nil:
			http.Error(w, "access denied: the request comes from a page of another origin", http.StatusForbidden)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// errNotLocal is the error for a request without the credentials of the endpoint.
var errNotLocal = errors.New("not authenticated: give the user and the password of the endpoint")

// authorize returns errNotLocal for a request without the user and the password of the
// endpoint.
func (s *Holder) authorize(r *http.Request) error {
	name, password, ok := r.BasicAuth()
	if ok {
		_, err := s.identity.Users.Authenticate(r.Context(), name, password)
		ok = err == nil
	}
	if !ok {
		return errNotLocal
	}
	return nil
}

// heartbeat sends one byte in each heartbeatInterval until the client disconnects or
// Close begins. A client that does not read for 10 s is disconnected.
func (s *Holder) heartbeat(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	beats := time.NewTicker(heartbeatInterval)
	defer beats.Stop()
	for {
		_ = control.SetWriteDeadline(time.Now().Add(10 * time.Second)) // the connection has deadlines
		if _, err := io.WriteString(w, "."); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-beats.C:
		case <-s.closing.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}

// checkpoint handles GET of a checkpoint.
func (s *Holder) checkpoint(w http.ResponseWriter, r *http.Request) {
	data, err := s.cfg.Checkpoints.LoadCheckpoint(r.Context(), r.PathValue("name"))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case data == nil:
		http.Error(w, "no such checkpoint", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(data) // a client that is gone needs no response
	}
}

// saveCheckpoint handles PUT of a checkpoint. It rejects a body that is shorter than
// its declared length, or longer than maxCheckpoint.
func (s *Holder) saveCheckpoint(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCheckpoint))
	if err == nil && int64(len(data)) != r.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.writeResult(w, s.cfg.Checkpoints.SaveCheckpoint(r.Context(), r.PathValue("name"), data))
}

// sync handles a POST to syncPath. It responds when all data that were saved before the
// request are durable.
func (s *Holder) sync(w http.ResponseWriter, r *http.Request) {
	s.writeResult(w, s.cfg.Checkpoints.Sync(r.Context()))
}

// writeResult writes a response without content, or an error.
func (s *Holder) writeResult(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// A backupRequest is the body of a POST of a backup.
type backupRequest struct {
	To string `json:"to"` // an absolute path
}

// backup handles POST of a backup. The response has the BackupReport, when the backup
// is complete.
func (s *Holder) backup(w http.ResponseWriter, r *http.Request) {
	var request backupRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&request); err != nil || !filepath.IsAbs(request.To) {
		http.Error(w, `a backup is asked for as {"to": an absolute path}`, http.StatusBadRequest)
		return
	}
	made, err := s.cfg.Backup(r.Context(), request.To)
	var text []byte
	if err == nil {
		text, err = json.Marshal(made)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // a client that is gone needs no response
}

// SetProcess sets the ID of this process in the endpoint, after the log contains the
// start of the process. It writes the endpoint as UpdateEndpoint does.
func (s *Holder) SetProcess(process domain.ProcessID) error {
	return s.UpdateEndpoint(func(e *Endpoint) { e.Process = process })
}
