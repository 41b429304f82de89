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

// versionQueries is the number of times that Probe queries the version of a node.
// Each response also has the server's time and narrows the bounds of its clock.
const versionQueries = 8

// dateWidth is the greatest difference between the clock of a server and the Date
// header that the server sends. The header has whole seconds, and Kestrel, the HTTP
// server of EventStoreDB, renews it once a second.
const dateWidth = 2 * time.Second

// queryNode sets the version, the clock and the cluster members of n. It returns
// ErrTooOld or ErrPreRelease for a version that Open rejects, and the errors of
// queryVersion. A node that refuses to report its cluster is no error.
func (v ProbeConfig) queryNode(ctx context.Context, n *Node, address string, tlsConfig *tls.Config) error {
	security := insecure.NewCredentials()
	if tlsConfig != nil {
		tlsConfig = tlsConfig.Clone()
		tlsConfig.ServerName = "" // grpc would use it as the authority, without the port
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
	if err == nil { // a node may refuse to report its cluster
		for _, m := range members.GetMembers() {
			at := m.GetHttpEndPoint()
			n.Members = append(n.Members, Member{
				Address: net.JoinHostPort(at.GetAddress(), strconv.Itoa(int(at.GetPort()))), State: m.GetState().String(), Alive: m.GetIsAlive(),
			})
		}
	}
	return checkVersionText(n.Version)
}

// queryVersion sets the version and the clock of n. It returns ErrForeign for a server
// that does not respond as EventStoreDB does, ErrUnreachable if the server stops
// responding, and ErrRefused if it responds with another status.
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
		case codes.Unimplemented, codes.NotFound: // a server older than this query, or another one
			return fmt.Errorf("%w: it lacks the first method that a client calls on an EventStoreDB from 21.10 on", ErrForeign)
		case codes.Unavailable, codes.DeadlineExceeded:
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		case codes.Unknown, codes.Internal: // the response is not gRPC
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

// checkVersionText returns ErrTooOld or ErrPreRelease for a reported version that
// Open rejects, and ErrTooOld for an empty one.
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
