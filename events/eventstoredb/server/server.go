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
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// A Server serves an events.Store under EventStoreDB's gRPC protocol. It is safe
// for concurrent use. It does not own the store: the caller closes the store
// after the server. Its fields do not change after New.
type Server struct {
	store events.Store
	cfg   Config
	grpc  *grpc.Server
	// groups is nil with Config.WithoutGroups.
	groups *groups.Groups
	// ids has the event IDs of the streams that callers append to without an
	// exact revision.
	ids *idIndex
	// caches have the encoded events that the subscriptions that have caught up
	// share.
	caches messageCaches
	// instance is a random UUID of this server. Gossip reports it.
	instance [16]byte
	// draining is cancelled with ErrDrained by Shutdown and Close, through drain.
	draining context.Context
	drain    context.CancelCauseFunc
}

// The limits of a connection, in addition to the limits of package conns. They
// bound the memory that one connection can make the server hold.
const (
	// maxHeaders bounds the headers of one call, in bytes.
	maxHeaders = 16 << 10
	// maxStreams bounds the concurrent calls of one connection.
	maxStreams = 1000
	// streamWindow bounds the bytes of one call that the server receives before
	// the handler reads them.
	streamWindow = 64 << 10
	// connWindow bounds the unread bytes of all calls of one connection.
	connWindow = 1 << 20
	// handshakeTimeout limits the TLS and HTTP/2 handshake of a new connection.
	handshakeTimeout = 10 * time.Second
	// idleTimeout is the time after which a connection without a call is closed.
	idleTimeout = 30 * time.Minute
)

// workers is the number of goroutines that run calls one after the other. Reusing
// them saves growing a stack for each short call. Further concurrent calls, such
// as subscriptions, run on goroutines of their own.
const workers = 64

// New returns a server for a store. It reads the consumer groups from the store's
// log, unless cfg leaves them out. If the store implements [groups.CheckpointStore],
// as embedded.Store does, New keeps the groups' checkpoints there, and otherwise
// in memory. ErrNotSafe reports users without TLS; other errors come from the
// store, a damaged group, or an unknown Config.Anonymous. The caller calls Serve
// for each listener, and then Shutdown or Close, also if it never called Serve.
func New(store events.Store, cfg Config) (*Server, error) {
	if cfg.Users != nil && cfg.TLS == nil {
		return nil, fmt.Errorf("new server: %w: users require TLS, since passwords would be sent in plain text", ErrNotSafe)
	}
	if role := cfg.withDefaults().Anonymous; role < auth.Reader || role > auth.Ledger {
		return nil, fmt.Errorf("new server: unknown anonymous role %d", cfg.Anonymous)
	}
	s := &Server{store: store, cfg: cfg.withDefaults(), ids: newIDIndex(indexBytes), instance: uuid.New()}
	s.draining, s.drain = context.WithCancelCause(context.Background())
	var err error
	checkpoints, _ := store.(groups.CheckpointStore)
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
		// A call whose messages the handler has not read buffers at most its
		// window.
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(workers),
		grpc.UnknownServiceHandler(unknown),
		// The official clients ping every ten seconds, also while they are
		// idle.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// Pings find clients whose machine is gone. A connection without a call
		// for idleTimeout is closed; the official clients reconnect on their
		// next call.
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

// Serve accepts connections from a listener and executes their calls until
// Shutdown or Close, and then returns nil. It always closes the listener, also
// after an error. ErrNotSafe reports a listener whose address the Config does not
// allow. Serve may run for several listeners at once.
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

// Shutdown stops accepting calls, ends subscriptions with UNAVAILABLE, which
// makes clients reconnect, closes the unauthenticated connections of
// Config.Connections, and waits for the running calls. When ctx ends first,
// Shutdown ends the remaining calls too and returns the cause of ctx. In both
// cases it then closes the groups, which writes their checkpoints.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain(ErrDrained)
	defer s.closeGroups()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	shed := time.NewTicker(50 * time.Millisecond) // repeated, as connections are accepted until the listener closes
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

// Close ends every call, waits until their handlers have returned, and closes the
// groups. An append that Close cuts off may have been written.
func (s *Server) Close() {
	s.drain(ErrDrained)
	s.grpc.Stop()
	s.closeGroups()
}

// closeGroups closes the consumer groups: it ends the consumers and writes the
// checkpoints. It has no effect without groups.
func (s *Server) closeGroups() {
	if s.groups != nil {
		s.groups.Close()
	}
}

// requireRole returns the role of the caller of an admitted call. It returns
// PERMISSION_DENIED if the role is below the wanted one.
func (s *Server) requireRole(ctx context.Context, wanted auth.Role) (auth.Role, error) {
	role, _ := ctx.Value(roleKey{}).(auth.Role)
	if role < wanted {
		return 0, denied(ctx, "access denied: this takes the role %s, and the caller has %s", wanted, role)
	}
	return role, nil
}

// untilShutdown returns a context that ends with ctx and when the server shuts
// down, then with the cause ErrDrained. The caller calls the returned function
// when the call is over, which releases the context.
func (s *Server) untilShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.draining, func() { cancel(ErrDrained) })
	return ctx, func() { stop(); cancel(nil) }
}
