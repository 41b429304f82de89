package conns

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// The limits of a zero Config.
const (
	DefaultMax             = 4096
	DefaultUnauthenticated = 512
	DefaultGrace           = 20 * time.Second
)

// A Config says how many connections a Limiter admits.
type Config struct {
	Max             int           // connections of all listeners; 0: DefaultMax; fewer where the process may open few files
	Unauthenticated int           // of these, those that are not authenticated; 0: DefaultUnauthenticated, at most half of Max
	Grace           time.Duration // how long a connection may stay unauthenticated; 0: DefaultGrace
}

// A Limiter bounds the connections of its listeners together. It is safe for
// concurrent use.
type Limiter struct {
	cfg     Config
	refused atomic.Int64
	mu      struct {
		sync.Mutex
		open            int
		unauthenticated int                         // connections that are not authenticated
		origins         map[netip.Prefix]*list.List // of *Conn that are not authenticated, the oldest first; none is empty
	}
}

// New returns a Limiter without connections.
func New(cfg Config) *Limiter {
	cfg.Max = min(cmp.Or(cfg.Max, DefaultMax), connectionLimit(openFiles()))
	cfg.Unauthenticated = cmp.Or(cfg.Unauthenticated, min(DefaultUnauthenticated, max(cfg.Max/2, 1)))
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	l := &Limiter{cfg: cfg}
	l.mu.origins = map[netip.Prefix]*list.List{}
	return l
}

// keptBack is how many file descriptors the stores of a process, and what else
// it opens, have for themselves: Pebble has up to 1,000 tables open for the log
// and 256 for the outputs.
const reservedFiles = 2048

// connectionLimit returns how many connections a process may have that may open so
// many files.
func connectionLimit(files int) int { return max(files-reservedFiles, files/2, 1) }

// Stats are the connections of a Limiter.
type Stats struct {
	Open            int   // now
	Unauthenticated int   // of these
	Refused         int64 // closed since the start, for their number or because they were not authenticated in time
}

// Stats returns the connections as they are now.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Open: l.mu.open, Unauthenticated: l.mu.unauthenticated, Refused: l.refused.Load()}
}

// Listener returns a listener whose connections are counted. The Accept of at is
// called by the Accept of the listener alone, and a connection that is refused
// is closed and not returned.
func (l *Limiter) Listener(at net.Listener) net.Listener { return &listener{at, l} }

type listener struct {
	net.Listener
	limiter *Limiter
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.limiter.admit(accepted); c != nil {
			return c, nil
		}
	}
}

// admit counts a connection. It returns nil if the connection is refused, which
// is closed then.
func (l *Limiter) admit(accepted net.Conn) *Conn {
	c := &Conn{Conn: accepted, limiter: l, origin: originOf(accepted.RemoteAddr())}
	l.mu.Lock()
	full := l.mu.open >= l.cfg.Max
	var displaced *Conn
	if full || l.mu.unauthenticated >= l.cfg.Unauthenticated {
		if displaced = l.displaceLocked(); displaced == nil && full {
			l.mu.Unlock()
			l.refused.Add(1)
			_ = abort(accepted)
			return nil
		}
	}
	l.mu.open++
	l.mu.unauthenticated++
	queue := l.mu.origins[c.origin]
	if queue == nil {
		queue = list.New()
		l.mu.origins[c.origin] = queue
	}
	c.element = queue.PushBack(c)
	c.expiry = time.AfterFunc(l.cfg.Grace, c.expire)
	l.mu.Unlock()
	if displaced != nil {
		displaced.refuse()
	}
	return c
}

// Shed closes all connections that are not authenticated: a server that shuts
// down does not wait for them.
func (l *Limiter) Shed() {
	for {
		l.mu.Lock()
		c := l.displaceLocked()
		l.mu.Unlock()
		if c == nil {
			return
		}
		c.refuse()
	}
}

