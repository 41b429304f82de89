package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// open opens the folder, or the node of a database, and starts the local server. In a
// folder it then recovers the work of dead processes. It registers this process in the
// log if mayHaveOutputs reports true. Last it creates the HTTP server. After an error
// everything but the public listeners is closed.
func (s *serverProcess) open(ctx context.Context, at stores.Address) (err error) {
	if at.Database == "" {
		err = s.openStore(ctx)
	} else {
		err = s.openNode(ctx, at)
	}
	if err != nil {
		return err
	}
	if err := s.serveLocal(ctx); err != nil {
		return errors.Join(err, s.store.Close())
	}
	if s.store.Folder != nil {
		err = s.recoverDead(ctx)
	}
	register := false
	if err == nil {
		register, err = s.mayHaveOutputs(ctx)
	}
	if err == nil && register {
		s.registration = &processRegistration{firstID: s.endpoint.Process, ledger: s.store.Ledger, address: s.endpoint.Node, version: s.Version, log: s.log, registered: s.recordProcessID}
		err = s.registration.register(ctx)
	}
	if err != nil {
		return errors.Join(err, s.removeCredentials(), s.localServer.Close(ctx), s.store.Close())
	}
	s.httpServer = &http.Server{
		Handler: s.handler(), TLSConfig: s.access.TLS.Clone(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100}, ConnContext: conns.NewContext,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// mayHaveOutputs reports whether other nodes may look here for outputs of processes that
// recorded no address. It returns true for a node, where processes may have worked
// before it was served, and for a folder that contains outputs. It returns false for a
// folder without outputs: open then writes no event into the folder, so an empty folder
// can still become the target of a copy.
func (s *serverProcess) mayHaveOutputs(ctx context.Context) (bool, error) {
	if s.store.Folder == nil {
		return true, nil
	}
	for _, err := range s.outputs.All(ctx) {
		return err == nil, err
	}
	return false, nil
}

// openStore opens the folder exclusively, wraps its log in a meteredStore and creates
// the protocol server. If another process has the folder open and agrees to hand it
// over, openStore takes the folder over.
func (s *serverProcess) openStore(ctx context.Context) error {
	owner := storedir.Owner{Command: stores.ServeCommand, PID: s.endpoint.PID, Started: s.endpoint.Started, Shares: true}
	opened, err := s.OpenFolder(ctx, s.dir, owner)
	if errors.Is(err, events.ErrInUse) {
		opened, err = s.takeOver(ctx, owner, err)
	}
	if err != nil {
		return err
	}
	s.endpoint.Before = opened.Before
	s.store, s.outputs, s.metered = opened, opened.Folder.Outputs, newMeteredStore(opened.Log.(*embedded.Store))
	opened.Log = s.metered
	if s.protocolServer, err = server.New(s.metered, s.access); err != nil {
		return errors.Join(err, opened.Close())
	}
	return nil
}

// takeOver asks the process that has the lock of the folder to yield the lock, and opens
// the folder once the lock is free. That process continues as a client of this one.
// takeOver returns the error inUse if that process is a server, does not share the
// folder, or does not yield within [stores.TakeoverTimeout].
func (s *serverProcess) takeOver(ctx context.Context, owner storedir.Owner, inUse error) (*stores.Store, error) {
	waitCtx, cancel := context.WithTimeoutCause(ctx, stores.TakeoverTimeout, inUse)
	defer cancel()
	for {
		holder, held, err := storedir.Holder(s.dir)
		if err != nil || held && !holder.Shares {
			return nil, inUse
		}
		// An error is not final: the holder is just starting its local server,
		// or ending.
		if yields, err := shared.RequestYield(waitCtx, s.dir); err == nil && !yields {
			return nil, inUse
		}
		for range lockAttempts {
			opened, err := s.OpenFolder(ctx, s.dir, owner)
			if !errors.Is(err, events.ErrInUse) && !errors.Is(err, outputs.ErrInUse) {
				return opened, err
			}
			if err := stores.Sleep(waitCtx, stores.RetryInterval); err != nil {
				return nil, err
			}
		}
	}
}

// lockAttempts is the number of attempts to lock the folder after a request to yield it.
// After these attempts takeOver sends another request, since another process may have
// locked the folder first.
const lockAttempts = 50

// openNode opens the database and acquires the outputs of this node exclusively. For
// earlier servers of the node that were killed, it records their end in the log.
func (s *serverProcess) openNode(ctx context.Context, at stores.Address) error {
	killed := shared.UnfinishedHolders(s.dir, domain.ProcessID{})
	opened, err := s.OpenDatabase(ctx, at)
	if err != nil {
		return err
	}
	if s.outputs, err = opened.Node.Hold(ctx); err != nil {
		return errors.Join(err, opened.Close())
	}
	for _, process := range killed {
		if err := endProcess(ctx, opened.Ledger, process); err != nil {
			return errors.Join(fmt.Errorf("end process %s, the previous server: %w", process, err), opened.Close())
		}
	}
	s.store = opened
	return nil
}

// recordProcessID writes id, the ID under which the log has this process, into the
// endpoint file. The processRegistration calls recordProcessID after each registration.
func (s *serverProcess) recordProcessID(id domain.ProcessID) {
	if err := s.localServer.SetProcess(id); err != nil {
		s.log.Warn("the endpoint file does not have the ID of this process", "error", err)
	}
}

// serveLocal starts the server for processes of this machine, writes the credentials,
// and then publishes the endpoint file, by which other commands find this process.
func (s *serverProcess) serveLocal(ctx context.Context) (err error) {
	cfg := shared.HolderConfig{
		Dir: s.dir, Outputs: s.outputs, Checkpoints: s.store.Checkpoints, Status: s.monitoring(), Endpoint: s.endpoint, Identity: s.identity, Logger: s.log,
	}
	if s.store.Folder != nil {
		cfg.Store, cfg.Backup = s.metered, s.store.Folder.Backup
	}
	if s.localServer, err = shared.Serve(ctx, cfg); err != nil {
		return err
	}
	if err = s.writeCredentials(); err == nil {
		err = s.localServer.Publish()
	}
	if err != nil {
		return errors.Join(err, s.localServer.Close(ctx), s.removeCredentials())
	}
	return nil
}

// recoverDead settles the calls and closes the layers that dead processes left open in
// the folder, as `ledger recover` does. It appends nothing if no process is dead.
func (s *serverProcess) recoverDead(ctx context.Context) error {
	lives, err := stores.Current(ctx, s.store, runner.Processes())
	if err != nil || len(s.store.Judge(lives, s.Now()).Dead) == 0 {
		return err
	}
	changes, err := s.Recover(ctx, s.store)
	if err != nil {
		return err
	}
	if err := s.localServer.UpdateEndpoint(func(e *shared.Endpoint) { e.Before = nil }); err != nil {
		return err
	}
	s.log.Info("recovered", changes...)
	return nil
}
