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

// version is that of the EventStoreDB whose protocol this is. Clients read
// numbers and points, and nothing else.
const version = "24.10.5"

type featuresService struct {
	serverfeatures.UnimplementedServerFeaturesServer
	*Server
}

// methods are the methods and features that the server advertises to clients, by
// service, in lower case. It lacks the methods that every client is refused.
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

// GetSupportedMethods is asked by every client first, without credentials. Its
// header tells the time, as that of EventStoreDB does.
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

// unknown answers a call of what the server does not offer.
func unknown(_ any, call grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(call)
	return status.Errorf(codes.Unimplemented, "%s: a ledger offers streams, persistent subscriptions, gossip and server features, and no projections, users, monitoring or operations", method)
}

type gossipService struct {
	gossip.UnimplementedGossipServer
	*Server
}

// Read names one node, the leader, at the address by which the caller reached
// it. It is asked without credentials.
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
