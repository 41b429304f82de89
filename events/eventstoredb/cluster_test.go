package eventstoredb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// A cluster is several proxies in front of one database. One of them is the leader.
// The others respond to a call that requires the leader with its address. A node that
// is down responds to every call with UNAVAILABLE.
type cluster struct {
	*database
	nodes []*faultProxy
	mu    struct {
		sync.Mutex
		leader int
		down   []bool
		old    []bool        // nodes with a version that loses positions
		term   chan struct{} // closed when the leader changes
		unled  int           // calls without the requirement of the leader
		astray int           // calls with it, at a node that is not the leader
	}
}

const (
	gossipMethod   = "/event_store.client.gossip.Gossip/Read"
	featuresMethod = "/event_store.client.server_features.ServerFeatures/GetSupportedMethods"
)

// newCluster starts a cluster of three nodes, which ends with the test.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{database: newDatabase(t)}
	c.mu.down, c.mu.old, c.mu.term = make([]bool, 3), make([]bool, 3), make(chan struct{})
	for i := range c.mu.down {
		m := newFaultProxy(t, c.address)
		m.inject(func(h proxiedCall) fault { return c.fate(i, h) })
		c.nodes = append(c.nodes, m)
	}
	return c
}

// url returns a connection string with some of the nodes, or all.
func (c *cluster) url(nodes ...int) string {
	if len(nodes) == 0 {
		nodes = []int{0, 1, 2}
	}
	var at []string
	for _, i := range nodes {
		at = append(at, c.nodes[i].address)
	}
	return "esdb://" + strings.Join(at, ",") + "?tls=false&gossipTimeout=1&discoveryInterval=5"
}

func (c *cluster) fate(node int, h proxiedCall) fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.down[node]:
		return fault{refuse: unavailable()}
	case h.method == gossipMethod:
		return fault{respond: c.gossipLocked()}
	case h.method == featuresMethod && c.mu.old[node]:
		b, err := proto.Marshal(&serverfeatures.SupportedMethods{EventStoreServerVersion: "24.10.4"})
		if err != nil {
			c.t.Error(err)
		}
		return fault{respond: b}
	case h.method == featuresMethod:
		return fault{}
	case len(h.header.Get("requires-leader")) == 0:
		c.mu.unled++
	case node != c.mu.leader:
		c.mu.astray++
		return notLeader(c.nodes[c.mu.leader].address)
	}
	return fault{endWhen: c.mu.term, endWith: func() fault {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.mu.down[node] || node == c.mu.leader || rand.N(2) == 0 {
			return fault{refuse: unavailable()}
		}
		return notLeader(c.nodes[c.mu.leader].address)
	}}
}

// notLeader is the response of a node that is not the leader, with the address of the
// leader.
func notLeader(leader string) fault {
	host, port, _ := strings.Cut(leader, ":")
	return fault{
		refuse:  statusOf(codes.NotFound),
		trailer: metadata.Pairs("exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port", port),
	}
}

func (c *cluster) gossipLocked() []byte {
	all := &gossip.ClusterInfo{}
	for i, m := range c.nodes {
		host, text, _ := net.SplitHostPort(m.address)
		port, _ := strconv.ParseUint(text, 10, 16) // it is one
		state := gossip.MemberInfo_Follower
		if i == c.mu.leader {
			state = gossip.MemberInfo_Leader
		}
		all.Members = append(all.Members, &gossip.MemberInfo{
			State: state, IsAlive: !c.mu.down[i] || i == c.mu.leader, // that it is down has not gone round
			HttpEndPoint: &gossip.EndPoint{Address: host, Port: uint32(port)},
		})
	}
	b, err := proto.Marshal(all)
	if err != nil {
		c.t.Error(err)
	}
	return b
}

// lead makes a node the leader. Calls on the old leader end, some of them after the
// database stored their records.
func (c *cluster) lead(node int, down ...bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.leader = node
	copy(c.mu.down, down)
	close(c.mu.term)
	c.mu.term = make(chan struct{})
}

// moveLeaderAtRandom changes the leader and the nodes that are down at random until
// the test ends.
func (c *cluster) moveLeaderAtRandom() {
	c.config.RetryTimeout = faultRetryTimeout
	injectAtRandom(c.t, func(func(time.Duration) bool) { c.lead(rand.N(3), rand.N(4) == 0, rand.N(4) == 0, rand.N(4) == 0) })
}

// The laws of a store hold while the leader changes and nodes fail at random.
func TestEveryLawHoldsWhileTheLeaderMoves(t *testing.T) {
	t.Parallel()
	testUnder(t, leaderMoves, func(t *testing.T) eventstest.Harness {
		c := newCluster(t)
		c.moveLeaderAtRandom()
		h := c.harness()
		h.Open = func(ctx context.Context) (events.Store, error) { return eventstoredb.Open(ctx, c.url(), c.config) }
		t.Cleanup(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.mu.unled > 0 {
				t.Errorf("%d calls did not require the leader", c.mu.unled)
			}
		})
		return h
	})
}

