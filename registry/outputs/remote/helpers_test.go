package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// refs mints references in increasing order.
func refs(seed byte) func() domain.Ref {
	mint := domain.NewMint(func() time.Time { return time.UnixMilli(1_800_000_000_000) }, rand.NewChaCha8([32]byte{seed}))
	return func() domain.Ref { return domain.NewRef(mint.Event(), domain.TextChannel) }
}

// random returns n bytes that no codec makes smaller, with line ends in them.
func random(n int, seed byte) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed, 1}).Read(p)
	return p
}

// long asks for the long counts and sizes.
var long = os.Getenv("LEDGER_TEST_LONG") != ""

// repeats returns fewer, or more in the long form of the tests.
func repeats(fewer, more int) int {
	if long {
		return more
	}
	return fewer
}

const mime = "text/plain; charset=\r\n\x00é&%"

func retainedOf(ref domain.Ref, content []byte) domain.Retained {
	sum := sha256.Sum256(content)
	return domain.Retained{
		Ref: ref, Bytes: int64(len(content)), Lines: int64(1 + bytes.Count(content, []byte("\n"))),
		MIME: mime, SHA256: hex.EncodeToString(sum[:]),
	}
}

// A fullStore has all common methods of a store and a client.
type fullStore interface {
	BlobStore
	Drop(ctx context.Context, settlement domain.EventID) error
	Prune(ctx context.Context, ref domain.Ref, policy string, at time.Time) (domain.Retained, error)
	Unconfirmed(ctx context.Context) iter.Seq2[domain.EventID, error]
}

var (
	_ fullStore = localStore{}
	_ fullStore = (*Client)(nil)
)

func storeIn(t testing.TB, fs vfs.FS) *outputs.Store {
	t.Helper()
	s, err := outputs.Open("outputs", outputs.Config{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// serve serves a handler on this machine and returns its address.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

func clientOf(t testing.TB, address string, cfg Config) *Client {
	t.Helper()
	c, err := Open(address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// overTLS serves a store by HTTP/2 and returns a client of it.
func overTLS(t testing.TB, s *outputs.Store) *Client {
	t.Helper()
	server := httptest.NewUnstartedServer(Serve(s, ServerConfig{Authorize: only("ada", "secret")}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.NextProtos = nil
	return clientOf(t, server.URL, Config{User: "ada", Password: "secret", TLS: trusted, Retry: 200 * time.Millisecond})
}

func only(user, password string) func(*http.Request) error {
	return func(r *http.Request) error {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			return errors.New("another user, whose password is hunter2")
		}
		return nil
	}
}

// onEveryStore runs a test on a local store and on clients over HTTP/1 and HTTP/2.
func onEveryStore(t *testing.T, test func(t *testing.T, p fullStore, s *outputs.Store, fs *vfs.MemFS)) {
	for name, open := range map[string]func(*testing.T, *outputs.Store) fullStore{
		"here": func(_ *testing.T, s *outputs.Store) fullStore { return Local(s).(fullStore) },
		"HTTP": func(t *testing.T, s *outputs.Store) fullStore {
			return clientOf(t, serve(t, Serve(s, ServerConfig{})), Config{Retry: 200 * time.Millisecond})
		},
		"HTTP/2 TLS": func(t *testing.T, s *outputs.Store) fullStore { return overTLS(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewMem()
			s := storeIn(t, fs)
			test(t, open(t, s), s, fs)
		})
	}
}

func mustKeep(t testing.TB, p BlobStore, ref domain.Ref, content []byte) domain.Retained {
	t.Helper()
	r, err := p.Keep(t.Context(), ref, mime, bytes.NewReader(content))
	if err != nil {
		t.Fatalf("Keep(%v, %d bytes) = %v, want nil", ref, len(content), err)
	}
	if want := retainedOf(ref, content); r != want {
		t.Fatalf("Keep(%v, %d bytes) = %+v, want %+v", ref, len(content), r, want)
	}
	return r
}

func readAll(t testing.TB, p BlobStore, ref domain.Ref) []byte {
	t.Helper()
	o, err := p.Open(t.Context(), ref)
	if err != nil {
		t.Fatalf("Open(%v) = %v, want nil", ref, err)
	}
	defer o.Close()
	data, err := io.ReadAll(o)
	if err != nil {
		t.Fatalf("read %v = %d bytes, %v, want all of it", ref, len(data), err)
	}
	return data
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v, want %v", what, err, want)
	}
}

func wantNothing(t testing.TB, s *outputs.Store, ref domain.Ref) {
	t.Helper()
	_, err := s.Stat(t.Context(), ref)
	wantErr(t, "Stat", err, outputs.ErrNotFound)
}

// A proxy passes requests to a node and handles some itself.
type proxy struct {
	node http.Handler
	// on returns the handler of the n-th request of a method, from 1; nil: the node.
	on     func(n int64, r *http.Request) http.HandlerFunc
	counts map[string]*atomic.Int64
}

func withProxy(node http.Handler, on func(n int64, r *http.Request) http.HandlerFunc) *proxy {
	p := &proxy{node: node, on: on, counts: map[string]*atomic.Int64{}}
	for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE"} {
		p.counts[method] = &atomic.Int64{}
	}
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if do := p.on(p.counts[r.Method].Add(1), r); do != nil {
		do(w, r)
		return
	}
	p.node.ServeHTTP(w, r)
}

// hangUp resets the connection of a request.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// loseResponse has the node handle the request and drops the response.
func loseResponse(node http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		node.ServeHTTP(&discardResponse{ResponseWriter: w, header: http.Header{}}, r)
		hangUp(w)
	}
}

type discardResponse struct {
	http.ResponseWriter
	header http.Header
}

func (u *discardResponse) Header() http.Header         { return u.header }
func (u *discardResponse) WriteHeader(int)             {}
func (u *discardResponse) Write(p []byte) (int, error) { return len(p), nil }

// discardLog is the log of servers under test.
var discardLog = log.New(io.Discard, "", 0)

// An onlyReader hides the Seek method of a reader.
type onlyReader struct{ io.Reader }
