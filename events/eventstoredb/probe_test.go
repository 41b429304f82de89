package eventstoredb_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// probe probes the one node of a connection string.
func probe(t *testing.T, connectionString string, v eventstoredb.ProbeConfig) eventstoredb.Node {
	t.Helper()
	nodes, err := eventstoredb.Probe(t.Context(), connectionString, v)
	if err != nil || len(nodes) != 1 {
		t.Fatalf("Probe(%q) = %d nodes, %v, want 1", connectionString, len(nodes), err)
	}
	return nodes[0]
}

// Probe reports the address, the connections, the version and the members of a node,
// with and without TLS.
func TestProbeDescribesANode(t *testing.T) {
	t.Parallel()
	plain, secure := newDatabase(t), newSecureDatabase(t)
	for address, settings := range map[string]string{
		plain.address: "?tls=false", secure.address: "?tlsCaFile=" + secure.authority,
	} {
		n := probe(t, "esdb://"+address+settings, eventstoredb.ProbeConfig{})
		if n.Err != nil || n.Address != address || !n.Named || n.Version != "24.10.5" {
			t.Errorf("Probe = %+v, want version 24.10.5", n)
		}
		if len(n.Dials) != 1 || n.Dials[0].Err != nil || n.Dials[0].Took <= 0 {
			t.Errorf("Probe dialed %+v, want one that is open", n.Dials)
		}
		if len(n.Members) != 1 || n.Members[0] != (eventstoredb.Member{Address: address, State: "Leader", Alive: true}) {
			t.Errorf("Probe found the members %+v, want the leader", n.Members)
		}
	}
}

// Probe reads the clock of a node from the headers of its responses, in whole seconds.
func TestProbeReadsTheClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Minute, -time.Hour} {
		d := newDatabase(t)
		d.served.Now = func() time.Time { return time.Now().Add(ahead) }
		d.restart()
		n := probe(t, d.url(), eventstoredb.ProbeConfig{})
		if n.Skew == nil || n.Skew.Within <= 0 || (n.Skew.Ahead-ahead).Abs() > n.Skew.Within {
			t.Errorf("Probe of one that is %s ahead found %+v", ahead, n.Skew)
		}
		there := eventstoredb.ProbeConfig{Now: d.served.Now}
		if n := probe(t, d.url(), there); n.Skew == nil || n.Skew.Ahead.Abs() > n.Skew.Within {
			t.Errorf("Probe by the same clock found %+v", n.Skew)
		}
	}
	if n := probe(t, (&stubServer{version: "24.10.5"}).serve(t), eventstoredb.ProbeConfig{}); n.Err != nil || n.Skew != nil {
		t.Errorf("Probe of one that tells no time = %+v, want no skew", n)
	}
}

// The bounds of the clock of a node include a Date header that is up to two seconds
// old, since a server may renew the header, which has whole seconds, only once a
// second.
func TestProbeAllowsForAnOldDateHeader(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{0, 999 * time.Millisecond} {
		s := &stubServer{version: "24.10.5", date: func() time.Time { return time.Now().Add(-age) }}
		if n := probe(t, s.serve(t), eventstoredb.ProbeConfig{}); n.Skew == nil || n.Skew.Ahead.Abs() > n.Skew.Within {
			t.Errorf("Probe of a node whose header is up to %s older found the skew %+v, want bounds with 0 among them", age, n.Skew)
		}
	}
}

