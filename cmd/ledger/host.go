package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// A host is the server process of ledger serve. It serves a folder, or a node: the outputs
// and checkpoints that this machine stores for a ledger in a database. It runs a server of the
// EventStoreDB protocol (for a folder), an HTTP server for outputs and monitoring, and a local
// server for processes of this machine.
//
// serve sets the fields before run starts the public servers. Request handlers only read them,
// apart from the atomic counters. The goroutine of publishing owns orders.
type host struct {
	*app
	flags    serveFlags
	dir      string              // the folder, or the folder of the node; holds the endpoint and the credentials
	store    *stores.Store       // owned by the host: serve closes it after run
	kept     *outputs.Store      // the outputs of the folder or node, which the host serves
	cfg      server.Config       // users, roles and TLS of both public servers
	log      *slog.Logger        // to the standard error
	orders   []publish.JobConfig // the jobs of the file that --publish names; may be empty
	presence *presence           // keeps the lease of this process; nil: no process looks for outputs here
	owner    bool                // only the owner of the folder may connect
	identity *shared.Identity    // user, password and certificate, new at each start
	gate     net.Addr            // the address of the protocol server; nil: the host serves a node
	at       shared.Endpoint     // the public addresses; local adds its own
	local    *shared.Holder      // serves processes of this machine that can read dir

	meter   *meter         // counts the work of the store; nil: the host serves a node
	server  *server.Server // of the EventStoreDB protocol; nil: the host serves a node
	http    *http.Server   // for outputs, status and metrics
	asked   atomic.Int64   // HTTP requests
	refused atomic.Int64   // HTTP requests that authorize refused
}

// A door contains the public listeners of a host.
type door struct {
	gate   net.Listener // for the EventStoreDB protocol; nil: the host serves a node
	beside net.Listener // for outputs and monitoring
}

// close closes both listeners. The servers do it themselves once run has started them.
func (d door) close() error {
	if d.gate == nil {
		return d.beside.Close()
	}
	return errors.Join(d.gate.Close(), d.beside.Close())
}

// serve serves the folder that --store names, or the node of the database that it names,
// until ctx ends. It opens the listeners before the store, so that the endpoint which it
// publishes has their ports.
func (a *app) serve(ctx context.Context, f serveFlags) error {
	at, err := a.Where()
	if err != nil {
		return err
	}
	s := &host{app: a, flags: f, dir: at.Folder, log: a.Logger(slog.LevelInfo)}
	if at.Database != "" {
		if err := f.fitNode(); err != nil {
			return err
		}
		if s.dir, err = a.NodeDir(at); err != nil {
			return err
		}
	}
	address, err := a.GivenNodeAddress()
	if err != nil {
		return err
	}
	last := shared.LastEndpoint(s.dir)
	if s.identity, err = shared.NewIdentity(); err != nil {
		return err
	}
	if s.cfg, s.owner, err = f.config(s.identity); err != nil {
		return err
	}
	if f.publish != "" {
		if s.orders, err = publications(f.publish, a.Env); err != nil {
			return err
		}
	}
	d, err := s.listen(ctx, at, last)
	if err != nil {
		return err
	}
	s.at = s.announced(d, address)
	if d.gate != nil {
		s.gate = d.gate.Addr()
	}
	if err := s.open(ctx, at); err != nil {
		return errors.Join(err, d.close())
	}
	return errors.Join(s.run(ctx, d), s.store.Close())
}

// announced returns the endpoint of this process with its public addresses. The address given,
// if not empty, replaces the one at which other nodes request outputs.
func (s *host) announced(d door, given string) shared.Endpoint {
	at := shared.Endpoint{Process: s.Mint().Process(), PID: os.Getpid(), Started: s.Now().UTC(), Command: stores.ServeCommand}
	at.Outputs = webAddress(reached(d.beside.Addr(), "127.0.0.1"), s.cfg)
	at.Node = cmp.Or(given, webAddress(reached(d.beside.Addr(), hostName()), s.cfg))
	if d.gate != nil {
		at.Address = reached(d.gate.Addr(), hostName())
	}
	return at
}

// listen opens the public listeners. last is the endpoint of the last server that ended in
// order.
func (s *host) listen(ctx context.Context, at stores.Address, last shared.Endpoint) (d door, err error) {
	if at.Database == "" {
		if d.gate, err = listen(ctx, "listen", s.flags.listen, s.cfg, s.owner); err != nil {
			return d, err
		}
	}
	if d.beside, err = s.listenBeside(ctx, d.gate, last); err != nil && d.gate != nil {
		err = errors.Join(err, d.gate.Close())
	}
	return d, err
}

