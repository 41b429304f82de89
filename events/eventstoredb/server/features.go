package server

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// version is the version of EventStoreDB that the server reports. Clients parse
// three numbers with points between them, and choose fields and methods by them.
const version = "24.10.5"

// featuresService implements the gRPC service ServerFeatures.
type featuresService struct {
	serverfeatures.UnimplementedServerFeaturesServer
	*Server
}

// methods are the methods that GetSupportedMethods reports, by service, in lower
// case, each with its features. Clients use a method or a feature only if it is
// in the list. Methods that refuse every call are left out.
var methods = map[string]map[string][]string{
	"event_store.client.streams.streams": {
		"read": {"position", "events"}, "append": nil, "batchappend": {"deadline_duration"},
	},
	"event_store.client.persistent_subscriptions.persistentsubscriptions": {
		"create": {"stream", "all"}, "update": {"stream", "all"}, "delete": {"stream", "all"}, "read": {"stream", "all"},
		"getinfo": {"stream", "all"}, "replayparked": {"stream", "all"}, "list": {"stream", "all"}, "restartsubsystem": nil,
	},
	"event_store.client.gossip.gossip":                  {"read": nil},
	"event_store.client.server_features.serverfeatures": {"getsupportedmethods": nil},
}

// GetSupportedMethods implements ServerFeatures.GetSupportedMethods. Every client
// calls it first, without credentials. The date header has the server's time, as
// in EventStoreDB; the ledger's own client derives the clock skew from it.
func (f *featuresService) GetSupportedMethods(ctx context.Context, _ *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs("date", f.cfg.Now().UTC().Format(http.TimeFormat))); err != nil {
		return nil, err
	}
	supported := &serverfeatures.SupportedMethods{EventStoreServerVersion: version}
	for service, named := range methods {
		for method, features := range named {
			supported.Methods = append(supported.Methods, &serverfeatures.SupportedMethod{
				ServiceName: service, MethodName: method, Features: features,
			})
		}
	}
	return supported, nil
}

// unknown returns UNIMPLEMENTED. It handles the calls of services and methods
// that the server does not have.
func unknown(_ any, call grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(call)
	return status.Errorf(codes.Unimplemented, "%s: a ledger offers streams, persistent subscriptions, gossip and server features, but no projections, users, monitoring or operations", method)
}

// gossipService implements the gRPC service Gossip.
type gossipService struct {
	gossip.UnimplementedGossipServer
	*Server
}

// Read implements Gossip.Read, by which clients discover the nodes of a cluster.
// It reports one node, the leader, at the host and port that the caller connected
// to, so that the caller reaches it through the same forwarding or proxy. It
// needs no credentials.
func (g *gossipService) Read(ctx context.Context, _ *shared.Empty) (*gossip.ClusterInfo, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	authority := md.Get(":authority")
	if len(authority) == 0 {
		return nil, status.Error(codes.InvalidArgument, "read gossip: the call names no authority")
	}
	host, text, err := net.SplitHostPort(authority[0])
	if err != nil {
		host, text = authority[0], "443"
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read gossip: the authority %q has no port", authority[0])
	}
	return &gossip.ClusterInfo{Members: []*gossip.MemberInfo{{
		InstanceId:   structuredUUID(g.instance),
		TimeStamp:    ticks(g.cfg.Now()),
		State:        gossip.MemberInfo_Leader,
		IsAlive:      true,
		HttpEndPoint: &gossip.EndPoint{Address: host, Port: uint32(port)},
	}}}, nil
}