// A store finds the leader from each of its connection strings, and finds a new
// leader.
func TestLeaderIsFoundFromAnyNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	mint := newMint()
	var want []events.Record
	addresses := []string{c.url(), c.url(2), c.url(1, 2), strings.Replace(c.url(1), "esdb:", "kurrentdb+discover:", 1), c.url(0) + "&nodePreference=follower"}
	for i, address := range addresses {
		c.lead(i % 3)
		s, err := eventstoredb.Open(t.Context(), address, eventstoredb.Config{})
		if err != nil {
			t.Errorf("Open(%q): %v", address, err)
			continue
		}
		for range 2 {
			r := record(mint, "Kind", len(want))
			if err := s.Append(t.Context(), "found-1", events.Revision(len(want)), r); err != nil {
				t.Errorf("Append at %q: %v", address, err)
			}
			want = append(want, r)
			c.lead((i + 1) % 3)
		}
		holds(t, s, "found-1", want...)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if c.mu.unled > 0 {
		t.Errorf("%d calls did not require the leader", c.mu.unled)
	}
}

// With the addresses of all nodes, a store asks them for the leader, with every node
// preference, and logs once that it does not follow a preference for another node.
// With the address of one follower, a store is redirected to the leader once, and not
// with every call.
func TestLeaderIsAskedForFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.lead(1)
	for _, preferred := range []string{"leader", "follower", "readOnlyReplica", "random"} {
		for at, astray := range map[string]int{c.url(): 0, c.url(2): 1} {
			var told strings.Builder
			c.mu.astray = 0
			s, err := eventstoredb.Open(t.Context(), at+"&nodePreference="+preferred, eventstoredb.Config{
				Logger: slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			for range repeats(5, 20) {
				holds(t, s, "first-1")
			}
			_ = s.Close()
			if c.mu.astray != astray {
				t.Errorf("%s: %d calls went to a node that does not lead, want %d", preferred, c.mu.astray, astray)
			}
			want := 1
			if preferred == "leader" {
				want = 0
			}
			if got := strings.Count(told.String(), "every call goes to the leader"); got != want {
				t.Errorf("%s: the log says %d times that the leader is asked, want %d:\n%s", preferred, got, want, &told)
			}
		}
	}
}

// No call blocks if a node names a dead leader and then dies itself. The official
// client ends then and does not respond to the calls that request its connection.
func TestDeadLeaderThatIsNamedHangsNoCall(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	m := newFaultProxy(t, d.address)
	s, err := eventstoredb.Open(t.Context(), m.url()+"&discoveryInterval=1", eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	nobody := unusedAddress(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for round := range repeats(3, 10) {
		// At first the nodes work, and only the leader is another one, for several
		// concurrent calls.
		var calls sync.WaitGroup
		looked := make(chan struct{})
		look := sync.OnceFunc(func() { close(looked) })
		m.inject(func(h proxiedCall) fault {
			if h.method != featuresMethod {
				return notLeader(nobody)
			}
			look()
			return fault{refuse: unavailable()}
		})
		for n := range 16 {
			calls.Go(func() {
				stream := events.Stream(fmt.Sprintf("dead-%d-%d", round, n))
				if err := s.Append(ctx, stream, 0, record(newMint(), "Kind", n)); err != nil {
					t.Errorf("Append = %v", err)
				}
			})
		}
		select {
		case <-looked:
		case <-ctx.Done():
			t.Fatal("nobody looks for a node")
		}
		m.inject(nil)
		calls.Wait()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Append(ctx, "dead-1", 0, record(newMint(), "Kind", 1)); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Append after Close = %v, want ErrClosed", err)
	}
}

// An append is not stored and returns ErrUnreachable if the client waits for a leader
// that does not answer and then finds no other node.
func TestAppendWhoseClientFindsNoNodeIsUnreachable(t *testing.T) {
	t.Parallel()
	m := newFaultProxy(t, newDatabase(t).address)
	s, err := eventstoredb.Open(t.Context(), m.url()+"&gossipTimeout=1", eventstoredb.Config{RetryTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	silent := newSilentServer(t)
	m.inject(func(h proxiedCall) fault {
		if h.method == featuresMethod {
			return fault{refuse: unavailable()}
		}
		return notLeader(silent)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := record(newMint(), "Kind", 1)
	if err := s.Append(ctx, "found-1", 0, r); !errors.Is(err, eventstoredb.ErrUnreachable) {
		t.Errorf("Append = %v, want ErrUnreachable", err)
	}
	m.inject(nil)
	err = s.Append(ctx, "found-1", 0, r)
	for errors.Is(err, eventstoredb.ErrUnreachable) && ctx.Err() == nil { // a busy machine may take longer than the retry timeout
		err = s.Append(ctx, "found-1", 0, r)
	}
	if err != nil {
		t.Errorf("Append when the node is back = %v", err)
	}
}

// During an upgrade, the leader can have an older version than the node that the store
// found first: the append returns ErrTooOld.
func TestLeaderThatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.mu.old[1] = true
	s, err := eventstoredb.Open(t.Context(), c.url(0)+"&connectionName=one", eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c.lead(1)
	if err := s.Append(t.Context(), "old-1", 0, record(newMint(), "Kind", 1)); !errors.Is(err, eventstoredb.ErrTooOld) {
		t.Errorf("Append = %v, want ErrTooOld", err)
	}
	c.lead(2)
	if err := s.Append(t.Context(), "old-1", 0, record(newMint(), "Kind", 1)); err != nil {
		t.Errorf("Append when another leads = %v", err)
	}
	c.lead(1)
	if _, err := eventstoredb.Open(t.Context(), c.url(0), eventstoredb.Config{}); !errors.Is(err, eventstoredb.ErrTooOld) {
		t.Errorf("Open = %v, want ErrTooOld", err)
	}
}

// A closed store leaves no goroutine, file descriptor or connection, in any state of
// its calls and servers.
func TestClosedStoreLeaksNothing(t *testing.T) {
	d := newDatabase(t)
	mint := newMint()
	for _, e := range []int{1, 2, 3} {
		if err := d.store.Append(t.Context(), "left-1", events.Revision(e-1), record(mint, "Kind", e)); err != nil {
			t.Fatal(err)
		}
	}
	old := (&stubServer{version: "22.10.5"}).serve(t)
	m := newFaultProxy(t, d.address)
	d.stop()
	connections := func() int { return strings.Count(stacks(), "connectionStateMachine(") }
	before := connections() // of bare clients, which other tests leave
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	left := func(what string) {
		t.Helper()
		waitForCount(t, "goroutines after "+what, goroutines, runtime.NumGoroutine)
		waitForCount(t, "descriptors after "+what, descriptors, func() int { return openFiles(t) })
	}
	open := func() *eventstoredb.Store {
		t.Helper()
		d.start()
		s, err := eventstoredb.Open(t.Context(), d.url()+"&gossipTimeout=1", eventstoredb.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	shut := func(s *eventstoredb.Store) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}

	restarts := repeats(20, 100)
	s := open()
	for n := range restarts {
		d.restart()
		if err := s.Append(t.Context(), events.Stream(fmt.Sprintf("again-%d", n)), 0, record(mint, "Kind", n)); err != nil {
			t.Fatal(err)
		}
	}
	shut(s)
	d.stop()
	left(fmt.Sprintf("%d connections", restarts))

	s = open()
	var running sync.WaitGroup
	for n := range repeats(20, 50) {
		ctx, cancel := context.WithCancel(t.Context())
		running.Go(func() {
			defer cancel()
			for range s.Follow(ctx, events.Position{}) {
				if n%3 == 0 {
					break
				}
				if n%3 == 1 {
					cancel()
				}
			}
		})
		if n%3 == 2 {
			time.AfterFunc(time.Duration(rand.N(20))*time.Millisecond, cancel)
		}
	}
	running.Wait()
	shut(s)
	d.stop()
	left("followers that were left")

	for _, silent := range []bool{false, true} {
		s = open()
		began := make(chan struct{}, 8)
		for range 8 {
			running.Go(func() {
				for mint, n := newMint(), 0; ; n++ {
					if err := s.Append(t.Context(), events.Stream("calls-"+mint.Event().String()), 0, record(mint, "Kind", n)); err != nil {
						if !errors.Is(err, events.ErrClosed) {
							t.Errorf("Append = %v, want ErrClosed", err)
						}
						return
					}
					select {
					case began <- struct{}{}:
					default:
					}
				}
			})
		}
		<-began
		d.stop()
		if silent { // a server accepts and does not respond during a search for a node
			at := d.listen()
			connection, err := at.Accept()
			if err != nil {
				t.Fatal(err)
			}
			shut(s)
			_ = at.Close()
			_ = connection.Close()
		} else {
			shut(s)
		}
		running.Wait()
		left("calls and a search that were under way")
	}

	for range repeats(5, 20) {
		if _, err := eventstoredb.Open(t.Context(), old, eventstoredb.Config{}); !errors.Is(err, eventstoredb.ErrTooOld) {
			t.Fatalf("Open = %v, want ErrTooOld", err)
		}
	}
	left("servers that are too old")

	// A search finds a node after every caller has left.
	d.start()
	s, err := eventstoredb.Open(t.Context(), m.url(), eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	searching, release := make(chan struct{}), make(chan struct{})
	m.inject(func(h proxiedCall) fault {
		if h.method != featuresMethod {
			return fault{refuse: unavailable()}
		}
		close(searching)
		<-release
		return fault{}
	})
	running.Go(func() { _ = s.Append(t.Context(), "left-1", 3, record(mint, "Kind", 4)) })
	<-searching
	shut(s)
	close(release)
	running.Wait()
	waitForCount(t, "connections after a search that nobody waits for", before, connections)
}
