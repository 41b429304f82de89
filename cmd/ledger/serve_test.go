package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol"
)

// servedCommand waits until a folder, of a store or of a node, is served by the
// process that it names, and says where in CONNECTION and ADDRESS, and by which in
// PID: served DIR.
func servedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: served DIR")
	}
	dir := ts.MkAbs(args[0])
	var at serving
	until(ts, dir+" is served", func() bool {
		if readJSON(filepath.Join(dir, servingName), &at) != nil {
			return false
		}
		near := nearby(at)
		defer near.Close()
		var now struct{ PID int }
		text, err := near.ask(context.Background(), http.MethodGet, statusPath, nil)
		return err == nil && json.Unmarshal(text, &now) == nil && now.PID == at.PID
	})
	ts.Setenv("PID", strconv.Itoa(at.PID))
	ts.Setenv("CONNECTION", at.Connection)
	ts.Setenv("ADDRESS", at.Address)
}

// awaitCommand waits until there is a file: await FILE.
func awaitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	path := ts.MkAbs(args[0])
	until(ts, path+" is there", func() bool { _, err := os.Stat(path); return err == nil })
}

// until looks again and again whether something is so.
func until(ts *testscript.TestScript, what string, so func() bool) {
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("after a minute it is not so that %s", what)
		}
	}
}

// certificateCommand makes a certificate for this machine, and its key:
// certificate NAME.
func certificateCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certificate NAME")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	for name, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: certificate}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+name), pem.EncodeToMemory(block), 0o600))
	}
}

// A listening is a listener of which only the address matters.
type listening struct {
	net.Listener
	text string
}

func (l listening) Addr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.text)) }

// Where a host listens at all addresses, others reach it by its name, and commands of
// its machine by the loopback.
func TestOthersReachAHostByItsName(t *testing.T) {
	t.Parallel()
	s := &host{app: &app{now: time.Now}, cfg: protocol.Config{TLS: &tls.Config{}}}
	for _, test := range []struct{ listens, given, node, outputs string }{
		{"0.0.0.0:99", "", "https://" + hostName() + ":99", "https://127.0.0.1:99"},
		{"[::]:99", "", "https://" + hostName() + ":99", "https://127.0.0.1:99"},
		{"10.0.0.7:99", "", "https://10.0.0.7:99", "https://10.0.0.7:99"},
		{"0.0.0.0:99", "https://proxy", "https://proxy", "https://127.0.0.1:99"},
	} {
		got := s.announced(door{beside: listening{text: test.listens}}, test.given, guest{})
		if got.Node != test.node || got.Outputs != test.outputs || got.Address != "" || got.Connection != "" {
			t.Errorf("at %s it announces %+v, want %s to others and %s here, and no protocol", test.listens, got, test.node, test.outputs)
		}
	}
}
