package eventstoredb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// A ProbeConfig configures Probe. The zero value is ready to use.
type ProbeConfig struct {
	// StepTimeout limits each step of the probe of a node: resolve its name, connect
	// to an address, check the protocol, query the node. 0: DefaultRetryTimeout.
	StepTimeout time.Duration
	// Now is the local clock for comparison with the clocks of the nodes. Nil:
	// time.Now.
	Now func() time.Time

	// lookup resolves a host name. Nil: net.DefaultResolver; tests set it.
	lookup func(ctx context.Context, host string) ([]string, error)
}

// A Node describes one node of a database, as far as Probe could reach it. A field
// after the step that failed has its zero value.
type Node struct {
	// Address is HOST:PORT.
	Address string
	// Named is set if the connection string names the node. Otherwise another node
	// reported this node.
	Named bool
	// Dials has a result for each address of the node's name. Empty: the name has no
	// address, for the reason in Err.
	Dials []DialResult
	// Version is the server version. Empty: the node does not report it.
	Version string
	// Members are the members of the cluster, as the node reports them. Nil: it
	// reports no members.
	Members []Member
	// Skew is the difference of the clock of the node to the clock of this machine.
	// Nil: the node reports no time.
	Skew *Skew
	// Err is the reason for which Open cannot use the node: ErrUnreachable, ErrTLS,
	// ErrCertificate, ErrForeign, ErrRefused, ErrTooOld or ErrPreRelease. Nil: it can.
	Err error
}

// A DialResult is the result of connecting to one address of a node.
type DialResult struct {
	// Address is IP:PORT.
	Address string
	// Took is the time until the connection was open or failed.
	Took time.Duration
	// Err is nil if the connection was opened; Probe has closed it again.
	Err error
}

// A Member is a node of a cluster as another node reports it.
type Member struct {
	// Address is HOST:PORT for clients.
	Address string
	// State is the state in the cluster, such as Leader or Follower.
	State string
	// Alive is set if the reporting node considers the member alive.
	Alive bool
}

// Probe describes every node that a connection string names, and every live node that
// those nodes report. It probes the nodes in parallel. The steps for one node are:
// resolve its name, connect to each address, check TLS and HTTP/2, query the server
// version and the clock, query the cluster members. The first step that fails ends the
// probe of the node and gives its Err. Probe sends no credentials. It returns
// ErrBadAddress for an invalid connection string, and no other error. The nodes that
// the connection string names come first, in the order of the connection string.
func Probe(ctx context.Context, connectionString string, v ProbeConfig) ([]Node, error) {
	config, err := parseConnectionString(connectionString, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("probe EventStoreDB: %w", err)
	}
	v.StepTimeout = cmp.Or(v.StepTimeout, DefaultRetryTimeout)
	if v.Now == nil {
		v.Now = time.Now
	}
	if v.lookup == nil {
		v.lookup = net.DefaultResolver.LookupHost
	}
	seeds := []string{config.Address}
	if len(config.GossipSeeds) > 0 {
		seeds = seeds[:0]
		for _, s := range config.GossipSeeds {
			seeds = append(seeds, net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))))
		}
	}
	nodes := v.probeAll(ctx, config, seeds)
	for i := range nodes {
		nodes[i].Named = true
	}
	return append(nodes, v.probeAll(ctx, config, discoveredAddresses(nodes))...), nil
}

// maxDiscovered limits the number of nodes that Probe adds from the reports of others.
const maxDiscovered = 16

// discoveredAddresses returns the addresses of live members that nodes does not
// contain, at most maxDiscovered, each once. It compares addresses without regard to
// case.
func discoveredAddresses(nodes []Node) (addresses []string) {
	seen := map[string]bool{}
	for _, n := range nodes {
		seen[strings.ToLower(n.Address)] = true
	}
	for _, n := range nodes {
		for _, m := range n.Members {
			if at := strings.ToLower(m.Address); m.Alive && !seen[at] && len(addresses) < maxDiscovered {
				seen[at] = true
				addresses = append(addresses, m.Address)
			}
		}
	}
	return addresses
}

// probeAll probes the nodes at several addresses in parallel, and returns them in the
// order of the addresses.
func (v ProbeConfig) probeAll(ctx context.Context, config *esdb.Configuration, addresses []string) []Node {
	nodes := make([]Node, len(addresses))
	var probes sync.WaitGroup
	for i, address := range addresses {
		probes.Go(func() { nodes[i] = v.probeNode(ctx, config, address) })
	}
	probes.Wait()
	return nodes
}

// probeNode probes the node at one address, through the first of its IP addresses
// that accepts a connection. If every address refuses, the node is unreachable.
func (v ProbeConfig) probeNode(ctx context.Context, config *esdb.Configuration, address string) Node {
	n := Node{Address: address}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		n.Err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		return n
	}
	if n.Dials, n.Err = v.dialAll(ctx, host, port); n.Err != nil {
		return n
	}
	reachable := ""
	for _, d := range n.Dials {
		if d.Err == nil {
			reachable = d.Address
			break
		}
	}
	if reachable == "" {
		n.Err = fmt.Errorf("%w: %w", ErrUnreachable, n.Dials[0].Err)
		return n
	}
	tlsConfig, err := tlsConfigFor(config, host)
	if err == nil {
		err = v.checkProtocol(ctx, reachable, tlsConfig)
	}
	if err == nil {
		err = v.queryNode(ctx, &n, reachable, tlsConfig)
	}
	n.Err = err
	return n
}

// dialAll connects to every address of a host in parallel and closes the connections.
// It returns ErrUnreachable if the name has no address.
func (v ProbeConfig) dialAll(ctx context.Context, host, port string) ([]DialResult, error) {
	lookupCtx, done := context.WithTimeout(ctx, v.StepTimeout)
	defer done()
	addresses, err := v.lookup(lookupCtx, host)
	if err != nil || len(addresses) == 0 {
		return nil, fmt.Errorf("%w: find the address of %s: %w", ErrUnreachable, host, cmp.Or(err, errNoAddress))
	}
	dials := make([]DialResult, len(addresses))
	var dialing sync.WaitGroup
	for i, address := range addresses {
		dialing.Go(func() {
			d := DialResult{Address: net.JoinHostPort(address, port)}
			started := time.Now()
			conn, err := v.dial(ctx, d.Address)
			if d.Took, d.Err = time.Since(started), err; err == nil {
				_ = conn.Close() // the dial only tests the address
			}
			dials[i] = d
		})
	}
	dialing.Wait()
	return dials, nil
}

// errNoAddress is the error for a name without an address.
var errNoAddress = errors.New("the name has no address")

// dial opens a TCP connection within the step timeout. The caller closes it.
func (v ProbeConfig) dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: v.StepTimeout}
	return dialer.DialContext(ctx, "tcp", address)
}
