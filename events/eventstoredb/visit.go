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

// A Visiting says how nodes are visited.
type Visiting struct {
	// Patience bounds each step of a visit: to find the addresses of a name, to
	// connect to one, to be greeted, to be answered. 0: DefaultPatience.
	Patience time.Duration
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
	Doors []Door
	// Version is what the node says that it is. Empty: it does not say.
	Version string
	Members []Member // the cluster, as the node sees it; nil: it does not tell
	Skew    *Skew    // of its clock; nil: it does not tell the time
	// Err says why the node is of no use: ErrUnreachable, ErrTLS,
	// ErrCertificate, ErrForeign, ErrTooOld or ErrPreRelease. Nil: it is.
	Err error
}

// A Door is one address of a node.
type Door struct {
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

// Visit looks at each node that a connection string names, and at those that
// these name as alive, all at once: whether its name has addresses and they take
// connections, whether who answers there is an EventStoreDB, with or without TLS
// as the connection string says, of which version, what it says of its cluster,
// and its clock. Credentials are sent to nobody. Only a connection string that
// is not valid is an error, ErrBadAddress; what is wrong with a node is its Err.
func Visit(ctx context.Context, connectionString string, v Visiting) ([]Node, error) {
	config, err := parse(connectionString, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("visit EventStoreDB: %w", err)
	}
	v.Patience = cmp.Or(v.Patience, DefaultPatience)
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
	found := v.visitAll(ctx, config, seeds)
	for i := range found {
		found[i].Named = true
	}
	return append(found, v.visitAll(ctx, config, others(found))...), nil
}

// mostOthers bounds how many nodes are visited because others name them.
const mostOthers = 16

// others returns the addresses of members that live and were not visited.
func others(found []Node) (addresses []string) {
	known := map[string]bool{}
	for _, n := range found {
		known[strings.ToLower(n.Address)] = true
	}
	for _, n := range found {
		for _, m := range n.Members {
			if at := strings.ToLower(m.Address); m.Alive && !known[at] && len(addresses) < mostOthers {
				known[at] = true
				addresses = append(addresses, m.Address)
			}
		}
	}
	return addresses
}

func (v Visiting) visitAll(ctx context.Context, config *esdb.Configuration, addresses []string) []Node {
	found := make([]Node, len(addresses))
	var visits sync.WaitGroup
	for i, address := range addresses {
		visits.Go(func() { found[i] = v.visit(ctx, config, address) })
	}
	visits.Wait()
	return found
}

// visit looks at one node.
func (v Visiting) visit(ctx context.Context, config *esdb.Configuration, address string) Node {
	n := Node{Address: address}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		n.Err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		return n
	}
	if n.Doors, n.Err = v.doors(ctx, host, port); n.Err != nil {
		return n
	}
	open := ""
	for _, d := range n.Doors {
		if d.Err == nil {
			open = d.Address
			break
		}
	}
	if open == "" {
		n.Err = fmt.Errorf("%w: %w", ErrUnreachable, n.Doors[0].Err)
		return n
	}
	transport, err := transportOf(config, host)
	if err == nil {
		err = v.greet(ctx, open, transport)
	}
	if err == nil {
		err = v.ask(ctx, &n, open, transport)
	}
	n.Err = err
	return n
}

// doors connects to each address that a host has.
func (v Visiting) doors(ctx context.Context, host, port string) ([]Door, error) {
	looking, done := context.WithTimeout(ctx, v.Patience)
	defer done()
	addresses, err := v.lookup(looking, host)
	if err != nil || len(addresses) == 0 {
		return nil, fmt.Errorf("%w: find the address of %s: %w", ErrUnreachable, host, cmp.Or(err, errNoAddress))
	}
	doors := make([]Door, len(addresses))
	var tries sync.WaitGroup
	for i, address := range addresses {
		tries.Go(func() {
			d := Door{Address: net.JoinHostPort(address, port)}
			begun := time.Now()
			conn, err := v.connect(ctx, d.Address)
			if d.Took, d.Err = time.Since(begun), err; err == nil {
				_ = conn.Close() // it was opened to see that it can be
			}
			doors[i] = d
		})
	}
	tries.Wait()
	return doors, nil
}

var errNoAddress = errors.New("the name has none")

func (v Visiting) connect(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: v.Patience}
	return dialer.DialContext(ctx, "tcp", address)
}