// displaceLocked takes the oldest connection of the origin that has the most
// out of those that wait to be authenticated, and returns nil if there is none.
// The caller closes it.
func (l *Limiter) displaceLocked() *Conn {
	var longest *list.List
	for _, queue := range l.mu.origins {
		if longest == nil || queue.Len() > longest.Len() {
			longest = queue
		}
	}
	if longest == nil {
		return nil
	}
	c := longest.Front().Value.(*Conn)
	l.removePendingLocked(c)
	l.mu.open--
	c.uncounted = true
	return c
}

// settleLocked takes a connection out of those that wait to be authenticated,
// and reports whether it was one of them.
func (l *Limiter) removePendingLocked(c *Conn) bool {
	if c.element == nil {
		return false
	}
	queue := l.mu.origins[c.origin]
	queue.Remove(c.element)
	if queue.Len() == 0 {
		delete(l.mu.origins, c.origin)
	}
	c.element = nil
	c.expiry.Stop()
	l.mu.unauthenticated--
	return true
}

// originOf returns the network that a connection comes from: an address of
// version 4, and the first 64 bits of one of version 6, as one site has all
// addresses behind these.
func originOf(at net.Addr) netip.Prefix {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.WithZone("").Prefix(bits)
	return prefix
}

// A Conn is a connection that a Limiter counts.
type Conn struct {
	net.Conn
	limiter       *Limiter
	origin        netip.Prefix
	failed        atomic.Bool
	authenticated atomic.Bool // it is authenticated

	// Guarded by the Limiter's mutex.
	element   *list.Element // nil: it does not wait to be authenticated
	expiry    *time.Timer
	uncounted bool // it is not counted any more
}

// Origin returns the network that the connection comes from: its address, or of
// version 6 the first 64 bits.
func (c *Conn) Origin() netip.Prefix { return c.origin }

// Authenticated says that a request of the connection was authenticated. The
// connection is then not closed by the Limiter any more.
func (c *Conn) Authenticated() {
	if c == nil || c.authenticated.Swap(true) {
		return
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.limiter.removePendingLocked(c)
}

// Failed says that a request of the connection had a wrong password.
func (c *Conn) Failed() {
	if c != nil {
		c.failed.Store(true)
	}
}

// HasFailed reports whether Failed was called.
func (c *Conn) HasFailed() bool { return c != nil && c.failed.Load() }

// Close closes the connection and stops counting it.
func (c *Conn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.removePendingLocked(c)
	if !c.uncounted {
		c.uncounted = true
		c.limiter.mu.open--
	}
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// expire closes a connection that was not authenticated in time.
func (c *Conn) expire() {
	c.limiter.mu.Lock()
	pending := c.limiter.removePendingLocked(c)
	if pending {
		c.uncounted = true
		c.limiter.mu.open--
	}
	c.limiter.mu.Unlock()
	if pending {
		c.refuse()
	}
}

// refuse closes a connection that is not counted any more. Its server learns of
// it from the next read.
func (c *Conn) refuse() {
	c.limiter.refused.Add(1)
	_ = abort(c.Conn)
}

// abort closes a connection without keeping unsent data, or the connection's
// state, in the kernel.
func abort(c net.Conn) error {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c.Close()
}

// Of returns the Conn that a connection is or that TLS is spoken over, and nil
// if it has none.
func Of(c net.Conn) *Conn {
	for {
		switch at := c.(type) {
		case *Conn:
			return at
		case *tls.Conn:
			c = at.NetConn()
		default:
			return nil
		}
	}
}

type key struct{}

// NewContext returns a context with the Conn of a connection. It fits the
// ConnContext of an http.Server.
func NewContext(ctx context.Context, c net.Conn) context.Context {
	return WithConn(ctx, Of(c))
}

// WithConn returns a context with a Conn, which may be nil.
func WithConn(ctx context.Context, c *Conn) context.Context { return context.WithValue(ctx, key{}, c) }

// FromContext returns the Conn that NewContext put into a context, and nil if
// there is none. The methods Authenticated, Failed and HasFailed take a nil Conn.
func FromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(key{}).(*Conn)
	return c
}
