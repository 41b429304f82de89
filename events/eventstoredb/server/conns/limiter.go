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

// The limits that a zero Config sets.
const (
	// DefaultMax is the limit of all connections.
	DefaultMax = 4096
	// DefaultUnauthenticated is the limit of unauthenticated connections.
	DefaultUnauthenticated = 512
	// DefaultGrace is the time until a connection must be authenticated.
	DefaultGrace = 20 * time.Second
)

// A Config sets the limits of a Limiter.
type Config struct {
	// Max bounds the connections of all listeners. 0: DefaultMax, or less if the
	// process may open few files.
	Max int
	// Unauthenticated bounds the unauthenticated connections among them. 0:
	// DefaultUnauthenticated, or half of Max if that is less.
	Unauthenticated int
	// Grace is the time after which an unauthenticated connection is closed. 0:
	// DefaultGrace.
	Grace time.Duration
}

// A Limiter bounds the number of connections of its listeners together. It is
// safe for concurrent use.
//
// A connection passes through two states: unauthenticated, in the queue of its
// network, and authenticated, which only counts. The limiter never closes an
// authenticated connection. A new connection over a limit displaces an
// unauthenticated one; choosing the network with the most of them keeps an
// attacker from displacing the connections of others.
type Limiter struct {
	cfg Config
	// refused counts the connections that the limiter has closed.
	refused atomic.Int64
	mu      struct {
		sync.Mutex
		open int
		// unauthenticated is the number of connections in the queues of origins.
		unauthenticated int
		// origins has the unauthenticated connections (*Conn) by network, the
		// oldest first. No list is empty.
		origins map[netip.Prefix]*list.List
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

// reservedFiles is the number of file descriptors left to the stores of the
// process and to other files: Pebble keeps up to 1,000 tables open for the log
// and 256 for the outputs.
const reservedFiles = 2048

// connectionLimit returns the number of connections for a process that may have
// the given number of files open: all files but reservedFiles, but at least
// half of the files, and at least 1.
func connectionLimit(files int) int { return max(files-reservedFiles, files/2, 1) }

// Stats counts the connections of a Limiter.
type Stats struct {
	Open            int   // open connections
	Unauthenticated int   // unauthenticated ones among them
	Refused         int64 // connections that the limiter has closed
}

// Stats returns the current counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Open: l.mu.open, Unauthenticated: l.mu.unauthenticated, Refused: l.refused.Load()}
}

// Listener returns a listener that counts the connections of the given
// listener. It owns the given listener: to close the returned one closes both.
// Accept of the returned listener closes refused connections and does not
// return them.
func (l *Limiter) Listener(at net.Listener) net.Listener { return &listener{at, l} }

// A listener admits the connections of another listener. Its Accept returns each
// as a *Conn.
type listener struct {
	net.Listener
	limiter *Limiter
}

// Accept returns the next connection that the limiter admits, as a *Conn.
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

// admit counts a connection and returns its Conn. Over a limit it closes the
// connection that displaceLocked chooses. If the limiter is full of authenticated
// connections, it closes the new one and returns nil.
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

// Shed closes all unauthenticated connections. A server calls Shed when it
// shuts down, and then need not wait for them.
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

// displaceLocked chooses the oldest connection of the network with the most
// unauthenticated connections. It stops counting that connection and returns
// it; the caller closes it after releasing mu. displaceLocked returns nil if
// all connections are authenticated. It takes time in proportion to the number
// of networks.
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

// removePendingLocked removes a connection from the unauthenticated ones and
// stops its timer. It returns false if another call has already removed the
// connection.
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

// originOf returns the network of an address: an IPv4 address, or the first 64
// bits of an IPv6 address, since one site controls all addresses below them.
// Other addresses share the zero Prefix.
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

// A Conn is a connection that a Limiter counts until it is closed. Its methods
// are safe for concurrent use.
type Conn struct {
	net.Conn
	limiter *Limiter
	// origin is the network of the peer. It does not change.
	origin netip.Prefix
	// failed is set by Failed.
	failed atomic.Bool
	// authenticated is set by Authenticated.
	authenticated atomic.Bool

	// The Limiter's mutex guards element, expiry and uncounted.

	// element is the connection in the list of its origin. Nil: it is not
	// pending.
	element *list.Element
	// expiry closes the connection at the end of Config.Grace.
	expiry *time.Timer
	// uncounted is set when the limiter no longer counts the connection.
	uncounted bool
}

// Origin returns the network of the peer: its IPv4 address, or the first 64
// bits of its IPv6 address.
func (c *Conn) Origin() netip.Prefix { return c.origin }

// Authenticated records that a request of the connection was authenticated. The
// Limiter no longer closes the connection. Later calls, and calls of a nil Conn,
// have no effect.
func (c *Conn) Authenticated() {
	if c == nil || c.authenticated.Swap(true) {
		return
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.limiter.removePendingLocked(c)
}

// Failed records that a request of the connection had a refused password.
// Package auth then checks the passwords of other connections before those of
// this one.
func (c *Conn) Failed() {
	if c != nil {
		c.failed.Store(true)
	}
}

// HasFailed reports whether a request of the connection had a refused password.
// It returns false for a nil Conn.
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

// expire closes a connection that was not authenticated within Config.Grace. It
// has no effect if the connection was authenticated or closed while the timer
// fired.
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

// refuse closes a connection that the caller has stopped counting. The server
// learns of it when its next read of the connection fails.
func (c *Conn) refuse() {
	c.limiter.refused.Add(1)
	_ = abort(c.Conn)
}

// abort closes a connection with a reset: the kernel keeps neither unsent data
// nor the connection's state.
func abort(c net.Conn) error {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return c.Close()
}

// Of returns the Conn of a connection: c itself, or the Conn that c wraps if c
// is a TLS connection. It returns nil if no Limiter counts the connection.
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

// connKey is the context key of a Conn.
type connKey struct{}

// NewContext returns a context with the Conn of a connection. It can be the
// ConnContext of an http.Server.
func NewContext(ctx context.Context, c net.Conn) context.Context {
	return WithConn(ctx, Of(c))
}

// WithConn returns a context with a Conn, which may be nil.
func WithConn(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// FromContext returns the Conn in a context, or nil. The methods Authenticated,
// Failed and HasFailed accept a nil Conn.
func FromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}
