package server_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// statusBeforeMessages calls a method without sending a message or closing its
// side, and returns the status of the response.
func statusBeforeMessages(t *testing.T, conn *grpc.ClientConn, method string, headers ...string) codes.Code {
	t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), headers...))
	defer cancel()
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	return status.Code(call.RecvMsg(&emptypb.Empty{}))
}

// The server refuses a caller without a user, or with a wrong password, before
// the caller has sent a message.
func TestUnauthenticatedCallerIsRefusedBeforeItsMessages(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	address := serve(t, eventstest.NewSlice(), server.Config{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Users: users(t)})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for _, method := range offered() {
		for name, headers := range map[string][]string{
			"nobody":           nil,
			"a wrong password": {"authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("writer:wrong"))},
			"another scheme":   {"authorization", "Bearer writer"},
		} {
			want := codes.Unauthenticated
			if strings.Contains(method, "Gossip") || strings.Contains(method, "ServerFeatures") {
				want = codes.OK
			}
			if got := statusBeforeMessages(t, conn, method, headers...); got != want {
				t.Errorf("%s of %s without a message: %v, want %v", method, name, got, want)
			}
		}
	}
}

// The server refuses a caller without the required role before the caller has
// sent a message.
func TestCallerWithoutRoleIsRefusedBeforeItsMessages(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), server.Config{Writable: []string{""}}))
	for _, method := range offered() {
		for _, name := range []string{"/Append", "/BatchAppend", "/Create", "/Update", "PersistentSubscriptions/Delete", "/ReplayParked", "/RestartSubsystem"} {
			if strings.HasSuffix(method, name) {
				if got := statusBeforeMessages(t, conn, method); got != codes.PermissionDenied {
					t.Errorf("%s of a reader without a message: %v, want PERMISSION_DENIED", method, got)
				}
			}
		}
	}
}

// Shutdown does not wait for connections that have not sent a complete
// handshake.
func TestShutdownDoesNotWaitForIdleConnections(t *testing.T) {
	t.Parallel()
	running, address, done := start(t, eventstest.NewSlice())
	for range 5 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "PRI * HTTP"); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, connect(t, address), "s-1", esdb.Any{}, proposed("A", "")) // all connections before it are accepted
	begun := time.Now()
	if err := errors.Join(running.Shutdown(t.Context()), <-done); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > server.HandshakeTimeout/2 {
		t.Errorf("Shutdown took %v, as long as a handshake may", took)
	}
}
