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

	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// The numbers of a flood. The whole of it is 10,000 connections and 1,000 calls.
var (
	floodConnections = repeats(300, 10_000)
	floodCalls       = repeats(40, 1_000)
	floodAppends     = repeats(100, 1_000)
)

// floodMemory bounds the memory of a process that is flooded.
const floodMemory = 512 << 20

// A flooded server is ledger serve with users, and connections that mean it no good.
type flooded struct {
	*servingProcess
	log, outputs string // addresses
	pem          string
	roots        *x509.CertPool
	mu           sync.Mutex
	held         []net.Conn
}

func beginFlooded(t *testing.T) *flooded {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "node")
	if err := writeCertificate(name); err != nil {
		t.Fatal(err)
	}
	line, err := server.FormatUser("ada", "s3cret", server.Writer)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+".users", []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &flooded{pem: name + ".pem", roots: x509.NewCertPool()}
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

func (f *flooded) tls() *tls.Config { return &tls.Config{RootCAs: f.roots, NextProtos: []string{"h2"}} }

// hold opens idle connections: some say nothing, some half of a handshake, some a
// whole one, some half of a request.
func (f *flooded) hold(n int) {
	for i := range n {
		at := f.log
		if i%2 == 1 {
			at = f.outputs
		}
		c, err := net.DialTimeout("tcp", at, 10*time.Second)
		if err != nil {
			continue // it was refused
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		switch i / 2 % 8 {
		case 0:
			s := tls.Client(c, f.tls())
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

// A shout is a codec whose one message is already encoded.
type shout struct{ mem.BufferSlice }

func (s shout) Name() string                         { return "proto" }
func (s shout) Marshal(any) (mem.BufferSlice, error) { s.Ref(); return s.BufferSlice, nil }
func (s shout) Unmarshal(mem.BufferSlice, any) error { return nil }

// call makes calls with messages of 16 MB and no user, several at once, on
// connections of their own.
func (f *flooded) call(t *testing.T, n int) {
	message := shout{mem.BufferSlice{mem.SliceBuffer(make([]byte, 16_000_000))}}
	methods := []string{
		"/event_store.client.streams.Streams/Append", "/event_store.client.streams.Streams/BatchAppend", "/event_store.client.streams.Streams/Read",
		"/event_store.client.streams.Streams/Delete", "/event_store.client.persistent_subscriptions.PersistentSubscriptions/Create",
		"/event_store.client.gossip.Gossip/Read", "/event_store.client.server_features.ServerFeatures/GetSupportedMethods",
	}
	var calling sync.WaitGroup
	for worker := range 10 {
		calling.Go(func() {
			conn, err := grpc.NewClient(f.log, grpc.WithTransportCredentials(grpctls.NewTLS(f.tls())))
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
					_ = stream.SendMsg(nil) // its error is io.EOF, and Recv has the status
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

// client returns an official client with the right password.
func (f *flooded) client(t *testing.T) *esdb.Client {
	t.Helper()
	c, err := clientAt("esdb://ada:s3cret@" + f.log + "?tlsCaFile=" + f.pem)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// appends returns how long each of so many appends took, in order.
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

// peak returns the most memory that a process had.
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

// Thousands of idle connections and of large calls without a user cost a server
// little: its memory stays bounded, appends of a client go on, another client with a
// right password comes in, and the store does not stop.
func TestFloodedServerGoesOn(t *testing.T) {
	f := beginFlooded(t)
	known := f.client(t)
	appends(t, known, 10)
	quiet := appends(t, known, floodAppends)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var both sync.WaitGroup
		for range 4 {
			both.Go(func() { f.hold(floodConnections / 4) })
		}
		both.Go(func() { f.call(t, floodCalls) })
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
	appends(t, f.client(t), 10) // which comes while all are held
	held := peak(t, f.Process.Pid)
	p99 := func(of []time.Duration) time.Duration { return of[len(of)*99/100] }
	t.Logf("%d idle connections and %d calls of 16 MB: at most %d MiB; appends took %v at p99 without and %v with (%.1f times), medians %v and %v",
		floodConnections, floodCalls, held>>20, p99(quiet), p99(loud), float64(p99(loud))/float64(p99(quiet)), quiet[len(quiet)/2], loud[len(loud)/2])
	if held > floodMemory {
		t.Errorf("the server had %d MiB, want at most %d", held>>20, floodMemory>>20)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.roots}}, Timeout: time.Minute}
	defer web.CloseIdleConnections()
	answer, err := web.Get(f.at.Outputs + healthPath)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("GET %s of a flooded server = %s", healthPath, answer.Status)
	}
	f.stop(t, os.Interrupt)
}