// Probe reports the reason for which Open cannot use a node, without the password.
func TestProbeNamesTheFaultOfANode(t *testing.T) {
	t.Parallel()
	plain, secure, other := newDatabase(t), newSecureDatabase(t), newSecureDatabase(t)
	web, secureWeb := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	web2 := httptest.NewUnstartedServer(http.NotFoundHandler())
	web2.EnableHTTP2 = true
	web2.StartTLS()
	t.Cleanup(func() { web.Close(); secureWeb.Close(); web2.Close() })
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	_, port, _ := net.SplitHostPort(secure.address)
	for name, c := range map[string]struct {
		connection string
		is         error
		says       string
	}{
		"nobody":                 {"esdb://127.0.0.1:1?tls=false", eventstoredb.ErrUnreachable, "refused"},
		"a name that is none":    {"esdb://ledger.invalid:2113", eventstoredb.ErrUnreachable, "find the address of ledger.invalid"},
		"silence":                {"esdb://" + newSilentServer(t) + "?tls=false", eventstoredb.ErrUnreachable, "sends nothing within 300ms"},
		"silence to TLS":         {"esdb://" + newSilentServer(t), eventstoredb.ErrUnreachable, "sends nothing within 300ms"},
		"one that hangs up":      {"esdb://" + newHangUpServer(t) + "?tls=false", eventstoredb.ErrForeign, "closed the connection"},
		"one that hangs up, TLS": {"esdb://" + newHangUpServer(t), eventstoredb.ErrTLS, ""},
		"TLS where none is":      {"esdb://" + plain.address, eventstoredb.ErrTLS, "lacks tls=false"},
		"no TLS where it is":     {"esdb://" + secure.address + "?tls=false", eventstoredb.ErrTLS, "requires TLS"},
		"an unknown authority":   {"esdb://" + secure.address, eventstoredb.ErrCertificate, "tlsCaFile=FILE"},
		"another authority":      {"esdb://" + secure.address + "?tlsCaFile=" + other.authority, eventstoredb.ErrCertificate, "tlsCaFile=FILE"},
		"another name":           {"esdb://localhost:" + port + "?tlsCaFile=" + secure.authority, eventstoredb.ErrCertificate, "of another name"},
		"HTTP/1":                 {"esdb://" + at(web) + "?tls=false", eventstoredb.ErrForeign, "HTTP/1"},
		"HTTP/1, TLS asked":      {"esdb://" + at(web), eventstoredb.ErrForeign, "HTTP/1 without TLS"},
		"HTTP/1 over TLS":        {"esdb://" + at(secureWeb) + "?tlsVerifyCert=false", eventstoredb.ErrForeign, "TLS and not HTTP/2"},
		"HTTP/2 over TLS":        {"esdb://" + at(web2) + "?tlsVerifyCert=false", eventstoredb.ErrForeign, "lacks the first method"},
		"too old":                {(&stubServer{version: "22.10.5"}).serve(t), eventstoredb.ErrTooOld, "22.10.5; use 23.10.8"},
		"before versions":        {(&stubServer{}).serve(t), eventstoredb.ErrForeign, "21.10"},
		"a pre-release":          {(&stubServer{version: "26.1.0-rc.1"}).serve(t), eventstoredb.ErrPreRelease, "26.1.0-rc.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patience := time.Minute
			if strings.HasPrefix(name, "silence") {
				patience = 300 * time.Millisecond
			}
			scheme, rest, _ := strings.Cut(c.connection, "://")
			n := probe(t, scheme+"://ada:wonder@"+rest, eventstoredb.ProbeConfig{StepTimeout: patience})
			if !errors.Is(n.Err, c.is) || !strings.Contains(n.Err.Error(), c.says) || strings.Contains(n.Err.Error(), "wonder") {
				t.Errorf("Probe found %v, want %v that says %q", n.Err, c.is, c.says)
			}
		})
	}
}

// newHangUpServer returns an address whose server closes every connection at once.
func newHangUpServer(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	answering.Go(func() {
		for {
			conn, err := at.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = at.Close(); answering.Wait() })
	return at.Addr().String()
}

// Probe connects to every address of a name, and one that accepts a connection is
// enough.
func TestProbeDialsEveryAddressOfAName(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	_, port, _ := net.SplitHostPort(d.address)
	nodes, err := eventstoredb.ProbeAs(t.Context(), "esdb://db.test:"+port+"?tls=false", eventstoredb.ProbeConfig{}, func(_ context.Context, host string) ([]string, error) {
		if host != "db.test" {
			return net.DefaultResolver.LookupHost(t.Context(), host) // the leader, by its gossip
		}
		return []string{"127.255.0.9", "127.0.0.1"}, nil
	})
	if err != nil || nodes[0].Err != nil || nodes[0].Version == "" {
		t.Fatalf("Probe = %+v, %v, want a node", nodes, err)
	}
	doors := nodes[0].Dials
	if len(doors) != 2 || doors[0].Err == nil || doors[0].Address != "127.255.0.9:"+port || doors[1].Err != nil {
		t.Errorf("Probe dialed %+v, want the second open and the first not", doors)
	}
	nodes, err = eventstoredb.ProbeAs(t.Context(), "esdb://db.test?tls=false", eventstoredb.ProbeConfig{}, func(context.Context, string) ([]string, error) { return nil, nil })
	if err != nil || !errors.Is(nodes[0].Err, eventstoredb.ErrUnreachable) {
		t.Errorf("Probe of a name without addresses = %+v, %v, want ErrUnreachable", nodes, err)
	}
}

// A clusterNode reports other members.
type clusterNode struct {
	stubServer
	gossip.UnimplementedGossipServer
	members []*gossip.MemberInfo
	header  metadata.MD
}

func (c *clusterNode) Read(ctx context.Context, _ *shared.Empty) (*gossip.ClusterInfo, error) {
	c.header, _ = metadata.FromIncomingContext(ctx)
	return &gossip.ClusterInfo{Members: c.members}, nil
}

func (c *clusterNode) serve(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	serverfeatures.RegisterServerFeaturesServer(server, &c.stubServer)
	gossip.RegisterGossipServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(at) }) // it ends when it is stopped
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return at.Addr().String()
}

func member(t *testing.T, address string, state gossip.MemberInfo_VNodeState, alive bool) *gossip.MemberInfo {
	t.Helper()
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return &gossip.MemberInfo{State: state, IsAlive: alive, HttpEndPoint: &gossip.EndPoint{Address: at.IP.String(), Port: uint32(at.Port)}}
}

