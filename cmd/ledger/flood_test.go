//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpctls "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/cmd/ledger/serve"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// The size of a flood. With the long counts it is 10,000 connections and 1,000 calls.
var (
	floodConnections = repeats(300, 10_000) // idle connections
	floodCalls       = repeats(40, 1_000)   // calls of 16 MB without a user
	floodAppends     = repeats(100, 1_000)  // timed appends of a client with a user
)

// floodMemory is the limit of the peak memory of a flooded server, in bytes.
const floodMemory = 512 << 20

// A tlsServer is a ledger serve process with TLS and one user, and the idle connections
// of the test to it.
type tlsServer struct {
	*servingProcess
	log, outputs string // host:port of the gRPC and of the HTTP listener
	pem          string // path of the certificate
	roots        *x509.CertPool
	mu           sync.Mutex
	held         []net.Conn // guarded by mu; closed when the test ends
}

// startTLSServer starts a server with a new certificate and the user ada.
func startTLSServer(t *testing.T) *tlsServer {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "node")
	if err := writeCertificate(name); err != nil {
		t.Fatal(err)
	}
	line, err := auth.FormatUser("ada", "s3cret", auth.Writer)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+".users", []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &tlsServer{pem: name + ".pem", roots: x509.NewCertPool()}
	f.servingProcess = beginServing(t, filepath.Join(dir, "store"), "--writable", "app-", "--tls-cert", f.pem, "--tls-key", name+".key", "--users", name+".users")
	certificate, err := os.ReadFile(f.pem)
	if err != nil || !f.roots.AppendCertsFromPEM(certificate) {
		t.Fatal("the certificate cannot be read: ", err)
	}
	for at, text := range map[*string]string{&f.log: "esdb://" + f.at.Address, &f.outputs: f.at.Outputs} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		*at = u.Host
	}
	t.Cleanup(func() {
		for _, c := range f.held {
			c.Close()
		}
	})
	return f
}

// tlsConfig returns a client configuration that trusts the server's certificate.
func (f *tlsServer) tlsConfig() *tls.Config {
	return &tls.Config{RootCAs: f.roots, NextProtos: []string{"h2"}}
}

