package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// The limits of the protocol.
const (
	// maxMessage bounds one gRPC message in bytes, as in EventStoreDB.
	maxMessage = 16_767_216
	// DefaultMaxAppend is the limit of an append in bytes where Config.MaxAppend
	// is 0.
	DefaultMaxAppend = 16 << 20
)

// The sentinel errors of a server. Match them with errors.Is.
var (
	// ErrNotSafe reports a configuration that would send passwords in plain text,
	// or would serve other machines without users or TLS.
	ErrNotSafe = errors.New("unsafe server configuration")
	// ErrDrained is the cause with which the running calls end when the server
	// shuts down. Clients receive UNAVAILABLE.
	ErrDrained = errors.New("the server is shutting down")
)

// A Config says how a store is served. The zero Config serves readers on this
// machine. The Config and the values that it refers to must not change while the
// server runs, except that the methods of auth.Users may be called.
type Config struct {
	// TLS is the configuration of the server's side. The server requires TLS 1.2
	// or later. Nil: plain text, on loopback addresses only.
	TLS *tls.Config
	// Users are the users and their roles. Nil: every caller has the role
	// Anonymous, on loopback addresses only.
	Users *auth.Users
	// Anonymous is the role of every caller if Users is nil. Zero: auth.Reader.
	Anonymous auth.Role

	// Writable holds prefixes of stream names. Callers with the role Writer may
	// append foreign events to streams whose name has such a prefix. The empty
	// prefix matches every stream except system streams, whose names begin with
	// $. No prefix opens a stream of the ledger. If Writable is empty, only the
	// ledger appends.
	Writable []string

	// WithoutGroups turns consumer groups off. Opening them reads the headers
	// of the whole log. Set it if only ledger programs connect, which use no
	// groups, or if another server of the same store serves the groups.
	WithoutGroups bool

	// Connections bounds the number of connections. It may be shared with other
	// listeners, such as an HTTP server. Nil: a limiter with the default
	// limits.
	Connections *conns.Limiter

	// MaxAppend is the maximal number of bytes of one append: the data, metadata
	// and types of its events. 0: DefaultMaxAppend.
	MaxAppend int
	// Now is the clock that dates foreign events. Nil: time.Now.
	Now func() time.Time
}

// withDefaults returns c with its zero fields set to their defaults.
func (c Config) withDefaults() Config {
	c.Anonymous = cmp.Or(c.Anonymous, auth.Reader)
	c.MaxAppend = cmp.Or(c.MaxAppend, DefaultMaxAppend)
	if c.Connections == nil {
		c.Connections = conns.New(conns.Config{})
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Check returns nil if the store may be served at an address, and otherwise an
// ErrNotSafe that gives the reason and the remedy. An address that other machines
// reach requires TLS and users. Users require TLS everywhere, since each call
// carries a password.
func (c Config) Check(at net.Addr) error {
	switch {
	case c.Users != nil && c.TLS == nil:
		return fmt.Errorf("serve at %s: %w: users require TLS, since passwords would be sent in plain text; give a certificate", at, ErrNotSafe)
	case c.Users == nil && !loopback(at):
		return fmt.Errorf("serve at %s: %w: an address that is not loopback requires users; give users and a certificate, or listen on 127.0.0.1", at, ErrNotSafe)
	}
	return nil
}

// loopback reports whether only this machine can connect to an address: a
// loopback IP address or a Unix socket.
func loopback(at net.Addr) bool {
	switch a := at.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// secured returns a copy of a TLS configuration that requires TLS 1.2 or later. A
// stricter minimum is kept.
func secured(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c
}

// writableByOthers reports whether Writable opens a stream to foreign events. The
// metadata stream $$NAME is open if the stream NAME is. Writable never opens
// streams of the ledger or of consumer groups, and opens a system stream only by
// a non-empty prefix.
func (c Config) writableByOthers(s events.Stream) bool {
	name := events.Stream(strings.TrimPrefix(string(s), "$$"))
	if name.Category() == groups.Category || isLedgerStream(name) {
		return false
	}
	system := strings.HasPrefix(string(name), "$")
	return slices.ContainsFunc(c.Writable, func(prefix string) bool {
		return strings.HasPrefix(string(name), prefix) && (!system || prefix != "")
	})
}
