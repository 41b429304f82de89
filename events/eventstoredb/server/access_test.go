package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"golang.org/x/crypto/bcrypt"

	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// Each role may make the calls that its doc comment names, and no others.
func TestRolesGrantTheirRights(t *testing.T) {
	t.Parallel()
	cert, _ := certificate(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	address := serve(t, eventstest.NewSlice(), server.Config{
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Users: users(t), Anonymous: auth.Ledger, Writable: []string{"app-"},
	})
	for _, test := range []struct {
		credentials   string
		write, manage esdb.ErrorCode
	}{
		{"admin:changeit@", -1, -1},
		{"writer:writer@", -1, -1},
		{"reader:reader@", esdb.ErrorCodeAccessDenied, esdb.ErrorCodeAccessDenied},
		{"reader:writer@", esdb.ErrorCodeUnauthenticated, esdb.ErrorCodeUnauthenticated},
		{"nobody:nobody@", esdb.ErrorCodeUnauthenticated, esdb.ErrorCodeUnauthenticated},
		{"", esdb.ErrorCodeUnauthenticated, esdb.ErrorCodeUnauthenticated},
	} {
		c := dial(t, "esdb://"+test.credentials+address+"?tlsCaFile="+ca)
		for range 2 { // the second time the password is known, or not
			_, err := c.AppendToStream(t.Context(), "app-1", esdb.AppendToStreamOptions{ExpectedRevision: esdb.Any{}}, proposed("A", ""))
			if code(err) != test.write {
				t.Errorf("%q appends: %v, want code %d", test.credentials, err, test.write)
			}
		}
		group := strings.Trim(test.credentials, "@") + "."
		if err := c.CreatePersistentSubscription(t.Context(), "app-1", group, esdb.PersistentStreamSubscriptionOptions{}); code(err) != test.manage {
			t.Errorf("%q makes a group: %v, want code %d", test.credentials, err, test.manage)
		}
	}
	stranger := dial(t, "esdb://admin:changeit@"+address+"?maxDiscoverAttempts=1")
	if _, err := stranger.AppendToStream(t.Context(), "app-1", esdb.AppendToStreamOptions{}, proposed("A", "")); err == nil || !strings.Contains(err.Error(), "x509") && !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client that does not trust the certificate appends: %v, want why not", err)
	}
}

// The server refuses TLS 1.0 and 1.1, also if its Config allows them.
func TestTLSVersions(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	address := serve(t, eventstest.NewSlice(), server.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	}})
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, MinVersion: version, MaxVersion: version, NextProtos: []string{"h2"}})
		if err == nil {
			conn.Close()
		}
		if got := err == nil; got != want {
			t.Errorf("%s: %v, want a connection: %t", tls.VersionName(version), err, want)
		}
	}
}

// A configuration that would send passwords in plain text, or serve other
// machines without TLS and users, is refused with ErrNotSafe.
func TestUnsafeConfigIsRefused(t *testing.T) {
	t.Parallel()
	cert, _ := certificate(t)
	secure := &tls.Config{Certificates: []tls.Certificate{cert}}
	everywhere, here := &net.TCPAddr{IP: net.IPv4zero, Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for name, test := range map[string]struct {
		cfg  server.Config
		at   net.Addr
		want error
	}{
		"loopback":                      {server.Config{}, here, nil},
		"loopback of six":               {server.Config{}, &net.TCPAddr{IP: net.IPv6loopback, Port: 1}, nil},
		"everywhere":                    {server.Config{}, everywhere, server.ErrNotSafe},
		"everywhere, TLS":               {server.Config{TLS: secure}, everywhere, server.ErrNotSafe},
		"everywhere, users":             {server.Config{Users: users(t)}, everywhere, server.ErrNotSafe},
		"everywhere, TLS and users":     {server.Config{TLS: secure, Users: users(t)}, everywhere, nil},
		"loopback, users and no TLS":    {server.Config{Users: users(t)}, here, server.ErrNotSafe},
		"an address that is not of TCP": {server.Config{}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, server.ErrNotSafe},
	} {
		if err := test.cfg.Check(test.at); !errors.Is(err, test.want) {
			t.Errorf("%s: Check() = %v, want %v", name, err, test.want)
		}
	}
	running, err := server.New(eventstest.NewSlice(), server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Serve(listener); !errors.Is(err, server.ErrNotSafe) {
		t.Errorf("Serve(%s) = %v, want ErrNotSafe", listener.Addr(), err)
	}
	if _, err := server.New(eventstest.NewSlice(), server.Config{Users: users(t)}); !errors.Is(err, server.ErrNotSafe) {
		t.Errorf("New with users and without TLS: %v, want ErrNotSafe", err)
	}
}

// certificate returns a certificate for this machine and a pool that trusts it.
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

// users returns three users; writer and reader have their names as passwords.
// The hashes have the lowest cost.
func users(t *testing.T) *auth.Users {
	t.Helper()
	var lines []string
	for _, u := range []struct {
		name, password string
		role           auth.Role
	}{{"admin", "changeit", auth.Ledger}, {"writer", "writer", auth.Writer}, {"reader", "reader", auth.Reader}} {
		hash, err := bcrypt.GenerateFromPassword([]byte(u.password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s:%s:%s", u.name, hash, u.role)
		lines = append(lines, line)
	}
	parsed, err := auth.ParseUsers(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
