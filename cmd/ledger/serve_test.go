package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/settlement-ledger/ledger/events/embedded"
)

// servedCommand waits until a folder is served by the process that holds its
// lock, and says where in CONNECTION and ADDRESS: served DIR.
func servedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: served DIR")
	}
	dir := ts.MkAbs(args[0])
	var at serving
	until(ts, dir+" is served", func() bool {
		var owner embedded.Owner
		return readJSON(filepath.Join(dir, ownerName), &owner) == nil && readJSON(filepath.Join(dir, servingName), &at) == nil &&
			at.Started.Equal(owner.Started) && listening(at.Address)
	})
	ts.Setenv("CONNECTION", at.Connection)
	ts.Setenv("ADDRESS", at.Address)
}

// listening reports whether somebody listens. What a killed process left names
// one who does not.
func listening(at string) bool {
	conn, err := net.Dial("tcp", at)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
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