// listenBeside opens the listener for outputs at --listen-outputs. Without that flag it
// listens on the host of the protocol listener, or on 127.0.0.1, and takes the port of the
// last server, or a free port if that one is in use: the log may contain the old address.
func (s *host) listenBeside(ctx context.Context, gate net.Listener, last shared.Endpoint) (net.Listener, error) {
	at := func(address string) (net.Listener, error) {
		return listen(ctx, "listen-outputs", address, s.cfg, s.owner)
	}
	if s.flags.outputs != "" {
		return at(s.flags.outputs)
	}
	host := "127.0.0.1"
	if gate != nil {
		if on, _, err := net.SplitHostPort(gate.Addr().String()); err == nil {
			host = on
		}
	}
	// If the last port is in use now, fall through to a free one.
	if u, err := url.Parse(last.Outputs); err == nil && u.Port() != "" {
		if again, err := at(net.JoinHostPort(host, u.Port())); err == nil {
			return again, nil
		}
	}
	return at(net.JoinHostPort(host, "0"))
}

// webAddress returns the URL of HOST:PORT, with the scheme https if cfg has TLS.
func webAddress(at string, cfg server.Config) string {
	if cfg.TLS != nil {
		return "https://" + at
	}
	return "http://" + at
}

// open acquires the store or the node, starts the local server, recovers a folder from dead
// processes, registers this process in the log if others may look for its outputs, and creates
// the HTTP server. On an error it closes all but the listeners.
func (s *host) open(ctx context.Context, at stores.Address) (err error) {
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
	sought := false
	if err == nil {
		sought, err = s.sought(ctx)
	}
	if err == nil && sought {
		s.presence = &presence{first: s.at.Process, ledger: s.store.Ledger, address: s.at.Node, log: s.log, noted: s.note}
		err = s.presence.begin(ctx)
	}
	if err != nil {
		return errors.Join(err, s.forgetCredentials(), s.local.Close(ctx), s.store.Close())
	}
	s.http = &http.Server{
		Handler: s.beside(), TLSConfig: s.cfg.TLS.Clone(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100}, ConnContext: conns.NewContext,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// sought reports whether other nodes may look for outputs of processes that recorded no
// address. That is so for a node, where processes may be at work before it is served, and for
// a folder that already contains outputs. For an empty folder it reports false, so that open
// writes no event into it: it can still become the target of a copy.
func (s *host) sought(ctx context.Context) (bool, error) {
	if s.store.Folder == nil {
		return true, nil
	}
	for _, err := range s.kept.All(ctx) {
		return err == nil, err
	}
	return false, nil
}

// openStore opens the folder exclusively, puts the meter around its log and creates the
// protocol server. It takes the folder over from a process that yields it.
func (s *host) openStore(ctx context.Context) error {
	owner := storedir.Owner{Command: stores.ServeCommand, PID: s.at.PID, Started: s.at.Started, Shares: true}
	held, err := s.OpenFolder(ctx, s.dir, owner)
	if errors.Is(err, events.ErrInUse) {
		held, err = s.takeOver(ctx, owner, err)
	}
	if err != nil {
		return err
	}
	s.at.Before = held.Before
	s.store, s.kept, s.meter = held, held.Folder.Outputs, newMeter(held.Log.(*embedded.Store))
	held.Log = s.meter
	if s.server, err = server.New(s.meter, s.cfg); err != nil {
		return errors.Join(err, held.Close())
	}
	return nil
}

// takeOver asks the process that holds the folder to yield it, and opens the folder once its
// lock is free. The other process continues as a client of this one. takeOver returns inUse if
// the holder is a server, does not share the folder, or does not yield within
// [stores.TakeoverTimeout].
func (s *host) takeOver(ctx context.Context, owner storedir.Owner, inUse error) (*stores.Store, error) {
	asking, cancel := context.WithTimeoutCause(ctx, stores.TakeoverTimeout, inUse)
	defer cancel()
	for {
		holder, held, err := storedir.Holder(s.dir)
		if err != nil || held && !holder.Shares {
			return nil, inUse
		}
		// An error is not final: the holder is just starting its local server, or ending.
		if yields, err := shared.RequestYield(asking, s.dir); err == nil && !yields {
			return nil, inUse
		}
		for range yieldLooks {
			held, err := s.OpenFolder(ctx, s.dir, owner)
			if !errors.Is(err, events.ErrInUse) && !errors.Is(err, outputs.ErrInUse) {
				return held, err
			}
			if err := stores.Sleep(asking, stores.RetryInterval); err != nil {
				return nil, err
			}
		}
	}
}

// yieldLooks is the number of attempts to lock the folder after a request to yield. After them
// takeOver asks again, since another process may have locked the folder first.
const yieldLooks = 50

// openNode opens the database, acquires the outputs of the node exclusively, and records the
// end of earlier servers of the node that were killed.
func (s *host) openNode(ctx context.Context, at stores.Address) error {
	before := shared.UnfinishedHolders(s.dir, domain.ProcessID{})
	held, err := s.OpenDatabase(ctx, at)
	if err != nil {
		return err
	}
	if s.kept, err = held.Node.Hold(ctx); err != nil {
		return errors.Join(err, held.Close())
	}
	for _, process := range before {
		if err := endProcess(ctx, held.Ledger, process); err != nil {
			return errors.Join(fmt.Errorf("end process %s, which served before: %w", process, err), held.Close())
		}
	}
	s.store = held
	return nil
}

// note writes the ID that this process has in the log into the endpoint file. presence calls
// it after each registration.
func (s *host) note(id domain.ProcessID) {
	if err := s.local.SetProcess(id); err != nil {
		s.log.Warn("the endpoint does not name this process's ID", "error", err)
	}
}

// serveLocal starts the server for processes of this machine, writes the credentials, and then
// publishes the endpoint file, by which other commands find this process.
func (s *host) serveLocal(ctx context.Context) (err error) {
	cfg := shared.HolderConfig{
		Dir: s.dir, Outputs: s.kept, Checkpoints: s.store.Checkpoints, Status: s.about(), Endpoint: s.at, Identity: s.identity, Logger: s.log,
	}
	if s.store.Folder != nil {
		cfg.Store, cfg.Backup = s.meter, s.store.Folder.Backup
	}
	if s.local, err = shared.Serve(ctx, cfg); err != nil {
		return err
	}
	if err = s.writeCredentials(); err == nil {
		err = s.local.Publish()
	}
	if err != nil {
		return errors.Join(err, s.local.Close(ctx), s.forgetCredentials())
	}
	return nil
}

// recoverDead settles the calls and closes the layers that dead processes left open in the
// folder, as recover does. It appends nothing if no process is dead.
func (s *host) recoverDead(ctx context.Context) error {
	lives, err := stores.Current(ctx, s.store, runner.Processes())
	if err != nil || len(s.store.Judge(lives, s.Now()).Dead) == 0 {
		return err
	}
	p, err := s.begin(ctx, s.store.Borrowed()) // the host closes the store
	if err != nil {
		return err
	}
	if err := p.Process.Close(ctx); err != nil {
		return err
	}
	if err := s.local.UpdateEndpoint(func(e *shared.Endpoint) { e.Before = nil }); err != nil {
		return err
	}
	r := p.recovered
	s.log.Info("recovered", "processes", len(r.Processes), "layers", len(r.Layers), "sessions", len(r.Sessions), "left", len(r.Left), "outputs", r.Outputs)
	return nil
}

// run serves until ctx ends, which is the normal end, or a server fails. It stops in this
// order: renewals of the lease, publishing, the servers (see drain), and last the entry of
// this process in the log, so that no request is served after its end is on record. run joins
// all goroutines that it starts.
func (s *host) run(ctx context.Context, d door) error {
	broken := make(chan error, 3) // one slot for each server and publishing, so that no goroutine blocks after watchOver
	var running, present sync.WaitGroup
	if d.gate != nil {
		running.Go(func() { broken <- s.server.Serve(d.gate) })
	}
	running.Go(func() { broken <- s.serveBeside(d.beside) })
	// Publishing and the lease outlive ctx: run stops them in its own order.
	publishing, stopPublishing := context.WithCancelCause(context.WithoutCancel(ctx))
	if len(s.orders) > 0 {
		running.Go(func() { broken <- s.publishing(publishing) })
	}
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	if s.presence != nil {
		present.Go(func() { s.presence.keep(keeping) })
	}
	err := s.announce()
	if err == nil {
		err = s.watchOver(ctx, broken)
	}
	stopKeeping()
	present.Wait()
	stopPublishing(domain.ByShutdown)
	err = errors.Join(err, s.forgetCredentials(), s.drain(ctx))
	running.Wait()
	if s.presence != nil {
		s.presence.end(ctx)
	}
	s.log.Info("ended", s.worked()...)
	return err
}

// worked returns the totals since the start, as arguments of slog.
func (s *host) worked() []any {
	work := []any{"requests", s.asked.Load(), "refused", s.refused.Load()}
	if s.meter != nil {
		work = append([]any{"appends", s.meter.appends.Load(), "records", s.meter.records.Load()}, work...)
	}
	return work
}

// serveBeside runs the HTTP server for outputs until drain shuts it down, and returns nil then.
func (s *host) serveBeside(at net.Listener) (err error) {
	at = s.cfg.Connections.Listener(at)
	if s.cfg.TLS != nil {
		err = s.http.ServeTLS(at, "", "")
	} else {
		err = s.http.Serve(at)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve outputs: %w", err)
}

// publishing runs the jobs of --publish until ctx ends. It logs failed deliveries, and
// the errors of jobs that ended or wait to be retried.
func (s *host) publishing(ctx context.Context) error {
	for i := range s.orders {
		name := s.orders[i].Name
		s.orders[i].Failed = func(f publish.Failure) {
			s.log.Warn("not published", "consumer", name, "position", f.Position.String(), "try", f.Try, "again_in", f.Wait, "error", f.Err)
		}
	}
	return ended(s.Relay(s.store).FollowAll(ctx, s.orders, openTarget, func(name string, err error) {
		s.log.Error("publishing ended", "consumer", name, "error", err)
	}))
}

// announce prints the addresses at which clients can connect, and flushes the output.
func (s *host) announce() error {
	row := struct {
		Store       string  `json:"store"`
		Connection  *string `json:"connection"`
		Credentials *string `json:"credentials"` // the file with the connection string, user and password; null: --users or --anonymous is given, or a node is served
		Outputs     string  `json:"outputs"`
		PID         int     `json:"pid"`
	}{s.store.Name, nil, nil, s.at.Node, s.at.PID}
	said := "Serving the node of " + s.store.Name + " in " + s.dir
	if s.server != nil {
		public := connection(s.at.Address, s.cfg)
		row.Connection, said = &public, "Serving "+s.dir+" at "+public
	}
	if s.owner && s.server != nil {
		row.Credentials = render.OrNull(s.credentialsPath(credentialsName))
	}
	err := s.Object(row, func() {
		s.Line("%s", said)
		s.Line("Outputs at %s", s.at.Node)
		if row.Credentials != nil {
			s.Line("Only you may connect: a client takes the connection string in %s,", *row.Credentials)
			s.Line("which trusts the certificate in %s. Both are new at each start.", s.credentialsPath(certificateName))
		}
	})
	return errors.Join(err, s.Out.Flush())
}

// watchOver waits until ctx ends, and returns nil then, or until a server sends to broken, and
// returns what it sent. It logs the throughput at the interval --log-every; 0 turns that off.
func (s *host) watchOver(ctx context.Context, broken <-chan error) error {
	var pulse <-chan time.Time
	if s.flags.pulse > 0 {
		ticker := time.NewTicker(s.flags.pulse)
		defer ticker.Stop()
		pulse = ticker.C
	}
	now := s.pace()
	for {
		select {
		case <-ctx.Done():
			s.log.Info("ending", "reason", context.Cause(ctx).Error())
			return nil
		case err := <-broken:
			return err
		case <-pulse:
			s.log.Info("serving", now()...)
		}
	}
}

// pace returns a function that returns the throughput since its last call, or since pace, as
// arguments of slog. For a node the function returns the totals. One goroutine calls it.
func (s *host) pace() func() []any {
	if s.meter == nil {
		return s.worked
	}
	last, at := s.meter.read(), time.Now()
	return func() []any {
		now, seconds := s.meter.read(), time.Since(at).Seconds()
		line := []any{
			"position", now.Head.String(), "appends_per_second", perSecond(now.Appends-last.Appends, seconds),
			"records_per_second", perSecond(now.Records-last.Records, seconds),
			"failed_appends", now.Failed, "subscribers", now.Subscribers, "lag", now.Lag,
		}
		last, at = now, time.Now()
		return line
	}
}

// perSecond returns a rate, truncated to one decimal.
func perSecond(n int64, seconds float64) float64 {
	return float64(int64(float64(n)/seconds*10)) / 10
}

// drain shuts the servers down. Requests in flight may finish within --drain; drain then cancels
// them, which is no error. It ignores the end of ctx, which is why the host stops.
func (s *host) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.flags.drain, errDrain)
	defer cancel()
	var web error
	var both sync.WaitGroup
	both.Go(func() {
		if web = s.http.Shutdown(ctx); web != nil {
			web = s.http.Close() // cut off the remaining connections
		}
	})
	var err error
	both.Go(func() {
		if failed := s.local.Close(ctx); failed != nil {
			s.log.Warn("processes of this machine were served to the end", "error", failed)
		}
	})
	if s.server != nil {
		err = s.server.Shutdown(ctx)
	}
	both.Wait()
	if errors.Is(err, errDrain) {
		s.log.Warn("calls were cut off", "after", s.flags.drain)
		err = nil
	}
	return errors.Join(err, web)
}

// errDrain is the cause with which drain cancels requests after --drain.
var errDrain = errors.New("the time for calls under way is over")
