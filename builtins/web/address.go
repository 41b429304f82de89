package web

import "net/netip"

// reservedPrefixes are the prefixes that the global unicast test of net/netip accepts
// although no public host has an address in them: the special-purpose registries of
// IANA, except the ranges that embed an IPv4 address.
var reservedPrefixes = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT
	netip.MustParsePrefix("192.0.0.0/24"),    // IETF protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved
	netip.MustParsePrefix("::/96"),           // IPv4-compatible
	netip.MustParsePrefix("64:ff9b:1::/48"),  // NAT64 of one network
	netip.MustParsePrefix("100::/64"),        // discard
	netip.MustParsePrefix("2001::/23"),       // IETF protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("3fff::/20"),       // documentation
	netip.MustParsePrefix("5f00::/16"),       // segment routing
	netip.MustParsePrefix("fec0::/10"),       // site-local
}

// An embeddingPrefix is a prefix of IPv6 addresses that contain an IPv4 address. A gateway
// or the kernel connects to the contained address.
type embeddingPrefix struct {
	netip.Prefix
	at int // index of the first byte of the IPv4 address
}

var embeddingPrefixes = []embeddingPrefix{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64 of one network, with the usual length
}

// embedded returns the IPv4 address that an IPv6 address carries, or false.
func embedded(a netip.Addr) (netip.Addr, bool) {
	for _, p := range embeddingPrefixes {
		if p.Contains(a) {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[p.at : p.at+4])), true
		}
	}
	return netip.Addr{}, false
}

// isPrivate reports whether an address belongs to this machine or to a network that the
// public internet does not reach: loopback, private, link-local, multicast and reserved
// addresses, and addresses that carry such an IPv4 address. An IPv4-mapped address counts
// as its IPv4 address. The zero Addr is private.
func isPrivate(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return true
	}
	for _, p := range reservedPrefixes {
		if p.Contains(a) {
			return true
		}
	}
	inner, ok := embedded(a)
	return ok && isPrivate(inner)
}
