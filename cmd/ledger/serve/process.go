package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// A Config is what [Run] needs: the flags, and how to print, to open the store, to
// recover it and to open the targets of publishing.
type Config struct {
	*render.Printer // of the addresses, on the standard output, and of the log
	*stores.Opener  // of the folder or the database that --store names
	Options
	Version string               // of this program
	Jobs    []publish.JobConfig  // published while the process serves; may be empty
	Targets publish.TargetOpener // opens the target of a job
	// Recover settles the calls and closes the layers that dead processes left open
	// in a store, and returns what it changed as arguments of slog. It does not
	// close the store.
	Recover func(ctx context.Context, s *stores.Store) (changes []any, err error)
}

// A serverProcess is the process of ledger serve. It serves a folder, or a node: the
// outputs and checkpoints that this machine stores for a ledger in a database. It runs
// a server of the EventStoreDB protocol (for a folder), an HTTP server for outputs and
// monitoring, and a local server for processes of this machine.
//
// Run sets the fields before it starts the public servers. Request handlers only read
// them, apart from the atomic counters. The goroutine of publish owns Jobs.
type serverProcess struct {
	Config
	dir          string               // the folder, or the folder of the node; holds the endpoint and the credentials
	store        *stores.Store        // owned by the process: Run closes it
	outputs      *outputs.Store       // the served outputs of the folder or node
	access       server.Config        // users, roles and TLS of both public servers
	log          *slog.Logger         // to the standard error
	registration *processRegistration // renews the lease of this process; nil: no other process looks for outputs here
	ownerOnly    bool                 // only the owner of the folder may connect
	identity     *shared.Identity     // user, password and certificate, new at each start
	protocolAddr net.Addr             // the address of the protocol server; nil: the process serves a node
	endpoint     shared.Endpoint      // the public addresses; localServer adds its own
	localServer  *shared.Holder       // serves processes of this machine that can read dir

	metered         *meteredStore  // counts the work of the store; nil: the process serves a node
	protocolServer  *server.Server // of the EventStoreDB protocol; nil: the process serves a node
	httpServer      *http.Server   // for outputs, status and metrics
	requests        atomic.Int64   // HTTP requests
	refusedRequests atomic.Int64   // HTTP requests that authorize refused
}

// Run serves the folder, or the node of the database, that --store names until ctx ends,
// which is no error. It opens the listeners before the store, so that the endpoint in
// the store's folder has their ports. An error that ends a server ends Run. Run joins
// all goroutines that it starts and closes the store before it returns.
func Run(ctx context.Context, c Config) error {
	at, err := c.Where()
	if err != nil {
		return err
	}
	s := &serverProcess{Config: c, dir: at.Folder, log: c.Logger(slog.LevelInfo)}
	if at.Database != "" {
		if err := c.checkNode(); err != nil {
			return err
		}
		if s.dir, err = c.NodeDir(at); err != nil {
			return err
		}
	}
	address, err := c.GivenNodeAddress()
	if err != nil {
		return err
	}
	last := shared.LastEndpoint(s.dir)
	if s.identity, err = shared.NewIdentity(); err != nil {
		return err
	}
	if s.access, s.ownerOnly, err = c.serverConfig(s.identity); err != nil {
		return err
	}
	l, err := s.listen(ctx, at, last)
	if err != nil {
		return err
	}
	s.endpoint = s.newEndpoint(l, address)
	if l.protocol != nil {
		s.protocolAddr = l.protocol.Addr()
	}
	if err := s.open(ctx, at); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			err = nil // ended before it served
		}
		return errors.Join(err, l.close())
	}
	return errors.Join(s.run(ctx, l), s.store.Close())
}

// run serves until ctx ends, which is the normal end, or a server fails. It then stops
// the renewal of the lease, publishing, and the servers (see drain), in this order. Last
// it records the end of the process in the log, so that no request is served after that
// record. run joins all goroutines that it starts.
func (s *serverProcess) run(ctx context.Context, l listeners) error {
	failed := make(chan error, 3) // one slot for each server and publishing, so that no goroutine blocks after wait
	var servers, renewing sync.WaitGroup
	if l.protocol != nil {
		servers.Go(func() { failed <- s.protocolServer.Serve(l.protocol) })
	}
	servers.Go(func() { failed <- s.serveHTTP(l.http) })
	// Publishing and the lease outlive ctx: run stops them in its own order.
	publishCtx, stopPublishing := context.WithCancelCause(context.WithoutCancel(ctx))
	if len(s.Jobs) > 0 {
		servers.Go(func() { failed <- s.publish(publishCtx) })
	}
	renewCtx, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	if s.registration != nil {
		renewing.Go(func() { s.registration.renewLease(renewCtx) })
	}
	err := s.printAddresses()
	if err == nil {
		err = s.wait(ctx, failed)
	}
	stopRenewing()
	renewing.Wait()
	stopPublishing(domain.ByShutdown)
	err = errors.Join(err, s.removeCredentials(), s.drain(ctx))
	servers.Wait()
	if s.registration != nil {
		s.registration.recordEnd(ctx)
	}
	s.log.Info("ended", s.totals()...)
	return err
}

// totals returns the totals since the start, as arguments of slog.
func (s *serverProcess) totals() []any {
	counts := []any{"requests", s.requests.Load(), "refused", s.refusedRequests.Load()}
	if s.metered != nil {
		counts = append([]any{"appends", s.metered.appends.Load(), "records", s.metered.records.Load()}, counts...)
	}
	return counts
}

