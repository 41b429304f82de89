package server

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
)

// public are the methods that clients call before they authenticate. Their
// requests have no fields. The server does not read the request messages, so that
// an unauthenticated client cannot make it buffer a message.
var public = map[string]bool{
	"/event_store.client.gossip.Gossip/Read":                                 true,
	"/event_store.client.server_features.ServerFeatures/GetSupportedMethods": true,
}

// roles are the minimal roles of the methods that write. A method that is not
// listed needs Reader. The handlers of single streams check further.
var roles = map[string]auth.Role{
	"/event_store.client.streams.Streams/Append":                                            auth.Writer,
	"/event_store.client.streams.Streams/BatchAppend":                                       auth.Writer,
	"/event_store.client.persistent_subscriptions.PersistentSubscriptions/Create":           auth.Writer,
	"/event_store.client.persistent_subscriptions.PersistentSubscriptions/Update":           auth.Writer,
	"/event_store.client.persistent_subscriptions.PersistentSubscriptions/Delete":           auth.Writer,
	"/event_store.client.persistent_subscriptions.PersistentSubscriptions/ReplayParked":     auth.Writer,
	"/event_store.client.persistent_subscriptions.PersistentSubscriptions/RestartSubsystem": auth.Writer,
}

// An admittingRegistrar registers services so that each call is authenticated
// from its headers before the server reads a message of the call. gRPC's
// interceptors for unary methods run only after the request has been read and
// decoded. The registrar therefore registers a unary method as a streaming
// method with one request, which is the same on the wire.
type admittingRegistrar struct{ *Server }

// RegisterService implements grpc.ServiceRegistrar. It registers a copy of the
// service with wrapped handlers.
func (r admittingRegistrar) RegisterService(d *grpc.ServiceDesc, srv any) {
	wrapped := *d
	wrapped.Methods, wrapped.Streams = nil, nil
	for _, m := range d.Methods {
		method := "/" + d.ServiceName + "/" + m.MethodName
		wrapped.Streams = append(wrapped.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: r.unaryHandler(method, m.Handler)})
	}
	for _, s := range d.Streams {
		s.Handler = r.checkRole("/"+d.ServiceName+"/"+s.StreamName, s.Handler)
		wrapped.Streams = append(wrapped.Streams, s)
	}
	r.grpc.RegisterService(&wrapped, srv)
}

// unaryHandler returns the stream handler of a method with one request and one
// response. It decodes the request only after the caller has been admitted.
func (r admittingRegistrar) unaryHandler(method string, handle grpc.MethodHandler) grpc.StreamHandler {
	return r.checkRole(method, func(srv any, call grpc.ServerStream) error {
		receive := call.RecvMsg
		if public[method] {
			receive = func(any) error { return nil }
		}
		response, err := handle(srv, call.Context(), receive, nil)
		if err != nil {
			return err
		}
		return call.SendMsg(response)
	})
}

// checkRole returns a handler that calls handle only for callers with the role
// that the method needs. It refuses an unknown caller with UNAUTHENTICATED, and
// a caller with a lower role with PERMISSION_DENIED. It puts the caller's role
// into the context of the call, where requireRole finds it. Public methods run
// without a role.
func (r admittingRegistrar) checkRole(method string, handle grpc.StreamHandler) grpc.StreamHandler {
	wanted := max(roles[method], auth.Reader)
	return func(srv any, call grpc.ServerStream) error {
		ctx := call.Context()
		from := connOf(ctx)
		if !public[method] {
			role, err := r.authenticate(conns.WithConn(ctx, from))
			if err == nil && role < wanted {
				err = denied(ctx, "access denied: this takes the role %s, and the caller has %s", wanted, role)
			}
			if err != nil {
				return err
			}
			ctx = context.WithValue(ctx, roleKey{}, role)
		}
		return handle(srv, admitted{call, ctx})
	}
}

// roleKey is the context key of the caller's Role.
type roleKey struct{}

// An admitted call is a ServerStream whose context has the role of the caller.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns a context with the caller's role.
func (a admitted) Context() context.Context { return a.ctx }

// authenticate returns the role of a caller from the Basic authorization header
// of the call. It returns UNAUTHENTICATED for a missing or refused password,
// and UNAVAILABLE if too many passwords wait to be checked. Without
// Config.Users every caller has the role Config.Anonymous.
//
// On success, authenticate marks the connection as authenticated, as
// Users.Authenticate does, so that the limiter of package conns no longer
// closes the connection.
func (s *Server) authenticate(ctx context.Context) (auth.Role, error) {
	if s.cfg.Users == nil {
		conns.FromContext(ctx).Authenticated()
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
	role, err := s.cfg.Users.Authenticate(ctx, name, password)
	switch {
	case errors.Is(err, auth.ErrNotAuthenticated):
		return 0, status.Errorf(codes.Unauthenticated, "not authenticated: %v", err)
	case errors.Is(err, auth.ErrBusy):
		return 0, status.Errorf(codes.Unavailable, "not authenticated: %v", err)
	}
	return role, statusOf(err)
}

// basic parses a Basic authorization header (RFC 7617). It returns false for
// another scheme, invalid base64 and a missing colon.
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

// A transport is TLS or plain text. It puts the conns.Conn of each connection
// into the AuthInfo, where connOf finds it.
type transport struct {
	credentials.TransportCredentials
}

// transport returns the transport of the server's Config.
func (s *Server) transport() transport {
	if s.cfg.TLS == nil {
		return transport{insecure.NewCredentials()}
	}
	return transport{credentials.NewTLS(secured(s.cfg.TLS))}
}

// ServerHandshake implements credentials.TransportCredentials. It runs before the
// first call of a connection, on the goroutine of that connection.
func (t transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	return conn, connInfo{info, conns.Of(raw)}, err
}

// A connInfo is the AuthInfo of a connection with its Conn.
type connInfo struct {
	credentials.AuthInfo
	conn *conns.Conn
}

// connOf returns the Conn of a call's connection, or nil.
func connOf(ctx context.Context) *conns.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(connInfo); ok {
			return info.conn
		}
	}
	return nil
}
