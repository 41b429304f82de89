package serve

import (
	"crypto/tls"
	"net"
	"net/netip"
	"testing"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// A listening is a fake listener that has an address only.
type listening struct {
	net.Listener
	text string
}

// Addr returns the TCP address in text, and panics if that is malformed.
func (l listening) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.text)) }

// A server that listens on all addresses announces its host name to other machines and
// the loopback address to commands of its own machine. An announced address that the
// operator gives takes precedence.
func TestOtherMachinesReachAServerByItsHostName(t *testing.T) {
	t.Parallel()
	s := &serverProcess{Config: testConfig(), access: server.Config{TLS: &tls.Config{}}}
	for _, test := range []struct{ listens, given, node, outputs string }{
		{"0.0.0.0:99", "", "https://" + hostName() + ":99", "https://127.0.0.1:99"},
		{"[::]:99", "", "https://" + hostName() + ":99", "https://127.0.0.1:99"},
		{"10.0.0.7:99", "", "https://10.0.0.7:99", "https://10.0.0.7:99"},
		{"0.0.0.0:99", "https://proxy", "https://proxy", "https://127.0.0.1:99"},
	} {
		got := s.newEndpoint(listeners{http: listening{text: test.listens}}, test.given)
		if got.Node != test.node || got.Outputs != test.outputs || got.Address != "" {
			t.Errorf("at %s it announces %+v, want %s to others and %s here, and no protocol", test.listens, got, test.node, test.outputs)
		}
	}
}