// serveHTTP runs the HTTP server for outputs. It returns nil after drain has shut the
// server down.
func (s *serverProcess) serveHTTP(l net.Listener) (err error) {
	l = s.access.Connections.Listener(l)
	if s.access.TLS != nil {
		err = s.httpServer.ServeTLS(l, "", "")
	} else {
		err = s.httpServer.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve outputs: %w", err)
}

// publish runs the jobs of --publish until ctx ends. It logs failed deliveries, and
// the errors of jobs that ended or wait to be retried.
func (s *serverProcess) publish(ctx context.Context) error {
	for i := range s.Jobs {
		name := s.Jobs[i].Name
		s.Jobs[i].Failed = func(f publish.FailedAttempt) {
			s.log.Warn("not published", "consumer", name, "position", f.Position.String(), "try", f.Try, "again_in", f.Wait, "error", f.Err)
		}
	}
	err := s.Relay(s.store).FollowAll(ctx, s.Jobs, s.Targets, func(name string, err error, retryIn time.Duration) {
		if retryIn > 0 {
			s.log.Warn("publishing not started", "consumer", name, "again_in", retryIn, "error", err)
			return
		}
		s.log.Error("publishing ended", "consumer", name, "error", err)
	})
	if errors.Is(err, domain.ErrInterrupted) {
		return nil
	}
	return err
}

// printAddresses prints the addresses at which clients can connect, and flushes the
// output.
func (s *serverProcess) printAddresses() error {
	row := struct {
		Store       string  `json:"store"`
		Connection  *string `json:"connection"`
		Credentials *string `json:"credentials"` // the file with the connection string, user and password; null: --users or --anonymous is given, or a node is served
		Outputs     string  `json:"outputs"`
		PID         int     `json:"pid"`
	}{s.store.Name, nil, nil, s.endpoint.Node, s.endpoint.PID}
	title := "Serving the node of " + s.store.Name + " in " + s.dir
	if s.protocolServer != nil {
		public := connection(s.endpoint.Address, s.access)
		row.Connection, title = &public, "Serving "+s.dir+" at "+public
	}
	if s.ownerOnly && s.protocolServer != nil {
		row.Credentials = render.OrNull(s.credentialsPath(CredentialsFile))
	}
	err := s.Object(row, func() {
		s.Line("%s", title)
		s.Line("Outputs at %s", s.endpoint.Node)
		if row.Credentials != nil {
			s.Line("Only you may connect: a client takes the connection string in %s,", *row.Credentials)
			s.Line("which trusts the certificate in %s. Both are new at each start.", s.credentialsPath(certificateFile))
		}
	})
	return errors.Join(err, s.Out.Flush())
}

// wait returns nil when ctx ends, or the error that a server sends to the channel
// failed. It logs the throughput at the interval --log-every, or never if that is 0.
func (s *serverProcess) wait(ctx context.Context, failed <-chan error) error {
	var tick <-chan time.Time
	if s.LogInterval > 0 {
		ticker := time.NewTicker(s.LogInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	throughput := s.throughput()
	for {
		select {
		case <-ctx.Done():
			s.log.Info("ending", "reason", context.Cause(ctx).Error())
			return nil
		case err := <-failed:
			return err
		case <-tick:
			s.log.Info("serving", throughput()...)
		}
	}
}

// throughput returns a function that returns the throughput of a served folder as
// arguments of slog. The function covers the time since its previous call, or since the
// call of throughput. For a node the function is totals. One goroutine calls it.
func (s *serverProcess) throughput() func() []any {
	if s.metered == nil {
		return s.totals
	}
	last, at := s.metered.counters(), time.Now()
	return func() []any {
		now, seconds := s.metered.counters(), time.Since(at).Seconds()
		rates := []any{
			"position", now.Head.String(), "appends_per_second", perSecond(now.Appends-last.Appends, seconds),
			"records_per_second", perSecond(now.Records-last.Records, seconds),
			"failed_appends", now.Failed, "subscribers", now.Subscribers, "lag", now.Lag,
		}
		last, at = now, time.Now()
		return rates
	}
}

// perSecond returns n per second, truncated to one decimal.
func perSecond(n int64, seconds float64) float64 {
	return float64(int64(float64(n)/seconds*10)) / 10
}

// drain shuts the servers down. It waits for requests in flight for the duration --drain
// and then cancels them, which is no error. The end of ctx does not shorten this wait.
func (s *serverProcess) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.Drain, errDrain)
	defer cancel()
	var httpErr error
	var both sync.WaitGroup
	both.Go(func() {
		if httpErr = s.httpServer.Shutdown(ctx); httpErr != nil {
			httpErr = s.httpServer.Close() // cut off the remaining connections
		}
	})
	var err error
	both.Go(func() {
		if failed := s.localServer.Close(ctx); failed != nil {
			s.log.Warn("processes of this machine were served to the end", "error", failed)
		}
	})
	if s.protocolServer != nil {
		err = s.protocolServer.Shutdown(ctx)
	}
	both.Wait()
	if errors.Is(err, errDrain) {
		s.log.Warn("calls were cut off", "after", s.Drain)
		err = nil
	}
	return errors.Join(err, httpErr)
}

// errDrain is the cause with which drain cancels requests after --drain.
var errDrain = errors.New("the time for calls under way is over")
