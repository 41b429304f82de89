package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// A Server offers a store under EventStoreDB's protocol. It is safe for
// concurrent use. It does not own the store.
type Server struct {
	store    events.Store
	cfg      Config
	grpc     *grpc.Server
	groups   *groups.Groups  // nil: without
	ids      *idIndex        // of the streams to which callers append without a length
	caches   messageCaches   // what subscribers that are current are sent
	instance [16]byte        // of this server, in gossip
	draining context.Context // ends with ErrDrained when the server shuts down
	drain    context.CancelCauseFunc
}

// The limits of a connection, besides those of package conns.
const (
	maxHeaders       = 16 << 10 // bytes of the headers of a call
	maxStreams       = 1000     // calls at once
	streamWindow     = 64 << 10 // bytes of a call that are received before it reads them
	connWindow       = 1 << 20  // bytes in flight
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 30 * time.Minute
)

// workers is how many goroutines take calls one after the other, so that a
// short call does not grow a stack of its own. Calls beyond them have one each.
const workers = 64

// New returns a server for a store, which the caller closes after the server.
// It reads from the store which groups of consumers there are, and keeps among
// the checkpoints of the store, if that has any, how far they have come.
func New(store events.Store, cfg Config) (*Server, error) {
	if cfg.Users != nil && cfg.TLS == nil {
		return nil, fmt.Errorf("new server: %w: users without TLS send their passwords in the clear", ErrNotSafe)
	}
	if _, ok := roleNames[cfg.withDefaults().Anonymous]; !ok {
		return nil, fmt.Errorf("new server: anonymous has the role %d, which there is not", cfg.Anonymous)
	}
	s := &Server{store: store, cfg: cfg.withDefaults(), ids: newIDIndex(indexBytes), instance: uuid.New()}
	s.draining, s.drain = context.WithCancelCause(context.Background())
	var err error
	checkpoints, _ := store.(groups.Checkpoints)
	if !cfg.WithoutGroups {
		if s.groups, err = groups.Open(context.Background(), store, groups.Config{Follow: s.follow, CompileFilter: compileFilter, Checkpoints: checkpoints, Now: s.cfg.Now}); err != nil {
			return nil, fmt.Errorf("new server: %w", err)
		}
	}
	options := []grpc.ServerOption{
		grpc.Creds(s.transport()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		// A stream whose messages are not read yet holds no more than its window.
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(workers),
		grpc.UnknownServiceHandler(unknown),
		// The official clients ping every ten seconds, also when they are idle.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// A client whose machine is gone is found out.
		// One that makes no call for long is told to connect again when it does.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second, MaxConnectionIdle: idleTimeout}),
	}
	s.grpc = grpc.NewServer(options...)
	streams.RegisterStreamsServer(admittingRegistrar{s}, &streamsService{Server: s})
	if !cfg.WithoutGroups {
		persistent.RegisterPersistentSubscriptionsServer(admittingRegistrar{s}, &persistentService{Server: s})
	}
	gossip.RegisterGossipServer(admittingRegistrar{s}, &gossipService{Server: s})
	serverfeatures.RegisterServerFeaturesServer(admittingRegistrar{s}, &featuresService{Server: s})
	return s, nil
}

// Serve answers those who connect to a listener until the server is shut down
// or closed, and then returns nil. It closes the listener. A listener that the
// Config does not allow is ErrNotSafe.
func (s *Server) Serve(at net.Listener) error {
	if err := s.cfg.Check(at.Addr()); err != nil {
		return errors.Join(err, at.Close())
	}
	err := s.grpc.Serve(s.cfg.Connections.Listener(at))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("serve at %s: %w", at.Addr(), err)
	}
	return nil
}

// Shutdown takes no more calls, ends subscriptions with UNAVAILABLE, which
// tells clients to connect again, closes the connections of Config.Connections that
// are not authenticated, and waits for the calls that run. When ctx ends before
// they do, it ends them too and returns the cause.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain(ErrDrained)
	defer s.closeGroups()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	shed := time.NewTicker(50 * time.Millisecond) // also those accepted last
	defer shed.Stop()
	for {
		s.cfg.Connections.Shed()
		select {
		case <-done:
			return nil
		case <-shed.C:
		case <-ctx.Done():
			s.grpc.Stop()
			<-done
			return fmt.Errorf("shut down the server: %w", context.Cause(ctx))
		}
	}
}

// Close ends every call and waits until they have ended.
func (s *Server) Close() {
	s.drain(ErrDrained)
	s.grpc.Stop()
	s.closeGroups()
}

func (s *Server) closeGroups() {
	if s.groups != nil {
		s.groups.Close()
	}
}

// requireRole returns the role of the caller of an admitted call if it is at least the
// one wanted, and else a status that says what is missing.
func (s *Server) requireRole(ctx context.Context, wanted Role) (Role, error) {
	role, _ := ctx.Value(roleKey{}).(Role)
	if role < wanted {
		return 0, denied(ctx, "access denied: this takes the role %s, and the caller has %s", wanted, role)
	}
	return role, nil
}

// untilShutdown returns a context that ends with the call's, and with ErrDrained when
// the server shuts down. The caller calls the function when the call is over.
func (s *Server) untilShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.draining, func() { cancel(ErrDrained) })
	return ctx, func() { stop(); cancel(nil) }
}