// Probe describes the named nodes and the live nodes that they report, and sends no
// credentials.
func TestProbeDescribesEveryNodeOfACluster(t *testing.T) {
	t.Parallel()
	one := &clusterNode{stubServer: stubServer{version: "24.10.5"}}
	two := newDatabase(t)
	at := one.serve(t)
	one.members = []*gossip.MemberInfo{
		member(t, at, gossip.MemberInfo_Follower, true), member(t, two.address, gossip.MemberInfo_Leader, true), member(t, "127.0.0.1:1", gossip.MemberInfo_Follower, false),
		member(t, "127.0.0.1:2", gossip.MemberInfo_Follower, true),
	}
	nodes, err := eventstoredb.Probe(t.Context(), "esdb://ada:wonder@"+at+"?tls=false", eventstoredb.ProbeConfig{})
	if err != nil || len(nodes) != 3 {
		t.Fatalf("Probe = %+v, %v, want 3 nodes", nodes, err)
	}
	if n := nodes[0]; n.Err != nil || !n.Named || len(n.Members) != 4 || n.Members[0].State != "Follower" || n.Members[2].Alive {
		t.Errorf("Probe found %+v, want the follower with 4 members", n)
	}
	if n := nodes[1]; n.Err != nil || n.Named || n.Address != two.address || n.Version == "" {
		t.Errorf("Probe found %+v, want the leader, which another named", n)
	}
	if n := nodes[2]; n.Address != "127.0.0.1:2" || !errors.Is(n.Err, eventstoredb.ErrUnreachable) {
		t.Errorf("Probe found %+v, want it unreachable", n)
	}
	if len(one.header.Get("authorization")) > 0 {
		t.Errorf("Probe sent credentials")
	}
}

// Probe ends with its context, and returns ErrBadAddress for an invalid connection
// string.
func TestProbeObeysItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	nodes, err := eventstoredb.Probe(ctx, "esdb://"+newSilentServer(t)+"?tls=false", eventstoredb.ProbeConfig{StepTimeout: time.Hour})
	if err != nil || !errors.Is(nodes[0].Err, eventstoredb.ErrUnreachable) {
		t.Errorf("Probe = %+v, %v, want ErrUnreachable", nodes, err)
	}
	if _, err := eventstoredb.Probe(t.Context(), "esdb://ada:wonder@db:x", eventstoredb.ProbeConfig{}); !errors.Is(err, eventstoredb.ErrBadAddress) || strings.Contains(err.Error(), "wonder") {
		t.Errorf("Probe = %v, want ErrBadAddress", err)
	}
}

// The default limit of an append is greater for servers from 25.1.
func TestAppendLimitFollowsTheServerVersion(t *testing.T) {
	t.Parallel()
	for version, limit := range map[string]int{
		"24.10.5": eventstoredb.DefaultMaxAppend, "25.0.1": eventstoredb.DefaultMaxAppend, "25.1.0": eventstoredb.LargeMaxAppend, "26.0.0": eventstoredb.LargeMaxAppend,
	} {
		s, err := eventstoredb.Open(t.Context(), (&stubServer{version: version}).serve(t), eventstoredb.Config{RetryTimeout: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.MaxAppendBytes(); got != limit {
			t.Errorf("an append to %s may have %d bytes, want %d", version, got, limit)
		}
		_ = s.Close()
	}
}

// Skew compares clocks by the creation time of an event, and returns nil for a server
// that reports the time of the record.
func TestSkewComparesCreationTimes(t *testing.T) {
	t.Parallel()
	made := time.Unix(0, 17000000000000000*100)
	s := (&stubServer{onRead: respondWith(recordedEvent("probe-1", "Probed", `{"$ledger":{"v":1,"t":"2024-01-01T00:00:00.000000Z"}}`, 0, 10))}).open(t)
	sent, heard := made.Add(-3*time.Second), made.Add(-time.Second)
	if skew, err := s.Skew(t.Context(), "probe-1", 1, sent, heard); err != nil || skew == nil || *skew != (eventstoredb.Skew{Ahead: 2 * time.Second, Within: time.Second}) {
		t.Errorf("Skew = %+v, %v, want 2 s ahead, give or take 1 s", skew, err)
	}
	if _, err := s.Skew(t.Context(), "probe-2", 1, sent, heard); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("Skew of an event that is not there = %v, want ErrDamaged", err)
	}
	d := newDatabase(t)
	echo := d.open()
	if err := echo.Append(t.Context(), "probe-1", 0, record(newMint(), "Probed", 1)); err != nil {
		t.Fatal(err)
	}
	if skew, err := echo.Skew(t.Context(), "probe-1", 1, sent, heard); err != nil || skew != nil {
		t.Errorf("Skew of one that gives the record's time back = %+v, %v, want none", skew, err)
	}
}
