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
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// The limits of the protocol.
const (
	maxMessage       = 16_767_216 // bytes of a message, which EventStoreDB has too
	DefaultMaxAppend = 16 << 20   // bytes of an append, unless a Config has another limit
)

// The errors of a server.
var (
	ErrNotSafe = errors.New("it is not safe to serve like this")
	ErrDrained = errors.New("the server is shutting down")
)

// A Config says how a store is served. The zero Config serves readers on this
// machine.
type Config struct {
	TLS       *tls.Config // spoken in version 1.2 or later; nil: without, and on loopback alone
	Users     *Users      // who may do what; nil: everyone is Anonymous, and on loopback alone
	Anonymous Role        // of everyone where there are no Users; zero: Reader

	// Writable are the beginnings of the names of streams into which not only
	// the ledger may write. An empty one opens all but those of the system,
	// which begin with $. None opens a stream of the ledger. None: nobody else
	// writes.
	Writable []string

	// WithoutGroups leaves out groups of consumers: to open them reads the headers
	// of the whole log. It is for ledger programs alone, which use none, and for a
	// store that another server serves as well, which has them then.
	WithoutGroups bool

	// Connections bounds the connections, of other listeners that it bounds as well
	// together with those of the server. Nil: those of the server have the default
	// limits.
	Connections *conns.Limiter

	MaxAppend int              // most bytes of an append; 0: DefaultMaxAppend
	Now       func() time.Time // the time of records that others write; nil: time.Now
}

func (c Config) withDefaults() Config {
	c.Anonymous = cmp.Or(c.Anonymous, Reader)
	c.MaxAppend = cmp.Or(c.MaxAppend, DefaultMaxAppend)
	if c.Connections == nil {
		c.Connections = conns.New(conns.Config{})
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Check returns nil if a store may be served like this at an address, and else
// an ErrNotSafe that says why not: an address that others reach asks for TLS and
// users, and users ask for TLS, as their passwords travel with each call.
func (c Config) Check(at net.Addr) error {
	switch {
	case c.Users != nil && c.TLS == nil:
		return fmt.Errorf("serve at %s: %w: users without TLS send their passwords in the clear, and most clients send none; give a certificate", at, ErrNotSafe)
	case c.Users == nil && !loopback(at):
		return fmt.Errorf("serve at %s: %w: the address is not loopback, and there are no users; give users and a certificate, or listen on 127.0.0.1", at, ErrNotSafe)
	}
	return nil
}

// loopback reports whether only this machine reaches an address.
func loopback(at net.Addr) bool {
	switch a := at.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// secured returns how TLS is spoken: at least in version 1.2.
func secured(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c
}

// writableByOthers reports whether others may write into a stream. The metadata of a
// stream belong to it. Streams of the ledger are opened by nothing, streams of the
// system only by a prefix of theirs.
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
