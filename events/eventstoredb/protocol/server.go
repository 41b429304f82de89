package protocol

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol/groups"
)

// A Server offers a store under EventStoreDB's protocol. It is safe for
// concurrent use. It does not own the store.
type Server struct {
	store    events.Store
	cfg      Config
	grpc     *grpc.Server
	groups   *groups.Groups
	current  galleries       // what subscribers that are current are sent
	draining context.Context // ends with ErrDrained when the server shuts down
	drain    context.CancelCauseFunc
}

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
	s := &Server{store: store, cfg: cfg.withDefaults()}
	s.draining, s.drain = context.WithCancelCause(context.Background())
	var err error
	kept, _ := store.(groups.Checkpoints)
	if s.groups, err = groups.Open(context.Background(), store, groups.Config{Follow: s.follow, Admits: admits, Checkpoints: kept, Now: s.cfg.Now}); err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(workers),
		grpc.UnknownServiceHandler(unknown),
		// The official clients ping every ten seconds, also when they are idle.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// A client whose machine is gone is found out.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secured(cfg.TLS))))
	}
	s.grpc = grpc.NewServer(options...)
	streams.RegisterStreamsServer(s.grpc, &streamsOf{Server: s})
	persistent.RegisterPersistentSubscriptionsServer(s.grpc, &groupsOf{Server: s})
	gossip.RegisterGossipServer(s.grpc, &gossipOf{Server: s})
	serverfeatures.RegisterServerFeaturesServer(s.grpc, &featuresOf{Server: s})
	return s, nil
}

// Serve answers those who connect to a listener until the server is shut down
// or closed, and then returns nil. It closes the listener. A listener that the
// Config does not allow is ErrNotSafe.
func (s *Server) Serve(at net.Listener) error {
	if err := s.cfg.Check(at.Addr()); err != nil {
		return errors.Join(err, at.Close())
	}
	err := s.grpc.Serve(at)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("serve at %s: %w", at.Addr(), err)
	}
	return nil
}

// Shutdown takes no more calls, ends subscriptions with UNAVAILABLE, which
// tells clients to connect again, and waits for the calls that run. When ctx ends
// before they do, it ends them too and returns the cause.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain(ErrDrained)
	defer s.groups.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return fmt.Errorf("shut down the server: %w", context.Cause(ctx))
	}
}

// Close ends every call and waits until they have ended.
func (s *Server) Close() {
	s.drain(ErrDrained)
	s.grpc.Stop()
	s.groups.Close()
}

// admit returns the role of a caller if it is at least the one wanted, and else
// a status that says what is missing.
func (s *Server) admit(ctx context.Context, wanted Role) (Role, error) {
	role, err := s.role(ctx)
	if err != nil {
		return 0, err
	}
	if role < wanted {
		return 0, denied(ctx, "access denied: this takes the role %s, and the caller has %s", wanted, role)
	}
	return role, nil
}

func (s *Server) role(ctx context.Context) (Role, error) {
	if s.cfg.Users == nil {
		return s.cfg.Anonymous, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	header := md.Get("authorization")
	if len(header) == 0 {
		return 0, status.Error(codes.Unauthenticated, "not authenticated: give a user and a password")
	}
	name, password, ok := basic(header[0])
	if !ok {
		return 0, status.Error(codes.Unauthenticated, "not authenticated: the authorization is not Basic")
	}
	role, ok := s.cfg.Users.role(ctx, name, password)
	if !ok {
		return 0, status.Error(codes.Unauthenticated, "not authenticated: no such user, or another password")
	}
	return role, nil
}

// basic returns what an authorization header says.
func basic(header string) (name, password string, ok bool) {
	scheme, encoded, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "basic") {
		return "", "", false
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(text), ":")
}

// live returns a context that ends with the call's, and with ErrDrained when
// the server shuts down. The caller calls the function when the call is over.
func (s *Server) live(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.draining, func() { cancel(ErrDrained) })
	return ctx, func() { stop(); cancel(nil) }
}