// openIdleConns opens n idle connections, half of them to each listener. Of sixteen, two
// complete the TLS handshake and send part of the HTTP/2 preface, two send part of a
// handshake, and twelve send no data.
func (f *tlsServer) openIdleConns(n int) {
	for i := range n {
		at := f.log
		if i%2 == 1 {
			at = f.outputs
		}
		c, err := net.DialTimeout("tcp", at, 10*time.Second)
		if err != nil {
			continue // the server refused the connection
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		switch i / 2 % 8 {
		case 0:
			s := tls.Client(c, f.tlsConfig())
			if s.Handshake() == nil {
				_, _ = io.WriteString(s, "PRI * HTTP/2.0\r\n")
			}
			c = s
		case 1:
			_, _ = c.Write([]byte{22, 3, 1, 1, 0, 1})
		}
		f.mu.Lock()
		f.held = append(f.held, c)
		f.mu.Unlock()
	}
}

// A fixedCodec is a gRPC codec that sends the same encoded message each time, so that
// clients spend no time on encoding.
type fixedCodec struct{ mem.BufferSlice }

func (s fixedCodec) Name() string                         { return "proto" }
func (s fixedCodec) Marshal(any) (mem.BufferSlice, error) { s.Ref(); return s.BufferSlice, nil }
func (s fixedCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// sendLargeMessage makes n calls with messages of 16 MB and without a user, from ten goroutines
// with a connection each. A call may only end as unauthenticated, as unavailable or
// without an error.
func (f *tlsServer) sendLargeMessage(t *testing.T, n int) {
	message := fixedCodec{mem.BufferSlice{mem.SliceBuffer(make([]byte, 16_000_000))}}
	methods := []string{
		"/event_store.client.streams.Streams/Append", "/event_store.client.streams.Streams/BatchAppend", "/event_store.client.streams.Streams/Read",
		"/event_store.client.streams.Streams/Delete", "/event_store.client.persistent_subscriptions.PersistentSubscriptions/Create",
		"/event_store.client.gossip.Gossip/Read", "/event_store.client.server_features.ServerFeatures/GetSupportedMethods",
	}
	var calling sync.WaitGroup
	for worker := range 10 {
		calling.Go(func() {
			conn, err := grpc.NewClient(f.log, grpc.WithTransportCredentials(grpctls.NewTLS(f.tlsConfig())))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for i := range n / 10 {
				method := methods[(worker+i)%len(methods)]
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(message))
				if err == nil {
					_ = stream.SendMsg(nil) // returns io.EOF on failure; RecvMsg returns the status
					err = stream.RecvMsg(nil)
				}
				cancel()
				switch grpcstatus.Code(err) {
				case codes.OK, codes.Unauthenticated, codes.Unavailable: // Unavailable: the connection was displaced
				default:
					t.Errorf("%s without a user: %v", method, err)
				}
			}
		})
	}
	calling.Wait()
}

// client returns an EventStoreDB client with the correct password. It is closed when
// the test ends.
func (f *tlsServer) client(t *testing.T) *esdb.Client {
	t.Helper()
	c, err := clientAt("esdb://ada:s3cret@" + f.log + "?tlsCaFile=" + f.pem)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// appends appends n events, one after the other, and returns their latencies in
// ascending order.
func appends(t *testing.T, c *esdb.Client, n int) (took []time.Duration) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		begun := time.Now()
		_, err := c.AppendToStream(ctx, "app-1", esdb.AppendToStreamOptions{ExpectedRevision: esdb.Any{}},
			esdb.EventData{EventType: "Sold", ContentType: esdb.ContentTypeJson, Data: []byte("{}")})
		cancel()
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took
}

// peak returns the peak resident memory of a process, in bytes.
func peak(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if kilobytes, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kilobytes), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("the process has no peak")
	return 0
}

// A flood of idle connections and of large calls without a user does not stop a server:
// its memory stays within floodMemory, appends of a client succeed, and a new client
// with the correct password can connect.
func TestFloodedServerGoesOn(t *testing.T) {
	f := startTLSServer(t)
	known := f.client(t)
	appends(t, known, 10)
	// The appends before connect the client, so that the latencies without and with the
	// flood compare.
	quiet := appends(t, known, floodAppends)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var both sync.WaitGroup
		for range 4 {
			both.Go(func() { f.openIdleConns(floodConnections / 4) })
		}
		both.Go(func() { f.sendLargeMessage(t, floodCalls) })
		both.Wait()
	}()
	loud := appends(t, known, floodAppends)
	for open := true; open; {
		loud = append(loud, appends(t, known, 10)...)
		select {
		case <-ended:
			open = false
		default:
		}
	}
	slices.Sort(loud)
	appends(t, f.client(t), 10) // a new client, while the idle connections stay open
	held := peak(t, f.Process.Pid)
	p99 := func(of []time.Duration) time.Duration { return of[len(of)*99/100] }
	t.Logf("%d idle connections and %d calls of 16 MB: at most %d MiB; appends took %v at p99 without and %v with (%.1f times), medians %v and %v",
		floodConnections, floodCalls, held>>20, p99(quiet), p99(loud), float64(p99(loud))/float64(p99(quiet)), quiet[len(quiet)/2], loud[len(loud)/2])
	if held > floodMemory {
		t.Errorf("the server had %d MiB, want at most %d", held>>20, floodMemory>>20)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.roots}}, Timeout: time.Minute}
	defer web.CloseIdleConnections()
	answer, err := web.Get(f.at.Outputs + serve.HealthPath)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("GET %s of a flooded server = %s", serve.HealthPath, answer.Status)
	}
	f.stop(t, os.Interrupt)
}
