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
	maxMessage       = 16_767_216 // bytes of one gRPC message, as in EventStoreDB
	DefaultMaxAppend = 16 << 20   // bytes of one append, where Config.MaxAppend is 0
)

// The sentinel errors of a server.
var (
	ErrNotSafe = errors.New("unsafe server configuration")
	ErrDrained = errors.New("the server is shutting down")
)

// A Config says how a store is served. The zero Config serves readers on this
// machine.
type Config struct {
	TLS       *tls.Config // the server requires TLS 1.2 or later; nil: plain text, and on loopback addresses only
	Users     *auth.Users // the users and their roles; nil: every caller has the role Anonymous, and only on loopback addresses
	Anonymous auth.Role   // the role of every caller if Users is nil; zero: Reader

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

	MaxAppend int              // maximal bytes of one append; 0: DefaultMaxAppend
	Now       func() time.Time // the clock that dates foreign events; nil: time.Now
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
// ErrNotSafe that gives the reason. An address that other machines reach
// requires TLS and users. Users require TLS, since each call carries a
// password.
func (c Config) Check(at net.Addr) error {
	switch {
	case c.Users != nil && c.TLS == nil:
		return fmt.Errorf("serve at %s: %w: users require TLS, since passwords would be sent in plain text; give a certificate", at, ErrNotSafe)
	case c.Users == nil && !loopback(at):
		return fmt.Errorf("serve at %s: %w: an address that is not loopback requires users; give users and a certificate, or listen on 127.0.0.1", at, ErrNotSafe)
	}
	return nil
}

// loopback reports whether only this machine can connect to an address.
func loopback(at net.Addr) bool {
	switch a := at.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// secured returns a copy of a TLS configuration that requires TLS 1.2 or later.
func secured(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c
}

// writableByOthers reports whether Writable opens a stream to foreign events.
// The metadata stream $$NAME follows the stream NAME. Writable never opens
// streams of the ledger or of consumer groups, and opens a system stream only
// by a non-empty prefix.
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
