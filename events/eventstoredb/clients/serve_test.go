package clients_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// The one user of the servers here, which the Go client's tests name.
const user, password = "admin", "changeit"

// open opens a store in a folder of the test, and closes it at the end.
func open(t *testing.T) *embedded.Store {
	t.Helper()
	store, err := embedded.Open(t.Context(), filepath.Join(t.TempDir(), "ledger"), embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// serve serves a store at a local address until the test ends, and returns the
// address.
func serve(t *testing.T, store events.Store, address string, cfg server.Config) net.Addr {
	t.Helper()
	server, err := server.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve() = %v, want nil", err)
		}
	})
	return listener.Addr()
}

// A guarded is the configuration of a server with a certificate and users, in files
// as an operator has them.
type guarded struct{ authority, cert, key, users string }

func guard(t *testing.T) guarded {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	g := guarded{file("authority.pem"), file("node.pem"), file("node.key"), file("users")}
	authority := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	// Clients that are strict take no authority for a node.
	node := x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: authority.NotBefore,
		NotAfter: authority.NotAfter, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signing, key := draw(t), draw(t)
	write(t, g.authority, certificate(t, authority, authority, signing, signing))
	write(t, g.cert, certificate(t, node, authority, key, signing))
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, g.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	write(t, g.users, fmt.Appendf(nil, "%s:%s:%s\n", user, hash, auth.Ledger))
	return g
}

// draw returns a new key.
func draw(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// certificate returns the certificate of a key, which a parent signs.
func certificate(t *testing.T, of, parent x509.Certificate, key, signing *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &of, &parent, key.Public(), signing)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// config returns the server configuration that the files describe. writable is its
// Config.Writable.
func (g guarded) config(t *testing.T, writable ...string) server.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(g.cert, g.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(g.users)
	if err != nil {
		t.Fatal(err)
	}
	users, err := auth.ParseUsers(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return server.Config{TLS: &tls.Config{Certificates: []tls.Certificate{pair}}, Users: users, Writable: writable}
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// required names the environment variable that makes the tests run and not be
// skipped.
const required = "OFFICIAL_CLIENTS"

// lacks skips a test without its preconditions, or fails it if the tests are required.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv(required) != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
