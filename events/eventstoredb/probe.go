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

// A ProbeConfig says how nodes are visited.
type ProbeConfig struct {
	// Patience bounds each step of a visit: to find the addresses of a name, to
	// connect to one, to be greeted, to be answered. 0: DefaultPatience.
	StepTimeout time.Duration
	// Now is the clock that the clock of a node is compared with. Nil:
	// time.Now.
	Now func() time.Time

	lookup func(ctx context.Context, host string) ([]string, error)
}

// A Node is what was found of one node of a database.
type Node struct {
	Address string // HOST:PORT
	Named   bool   // the connection string names it; else another node does
	// Doors are the addresses that its name has. None: the name has none, and
	// Err says why.
	Dials []DialResult
	// Version is what the node says that it is. Empty: it does not say.
	Version string
	Members []Member // the cluster, as the node sees it; nil: it does not tell
	Skew    *Skew    // of its clock; nil: it does not tell the time
	// Err says why the node is of no use: ErrUnreachable, ErrTLS,
	// ErrCertificate, ErrForeign, ErrTooOld or ErrPreRelease. Nil: it is.
	Err error
}

// A DialResult is one address of a node.
type DialResult struct {
	Address string        // IP:PORT
	Took    time.Duration // until the connection stood
	Err     error         // why there is none
}

// A Member is a node as another one tells of it.
type Member struct {
	Address string // HOST:PORT, where it says that clients reach it
	State   string // such as Leader or Follower
	Alive   bool
}

// Probe looks at each node that a connection string names, and at those that
// these name as alive, all at once: whether its name has addresses and they take
// connections, whether who answers there is an EventStoreDB, with or without TLS
// as the connection string says, of which version, what it says of its cluster,
// and its clock. Credentials are sent to nobody. Only a connection string that
// is not valid is an error, ErrBadAddress; what is wrong with a node is its Err.
func Probe(ctx context.Context, connectionString string, v ProbeConfig) ([]Node, error) {
	config, err := parseConnectionString(connectionString, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("visit EventStoreDB: %w", err)
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

// maxDiscovered bounds how many nodes are visited because others name them.
const maxDiscovered = 16

// discoveredAddresses returns the addresses of members that live and were not visited.
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

func (v ProbeConfig) probeAll(ctx context.Context, config *esdb.Configuration, addresses []string) []Node {
	nodes := make([]Node, len(addresses))
	var probes sync.WaitGroup
	for i, address := range addresses {
		probes.Go(func() { nodes[i] = v.probeNode(ctx, config, address) })
	}
	probes.Wait()
	return nodes
}

// probeNode looks at one node.
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

// dialAll connects to each address that a host has.
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
				_ = conn.Close() // it was opened to see that it can be
			}
			dials[i] = d
		})
	}
	dialing.Wait()
	return dials, nil
}

var errNoAddress = errors.New("the name has none")

func (v ProbeConfig) dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: v.StepTimeout}
	return dialer.DialContext(ctx, "tcp", address)
}
