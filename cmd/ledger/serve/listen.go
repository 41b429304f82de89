package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// listeners are the public listeners of a serverProcess.
type listeners struct {
	protocol net.Listener // for the EventStoreDB protocol; nil: the process serves a node
	http     net.Listener // for outputs and monitoring
}

// close closes both listeners. The caller calls it only if run has not started the
// servers: the servers close the listeners themselves.
func (l listeners) close() error {
	if l.protocol == nil {
		return l.http.Close()
	}
	return errors.Join(l.protocol.Close(), l.http.Close())
}

// newEndpoint returns the endpoint of this process: its IDs and its public addresses.
// Other nodes request outputs at the address given, or if that is empty at the address
// of the HTTP listener.
func (s *serverProcess) newEndpoint(l listeners, given string) shared.Endpoint {
	at := shared.Endpoint{Process: s.Mint().Process(), PID: os.Getpid(), Started: s.Now().UTC(), Command: stores.ServeCommand}
	at.Outputs = httpURL(reached(l.http.Addr(), "127.0.0.1"), s.access)
	at.Node = cmp.Or(given, httpURL(reached(l.http.Addr(), hostName()), s.access))
	if l.protocol != nil {
		at.Address = reached(l.protocol.Addr(), hostName())
	}
	return at
}

// listen opens the public listeners. last is the endpoint that the previous server wrote
// when it ended in order, or zero.
func (s *serverProcess) listen(ctx context.Context, at stores.Address, last shared.Endpoint) (l listeners, err error) {
	if at.Database == "" {
		if l.protocol, err = listen(ctx, "listen", s.Listen, s.access, s.ownerOnly); err != nil {
			return l, err
		}
	}
	if l.http, err = s.listenHTTP(ctx, l.protocol, last); err != nil && l.protocol != nil {
		err = errors.Join(err, l.protocol.Close())
	}
	return l, err
}

// listenHTTP opens the listener for outputs at --listen-outputs. Without that flag it
// listens on the host of gate, which is the protocol listener, or on 127.0.0.1 if gate
// is nil.
//
// Without the flag it takes the port of last, the previous server of the folder, because
// the log may contain the address of that server. If that port is in use, it takes a
// free one.
func (s *serverProcess) listenHTTP(ctx context.Context, gate net.Listener, last shared.Endpoint) (net.Listener, error) {
	at := func(address string) (net.Listener, error) {
		return listen(ctx, "listen-outputs", address, s.access, s.ownerOnly)
	}
	if s.ListenOutputs != "" {
		return at(s.ListenOutputs)
	}
	host := "127.0.0.1"
	if gate != nil {
		if on, _, err := net.SplitHostPort(gate.Addr().String()); err == nil {
			host = on
		}
	}
	// If the last port is in use now, fall through to a free one.
	if u, err := url.Parse(last.Outputs); err == nil && u.Port() != "" {
		if again, err := at(net.JoinHostPort(host, u.Port())); err == nil {
			return again, nil
		}
	}
	return at(net.JoinHostPort(host, "0"))
}

// httpURL returns the URL of an address of the form HOST:PORT. The scheme is https if
// cfg has TLS, and http otherwise.
func httpURL(at string, cfg server.Config) string {
	if cfg.TLS != nil {
		return "https://" + at
	}
	return "http://" + at
}

// listen opens a TCP listener on address if cfg is safe to serve there. Every error
// names the flag from which the address is. If owner is set, only the owner of the
// folder can connect. Such a server may only listen on loopback, because its certificate
// and its password are readable only on this machine.
func listen(ctx context.Context, flag, address string, cfg server.Config, owner bool) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fault.Usage("--%s: %w", flag, err)
	}
	if owner { // Check then treats the server as one without users
		cfg.Users = nil
	}
	if err := cfg.Check(resolved); err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	var opening net.ListenConfig
	listener, err := opening.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("--%s: %w", flag, err), "give another address, or port 0 for a free one")
	}
	return listener, nil
}

// reached returns the address HOST:PORT at which clients reach a listener. If the
// listener has an unspecified IP address, such as 0.0.0.0, HOST is the host name in the
// parameter name.
func reached(at net.Addr, name string) string {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return at.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = name
	}
	return net.JoinHostPort(host, port)
}

// connection returns an EventStoreDB connection string for an address HOST:PORT, without
// credentials. It turns TLS off if cfg has none.
func connection(at string, cfg server.Config) string {
	u := url.URL{Scheme: "esdb", Host: at}
	if cfg.TLS == nil {
		u.RawQuery = "tls=false"
	}
	return u.String()
}
