package eventstoredb

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// versionQueries is how often a node is asked for its version, and with it for its time:
// each answer narrows the bounds of its clock.
const versionQueries = 8

// dateWidth is how far the clock of a server may be past its Date header. The
// header has whole seconds, and Kestrel, which serves EventStoreDB, renews it
// once a second only.
const dateWidth = 2 * time.Second

// queryNode notes what a node says of itself: its version, its time and its cluster.
func (v ProbeConfig) queryNode(ctx context.Context, n *Node, address string, tlsConfig *tls.Config) error {
	security := insecure.NewCredentials()
	if tlsConfig != nil {
		tlsConfig = tlsConfig.Clone()
		tlsConfig.ServerName = "" // grpc would take it for the authority, without the port
		security = credentials.NewTLS(tlsConfig)
	}
	conn, err := grpc.NewClient("passthrough:///"+n.Address, grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return v.dial(ctx, address) }))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer conn.Close()
	ctx, done := context.WithTimeout(ctx, v.StepTimeout)
	defer done()
	if err := v.queryVersion(ctx, n, conn); err != nil {
		return err
	}
	members, err := gossip.NewGossipClient(conn).Read(ctx, &shared.Empty{})
	if err == nil { // a node may keep its cluster to itself
		for _, m := range members.GetMembers() {
			at := m.GetHttpEndPoint()
			n.Members = append(n.Members, Member{
				Address: net.JoinHostPort(at.GetAddress(), strconv.Itoa(int(at.GetPort()))), State: m.GetState().String(), Alive: m.GetIsAlive(),
			})
		}
	}
	return checkVersionText(n.Version)
}

// queryVersion asks for the version of a node, and its time.
func (v ProbeConfig) queryVersion(ctx context.Context, n *Node, conn *grpc.ClientConn) error {
	client, w := serverfeatures.NewServerFeaturesClient(conn), skewBounds{}
	for range versionQueries {
		var header metadata.MD
		sent := v.Now()
		response, err := client.GetSupportedMethods(ctx, &shared.Empty{}, grpc.Header(&header))
		received := v.Now()
		switch status.Code(err) {
		case codes.OK:
			n.Version = response.GetEventStoreServerVersion()
		case codes.Unimplemented, codes.NotFound: // a server from before there were versions, or another one
			return fmt.Errorf("%w: it does not know what an EventStoreDB from 21.10 on is asked first", ErrForeign)
		case codes.Unavailable, codes.DeadlineExceeded:
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		case codes.Unknown, codes.Internal: // what answers is not gRPC
			return fmt.Errorf("%w: %w", ErrForeign, err)
		default:
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if date := header.Get("date"); len(date) > 0 {
			if at, err := http.ParseTime(date[0]); err == nil {
				w.narrow(at, dateWidth, sent, received)
			}
		}
	}
	n.Skew = w.skew()
	return nil
}

// checkVersionText returns an ErrTooOld or an ErrPreRelease for a version, as a node tells
// it, that a Store does not open.
func checkVersionText(version string) error {
	var v esdb.ServerVersion
	parts := strings.Split(version, ".")
	for i, part := range []*int{&v.Major, &v.Minor, &v.Patch} {
		if version == "" || i >= len(parts) {
			break
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return fmt.Errorf("%w: it is %s", ErrPreRelease, version)
		}
		*part = n
	}
	return cmp.Or(checkVersion(v), nil)
}
