package web

import (
	"net/netip"
	"testing"
)

// An address that the public internet does not reach is private, in every form.
func TestPrivateAddressesAreRecognised(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"127.0.0.1", "127.255.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254", "0.0.0.0", "0.1.2.3", "100.64.0.1",
		"100.127.255.255", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"::ffff:0:127.0.0.1", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "fec0::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808",
		"2002:7f00:1::", "2002:c0a8:1::1", "2001:db8::1", "2001:0:1::1", "100::1",
	} {
		if !isPrivate(netip.MustParseAddr(text)) {
			t.Errorf("isPrivate(%s) = false, want true", text)
		}
	}
	for _, text := range []string{"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "169.253.0.1", "::ffff:8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1", "2a00:1450::1"} {
		if isPrivate(netip.MustParseAddr(text)) {
			t.Errorf("isPrivate(%s) = true, want false", text)
		}
	}
	if !isPrivate(netip.Addr{}) {
		t.Error("isPrivate of the zero Addr = false, want true")
	}
}

// A rule for an IPv4 address also matches an IPv6 address that carries it.
func TestPrivateRequestNamesEachSpelling(t *testing.T) {
	t.Parallel()
	target, err := parseTarget("http://[64:ff9b::7f00:1]:8080/")
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := Config{}.resolve(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	ask, private := privateAsk(target, addresses)
	if !private || len(ask.Resources) != 1 || ask.Resources[0] != "[64:ff9b::7f00:1]:8080" || ask.Spellings[ask.Resources[0]][1] != "127.0.0.1:8080" {
		t.Errorf("privateAsk = %+v, %v, want the address and 127.0.0.1:8080", ask, private)
	}
}
