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
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// A host is a store that is served, or a node of a ledger in a database: what that
// does not keep.
type host struct {
	*app
	flags    serveFlags
	dir      string // in which it says where it serves
	store    *stores.Store
	kept     *outputs.Store // that it serves
	cfg      server.Config
	log      *slog.Logger
	orders   []publish.JobConfig
	presence *presence // nil: nobody looks for what is served here
	owner    bool      // only the owner of the folder may use it
	identity *shared.Identity
	gate     net.Addr        // of the protocol; nil: a node
	at       shared.Endpoint // of this process; its local addresses are those of local
	local    *shared.Holder  // for processes of this machine that can read the folder

	meter   *meter         // nil: a node
	server  *server.Server // nil: a node
	http    *http.Server
	asked   atomic.Int64 // requests by HTTP
	refused atomic.Int64 // of these, for want of a user or a right
}

// A door is where a host listens.
type door struct {
	gate   net.Listener // of the protocol; nil: a node
	beside net.Listener // of outputs
}

func (d door) close() error {
	if d.gate == nil {
		return d.beside.Close()
	}
	return errors.Join(d.gate.Close(), d.beside.Close())
}

// serve serves the folder that is meant, or the node of the database that is
// meant, until ctx ends.
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

// announced returns what a host says of itself to processes of this machine.
func (s *host) announced(d door, given string) shared.Endpoint {
	at := shared.Endpoint{Process: s.Mint().Process(), PID: os.Getpid(), Started: s.Now().UTC(), Command: stores.ServeCommand}
	at.Outputs = webAddress(reached(d.beside.Addr(), "127.0.0.1"), s.cfg)
	at.Node = cmp.Or(given, webAddress(reached(d.beside.Addr(), hostName()), s.cfg))
	if d.gate != nil {
		at.Address = reached(d.gate.Addr(), hostName())
	}
	return at
}

// listen opens the addresses at which a store, or a node, is served.
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

// listenBeside opens the address of outputs: the one that is given or, on the
// host of the protocol or this machine, the port that it had last, and else a free
// one.
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
	if u, err := url.Parse(last.Outputs); err == nil && u.Port() != "" {
		if again, err := at(net.JoinHostPort(host, u.Port())); err == nil {
			return again, nil
		}
	}
	return at(net.JoinHostPort(host, "0"))
}

func webAddress(at string, cfg server.Config) string {
	if cfg.TLS != nil {
		return "https://" + at
	}
	return "http://" + at
}

// open opens what is served for this process alone, puts this process on record
// where others may look for it, and makes the servers.
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

// sought reports whether others may look for outputs here whose processes did not
// say where: any that a folder holds already, and those of processes that are at
// work when a node begins to be served. Nothing is written into a folder in which
// there are none, so that it can become a copy of another.
func (s *host) sought(ctx context.Context) (bool, error) {
	if s.store.Folder == nil {
		return true, nil
	}
	for _, err := range s.kept.All(ctx) {
		return err == nil, err
	}
	return false, nil
}

// openStore opens the folder, and ends what dead processes left in it.
func (s *host) openStore(ctx context.Context) error {
	owner := embedded.Owner{Command: stores.ServeCommand, PID: s.at.PID, Started: s.at.Started, Shares: true}
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

// takeOver opens the folder that a process has which is no server, once that has
// given it up: it goes on through this one. It returns the error inUse where no
// process does so in time.
func (s *host) takeOver(ctx context.Context, owner embedded.Owner, inUse error) (*stores.Store, error) {
	asking, cancel := context.WithTimeoutCause(ctx, stores.TakeoverTimeout, inUse)
	defer cancel()
	for {
		holder, held, err := embedded.Holder(s.dir)
		if err != nil || held && !holder.Shares {
			return nil, inUse
		}
		// An error is that of a process that begins to serve, or ends.
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

// yieldLooks is how often the lock is tried after a process was asked to give the
// folder up. Another process may have been quicker, and is asked next.
const yieldLooks = 50

// openNode opens the database and what the node keeps, and ends who served the
// node before and was killed.
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

// note puts the ID under which this process is on record into the endpoint.
func (s *host) note(id domain.ProcessID) {
	if err := s.local.SetProcess(id); err != nil {
		s.log.Warn("the endpoint does not name this process's ID", "error", err)
	}
}

// serveLocal begins to serve processes of this machine that can read the folder.
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

// recoverDead ends the calls and layers that dead processes left open in a folder that
// this process holds. It writes nothing if no process is dead.
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

// run serves until ctx ends, which is the ordinary end, or something breaks.
func (s *host) run(ctx context.Context, d door) error {
	broken := make(chan error, 3)
	var running, present sync.WaitGroup
	if d.gate != nil {
		running.Go(func() { broken <- s.server.Serve(d.gate) })
	}
	running.Go(func() { broken <- s.serveBeside(d.beside) })
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

// worked returns what was done in all, for the log.
func (s *host) worked() []any {
	work := []any{"requests", s.asked.Load(), "refused", s.refused.Load()}
	if s.meter != nil {
		work = append([]any{"appends", s.meter.appends.Load(), "records", s.meter.records.Load()}, work...)
	}
	return work
}

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

// publishing publishes what the configuration says. What it says of failures is
// logged.
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

// announce tells that others can connect, and where.
func (s *host) announce() error {
	row := struct {
		Store       string  `json:"store"`
		Connection  *string `json:"connection"`
		Credentials *string `json:"credentials"` // a file with the connection string with user and password; null: there are users, or everybody may connect
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

// watchOver logs how the work goes until ctx ends or something breaks.
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

// pace returns a function that says how the work went since its last call, for
// the log.
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

func perSecond(n int64, seconds float64) float64 {
	return float64(int64(float64(n)/seconds*10)) / 10
}

// drain ends serving: what is under way has some time to finish.
func (s *host) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.flags.drain, errDrain)
	defer cancel()
	var web error
	var both sync.WaitGroup
	both.Go(func() {
		if web = s.http.Shutdown(ctx); web != nil {
			web = s.http.Close() // those who take no end
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

// errDrain ends what takes longer than --drain.
var errDrain = errors.New("the time for calls under way is over")
