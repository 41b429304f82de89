package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/runner"
)

// A host is a store that is served.
type host struct {
	*app
	flags  serveFlags
	store  *ledgerStore
	meter  *meter
	cfg    protocol.Config
	log    *slog.Logger
	orders []publish.Order
	at     serving

	protocol *protocol.Server
	http     *http.Server
}

// serve serves the folder that is meant until ctx ends.
func (a *app) serve(ctx context.Context, f serveFlags) (err error) {
	dir, err := a.storeDir()
	if err != nil {
		return err
	}
	last := lastServing(dir)
	cfg, local, err := f.config(last)
	if err != nil {
		return err
	}
	s := &host{app: a, flags: f, cfg: cfg, log: a.log(slog.LevelInfo)}
	if f.publish != "" {
		if s.orders, err = publications(f.publish, a.env); err != nil {
			return err
		}
	}
	gate, err := listen(ctx, "listen", f.listen, cfg)
	if err != nil {
		return err
	}
	beside, err := f.listenBeside(ctx, gate.Addr(), last, cfg)
	if err != nil {
		return errors.Join(err, gate.Close())
	}
	s.at = serving{
		PID: os.Getpid(), Started: a.now().UTC(), Address: reached(gate.Addr(), hostName()),
		Connection: connection(reached(gate.Addr(), "127.0.0.1"), cfg, local),
		Outputs:    webAddress(reached(beside.Addr(), "127.0.0.1"), cfg), User: local.name, Password: local.password,
	}
	if err := s.open(ctx, dir); err != nil {
		return errors.Join(err, gate.Close(), beside.Close())
	}
	return errors.Join(s.run(ctx, dir, gate, beside), s.store.Close())
}

// listenBeside opens the address of outputs: the one that is given or, on the
// host of the protocol, the port that it had last, and else a free one.
func (f serveFlags) listenBeside(ctx context.Context, gate net.Addr, last serving, cfg protocol.Config) (net.Listener, error) {
	if f.outputs != "" {
		return listen(ctx, "listen-outputs", f.outputs, cfg)
	}
	host, _, err := net.SplitHostPort(gate.String())
	if err != nil {
		host = "127.0.0.1"
	}
	if u, err := url.Parse(last.Outputs); err == nil && u.Port() != "" {
		if again, err := listen(ctx, "listen-outputs", net.JoinHostPort(host, u.Port()), cfg); err == nil {
			return again, nil
		}
	}
	return listen(ctx, "listen-outputs", net.JoinHostPort(host, "0"), cfg)
}

func webAddress(at string, cfg protocol.Config) string {
	if cfg.TLS != nil {
		return "https://" + at
	}
	return "http://" + at
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// open opens the store for this process alone, ends what dead processes left,
// and makes the servers.
func (s *host) open(ctx context.Context, dir string) error {
	held, err := s.openFolder(ctx, dir, embedded.Owner{Command: serveWord, PID: s.at.PID, Started: s.at.Started})
	if err != nil {
		return err
	}
	if err := s.mend(ctx, held); err != nil {
		return err
	}
	s.store, s.meter = held, newMeter(held.store.(*embedded.Store))
	held.store = s.meter
	if s.protocol, err = protocol.New(s.meter, s.cfg); err != nil {
		return errors.Join(err, held.Close())
	}
	s.http = &http.Server{
		Handler: s.beside(), TLSConfig: s.cfg.TLS, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// mend ends what dead processes left in a store that this process has alone. It
// writes nothing where there is nothing to end, and closes the store if it fails.
func (s *host) mend(ctx context.Context, held *ledgerStore) error {
	lives, err := folded(ctx, held, runner.Processes())
	if err != nil {
		return errors.Join(err, held.Close())
	}
	if len(lives.Judge(domain.ProcessID{}, s.now(), true).Dead) == 0 {
		return nil
	}
	p, err := s.begin(ctx, held)
	if err != nil {
		return err
	}
	if err := p.stop(ctx); err != nil {
		return errors.Join(err, held.Close())
	}
	r := p.recovered
	s.log.Info("recovered", "processes", len(r.Processes), "layers", len(r.Layers), "sessions", len(r.Sessions), "outputs", r.Outputs)
	return nil
}

// run serves until ctx ends, which is the ordinary end, or something breaks.
func (s *host) run(ctx context.Context, dir string, gate, beside net.Listener) error {
	broken := make(chan error, 3)
	var running sync.WaitGroup
	running.Go(func() { broken <- s.protocol.Serve(gate) })
	running.Go(func() { broken <- s.serveBeside(beside) })
	publishing, stopPublishing := context.WithCancelCause(context.WithoutCancel(ctx))
	if len(s.orders) > 0 {
		running.Go(func() { broken <- s.publishing(publishing) })
	}
	err := s.at.write(dir)
	if err == nil {
		err = s.announce(dir)
	}
	if err == nil {
		err = s.watchOver(ctx, broken)
	}
	forgotten := retire(dir)
	stopPublishing(domain.ByShutdown)
	err = errors.Join(err, s.drain(ctx), forgotten)
	running.Wait()
	s.log.Info("ended", "appends", s.meter.appends.Load(), "records", s.meter.records.Load())
	return err
}

func (s *host) serveBeside(at net.Listener) (err error) {
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
	return ended(s.desk(s.store).FollowAll(ctx, s.orders, openTarget, func(name string, err error) {
		s.log.Error("publishing ended", "consumer", name, "error", err)
	}))
}

// announce tells that others can connect, and where.
func (s *host) announce(dir string) error {
	public := connection(s.at.Address, s.cfg, guest{})
	row := struct {
		Store      string `json:"store"`
		Connection string `json:"connection"`
		Outputs    string `json:"outputs"`
		PID        int    `json:"pid"`
	}{dir, public, s.at.Outputs, s.at.PID}
	err := s.emitOne(row, func() {
		s.line("Serving %s at %s", dir, public)
		s.line("Outputs at %s", s.at.Outputs)
	})
	return errors.Join(err, s.out.Flush())
}

// watchOver logs how the work goes until ctx ends or something breaks.
func (s *host) watchOver(ctx context.Context, broken <-chan error) error {
	var pulse <-chan time.Time
	if s.flags.pulse > 0 {
		ticker := time.NewTicker(s.flags.pulse)
		defer ticker.Stop()
		pulse = ticker.C
	}
	last, at := s.meter.read(), time.Now()
	for {
		select {
		case <-ctx.Done():
			s.log.Info("ending", "reason", context.Cause(ctx).Error())
			return nil
		case err := <-broken:
			return err
		case <-pulse:
			now := s.meter.read()
			seconds := time.Since(at).Seconds()
			s.log.Info("serving", "position", now.Head.String(),
				"appends_per_second", perSecond(now.Appends-last.Appends, seconds), "records_per_second", perSecond(now.Records-last.Records, seconds),
				"failed_appends", now.Failed, "subscribers", now.Subscribers, "lag", now.Lag)
			last, at = now, time.Now()
		}
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
	err := s.protocol.Shutdown(ctx)
	both.Wait()
	if errors.Is(err, errDrain) {
		s.log.Warn("calls were cut off", "after", s.flags.drain)
		err = nil
	}
	return errors.Join(err, web)
}

// errDrain ends what takes longer than --drain.
var errDrain = errors.New("the time for calls under way is over")
