package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/settlement-ledger/ledger/cmd/ledger/serve"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// servedCommand waits until a process serves a folder, of a store or of a node. It sets
// CONNECTION to the connection string, ADDRESS to the address of the listener and PID
// to the process ID.
//
// Usage: served DIR
func servedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: served DIR")
	}
	dir := ts.MkAbs(args[0])
	var at shared.Endpoint
	until(ts, dir+" is served", func() (so bool) {
		at, so = serves(dir)
		return so
	})
	ts.Setenv("PID", strconv.Itoa(at.PID))
	ts.Setenv("ADDRESS", at.Address)
	public := "esdb://" + at.Address + "?tls=false"
	if text, err := os.ReadFile(filepath.Join(dir, serve.CredentialsFile)); err == nil {
		public = strings.TrimSpace(string(text))
	}
	ts.Setenv("CONNECTION", public)
}

// serves returns the endpoint recorded in a folder, and whether the process that it
// names responds there.
func serves(dir string) (shared.Endpoint, bool) {
	at, err := shared.ReadEndpoint(dir)
	if err != nil {
		return at, false
	}
	var now struct{ PID int }
	text, err := askEndpoint(at, stores.StatusPath)
	return at, err == nil && json.Unmarshal(text, &now) == nil && now.PID == at.PID
}

// askEndpoint makes a GET request at an endpoint and returns the body of the response.
func askEndpoint(at shared.Endpoint, path string) ([]byte, error) {
	near, err := shared.NewClient(at)
	if err != nil {
		return nil, err
	}
	defer near.Close()
	return near.Do(context.Background(), http.MethodGet, path, nil)
}

// awaitCommand waits until a file exists and, if TEXT is given, contains it.
//
// Usage: await FILE [TEXT]
func awaitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await FILE [TEXT]")
	}
	path, want := ts.MkAbs(args[0]), strings.Join(args[1:], "")
	until(ts, path+" is there, with "+strconv.Quote(want), func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), want)
	})
}

// recordedCommand waits until the log holds the start of the process that serves a
// folder. The endpoint names the process before the log does. The log is that of the
// folder, or of CONNECTION if the folder is that of a node.
//
// Usage: recorded DIR [CONNECTION]
func recordedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: recorded DIR [CONNECTION]")
	}
	dir := ts.MkAbs(args[0])
	store := dir
	if len(args) == 2 {
		store = args[1]
	}
	until(ts, dir+" has the start of its process", func() bool {
		at, err := shared.ReadEndpoint(dir)
		if err != nil || at.Process.IsZero() {
			return false
		}
		out, err := exec.Command(commandPath(), "--store", store, "event", "ls", "--kind", "ProcessStarted", "-o", "jsonl").Output()
		return err == nil && strings.Contains(string(out), at.Process.String())
	})
}

// until polls a condition, and fails the script if it is false for a minute. what
// describes the condition.
func until(ts *testscript.TestScript, what string, so func() bool) {
	if !poll(so) {
		ts.Fatalf("after a minute it is not so that %s", what)
	}
}

// poll evaluates a condition every 5 ms until it is true or a minute has passed, and
// reports whether it became true.
func poll(so func() bool) bool {
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// certificateCommand makes a certificate and its key with writeCertificate.
//
// Usage: certificate NAME
func certificateCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certificate NAME")
	}
	ts.Check(writeCertificate(ts.MkAbs(args[0])))
}

// writeCertificate makes a self-signed certificate for 127.0.0.1 that is valid for an
// hour, and writes it to NAME.pem and its key to NAME.key.
func writeCertificate(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	for suffix, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: certificate}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		err = errors.Join(err, os.WriteFile(name+suffix, pem.EncodeToMemory(block), 0o600))
	}
	return err
}
