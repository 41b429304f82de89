package protocol_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol"
)

// certificate returns one for this machine, and what trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// users returns users with their names as passwords, but for admin. Their
// hashes are the cheapest that there are.
func users(t *testing.T) *protocol.Users {
	t.Helper()
	var lines []string
	for _, u := range []struct {
		name, password string
		role           protocol.Role
	}{{"admin", "changeit", protocol.Ledger}, {"writer", "writer", protocol.Writer}, {"reader", "reader", protocol.Reader}} {
		hash, err := bcrypt.GenerateFromPassword([]byte(u.password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s:%s:%s", u.name, hash, u.role)
		lines = append(lines, line)
	}
	parsed, err := protocol.ParseUsers(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestServeTheOfficialSuite serves an empty store until it is interrupted, at
// the addresses in PROTOCOL_SUITE, a comma between two. The official Go client's
// own tests, of a copy of its module, run against it unmodified:
//
//	PROTOCOL_SUITE=127.0.0.1:2111,127.0.0.1:2112,127.0.0.1:2113 go test -timeout 0 -run OfficialSuite ./events/eventstoredb/protocol &
//	cd COPY/esdb && CLUSTER=true EVENTSTORE_INSECURE=false EVENTSTORE_DOCKER_TAG=24.10.4-jammy \
//		go test -v -run 'TestStreams|TestPersistentSubscriptions|TestMisc' .
//
// Those fail that delete, that let a stream forget by $maxAge, and that need a
// second node; those are skipped that need a database that was filled before.
func TestServeTheOfficialSuite(t *testing.T) {
	addresses := os.Getenv("PROTOCOL_SUITE")
	if addresses == "" {
		t.Skip("PROTOCOL_SUITE names no address to serve at")
	}
	store := eventstest.NewSlice()
	// The suite waits until the users of a database are there.
	record := events.Record{ID: mint(1), Kind: "$User", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte("{}")}
	if err := store.Append(t.Context(), "$users", 0, record); err != nil {
		t.Fatal(err)
	}
	cert, _ := certificate(t)
	server, err := protocol.New(store, protocol.Config{
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Users: users(t), Writable: []string{""},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	done := make(chan error)
	all := strings.Split(addresses, ",")
	for _, address := range all {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- server.Serve(listener) }()
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		t.Error(err)
	}
	for range all {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
