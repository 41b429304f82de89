package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
)

// actionPrivate is the permission action for a connection to a private address.
const actionPrivate = "private_address"

// maxAddresses is how many addresses of one host are used.
const maxAddresses = 8

// A pinnedAddress is an address and a port to which a request may connect. It was checked
// before the request, and the request does not resolve the name again.
type pinnedAddress struct {
	netip.AddrPort
	private bool
}

// resolve returns the addresses of the host of a target, the first maxAddresses of them.
// A host that is an address is not looked up.
func (c Config) resolve(ctx context.Context, t webTarget) ([]pinnedAddress, error) {
	found := []netip.Addr{}
	if a, err := netip.ParseAddr(t.host()); err == nil {
		found = append(found, a)
	} else if found, err = c.lookup(ctx, t.host()); err != nil {
		return nil, lookupError(t.host(), err)
	}
	var pinned []pinnedAddress
	for _, a := range found[:min(len(found), maxAddresses)] {
		a = a.Unmap()
		if a.IsValid() && a.Zone() == "" {
			pinned = append(pinned, pinnedAddress{netip.AddrPortFrom(a, t.port), isPrivate(a)})
		}
	}
	if len(pinned) == 0 {
		return nil, fmt.Errorf("the host %s has no address", t.host())
	}
	return pinned, nil
}

// lookupError returns the error of a failed lookup without the address of the resolver.
func lookupError(host string, err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("look up the host %s: %s", host, dns.Err)
	}
	return fmt.Errorf("look up the host %s: %w", host, err)
}

// privateAsk returns the permission request for the private addresses of a target, and
// false if there are no such addresses. Each resource is ADDRESS:PORT, and the answer
// "always" allows only these resources. Rules that ask or deny also match HOST:PORT and
// the IPv4 address that an address contains.
func privateAsk(t webTarget, addresses []pinnedAddress) (permission.Ask, bool) {
	host := fmt.Sprintf("%s:%d", hostInURL(t.host()), t.port)
	ask := permission.Ask{Action: actionPrivate, Spellings: map[string][]string{}}
	for _, a := range addresses {
		resource := a.String()
		if !a.private || slices.Contains(ask.Resources, resource) {
			continue
		}
		ask.Resources = append(ask.Resources, resource)
		ask.Spellings[resource] = []string{host}
		if inner, ok := embedded(a.Addr()); ok {
			ask.Spellings[resource] = append(ask.Spellings[resource], netip.AddrPortFrom(inner, t.port).String())
		}
	}
	if len(ask.Resources) == 0 {
		return permission.Ask{}, false
	}
	metadata, err := json.Marshal(map[string]any{"url": t.String(), "host": t.host(), "addresses": ask.Resources})
	if err != nil {
		panic(err) // the values are strings
	}
	ask.Save, ask.Metadata = ask.Resources, metadata
	return ask, true
}

// dialTimeout is how long one address may take to accept a connection.
const dialTimeout = 10 * time.Second

// dialPinned returns a dial function that connects to the first address that accepts, and
// ignores the name and the port that it is given.
func dialPinned(addresses []pinnedAddress) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: dialTimeout}
		var first error
		for _, a := range addresses {
			conn, err := dialer.DialContext(ctx, "tcp", a.String())
			if err == nil {
				return conn, nil
			}
			if first == nil {
				first = err
			}
		}
		return nil, first
	}
}
