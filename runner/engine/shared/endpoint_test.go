package shared_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// serveFolder serves a store in a new folder.
func serveFolder(t *testing.T) (*shared.Holder, string) {
	t.Helper()
	dir := t.TempDir()
	store, err := embedded.Open(t.Context(), filepath.Join(dir, "store"), embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	blobs, err := outputs.Open(filepath.Join(dir, "outputs"), outputs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	s, err := shared.Serve(t.Context(), shared.HolderConfig{Dir: dir, Store: store, Outputs: blobs, Checkpoints: store})
	if err == nil {
		err = s.Publish()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s, dir
}

// A recorder is a process of another user that took a port. It records all bytes that
// it receives, and speaks TLS with a certificate of its own.
type recorder struct {
	net.Listener
	mu    sync.Mutex
	bytes []byte
	conns int
}

func takePort(t *testing.T, at string) *recorder {
	t.Helper()
	var opening net.ListenConfig
	listener, err := opening.Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	other, err := shared.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Listener: listener}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.take(conn, other.TLS) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); all.Wait() })
	return r
}

func (r *recorder) take(conn net.Conn, cfg *tls.Config) {
	defer conn.Close()
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2", "http/1.1"}
	plain := tls.Server(conn, cfg)
	r.mu.Lock()
	r.conns++
	r.mu.Unlock()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	text, _ := io.ReadAll(plain) // an error ends the bytes that it received
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes = append(r.bytes, text...)
}

// A process that takes the ports of a dead holder receives no password, neither from
// the client of the log nor from that of outputs and checkpoints.
func TestAnotherProcessAtThePortGetsNoPassword(t *testing.T) {
	t.Parallel()
	s, dir := serveFolder(t)
	at, err := shared.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The holder dies: its file stays.
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := at.Write(dir); err != nil {
		t.Fatal(err)
	}
	ports := []*recorder{takePort(t, at.Log), takePort(t, strings.TrimPrefix(at.Web, "https://"))}

	at, err = shared.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := at.Pool()
	if err != nil {
		t.Fatal(err)
	}
	if store, err := eventstoredb.Open(t.Context(), at.ConnectionString(), eventstoredb.Config{RootCAs: trusted, RetryTimeout: 100 * time.Millisecond}); err == nil {
		t.Errorf("the log opened at another process: %v", store.Close())
	}
	client, err := shared.NewClient(at)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.LoadCheckpoint(t.Context(), "x"); !errors.Is(err, shared.ErrNoResponse) {
		t.Errorf("LoadCheckpoint = %v, want ErrAway", err)
	}
	blobs, err := client.Outputs(-1)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	for _, err := range blobs.All(t.Context()) {
		if err == nil {
			t.Error("outputs of another process are listed")
		}
	}
	for i, port := range ports {
		_ = port.Close()
		port.mu.Lock()
		encoded := base64.StdEncoding.EncodeToString([]byte(at.User + ":" + at.Password))
		if port.conns == 0 || bytes.Contains(port.bytes, []byte(at.Password)) || bytes.Contains(port.bytes, []byte(encoded)) || len(port.bytes) > 0 {
			t.Errorf("port %d had %d connections and got %q, want at least one and nothing", i, port.conns, port.bytes)
		}
		port.mu.Unlock()
	}
}

// Each holder has a certificate and a password of its own, and refuses a client of an
// earlier holder.
func TestEachStartHasItsOwnSecrets(t *testing.T) {
	t.Parallel()
	_, one := serveFolder(t)
	_, two := serveFolder(t)
	first, err := shared.ReadEndpoint(one)
	if err != nil {
		t.Fatal(err)
	}
	second, err := shared.ReadEndpoint(two)
	if err != nil {
		t.Fatal(err)
	}
	if first.Password == second.Password || first.Certificate == second.Certificate || first.Password == "" {
		t.Error("two services share a password or a certificate")
	}
	mixed := second
	mixed.Password = first.Password
	client, err := shared.NewClient(mixed)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Sync(t.Context()); !errors.Is(err, shared.ErrNoResponse) {
		t.Errorf("Sync with the password of another = %v, want ErrAway", err)
	}
	trusted, err := second.Pool()
	if err != nil {
		t.Fatal(err)
	}
	if store, err := eventstoredb.Open(t.Context(), mixed.ConnectionString(), eventstoredb.Config{RootCAs: trusted}); !errors.Is(err, eventstoredb.ErrUnauthenticated) {
		t.Errorf("Open with the password of another = %v, %v, want ErrUnauthenticated", store, err)
	}
}

// ReadEndpoint refuses a file that its owner cannot have written or that other users
// can read. Write replaces the file and does not touch the target of a symbolic link
// in its place.
func TestEndpointFileIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(path string) error{
		"symbolic link": func(path string) error { return os.Symlink(filepath.Join(filepath.Dir(path), "target"), path) },
		"readable by others": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chmod(path, 0o644))
		},
		"not an endpoint":     func(path string) error { return os.WriteFile(path, []byte("{\"pid\":"), 0o600) },
		"a folder":            func(path string) error { return os.Mkdir(path, 0o700) },
		"a store of nothing":  func(string) error { return nil },
		"a link that is torn": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			target, path := filepath.Join(dir, "target"), filepath.Join(dir, shared.EndpointName)
			good := shared.Endpoint{PID: 1, Web: "https://127.0.0.1:1", Certificate: "x", Password: "secret"}
			if err := os.WriteFile(target, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := place(path); err != nil {
				t.Fatal(err)
			}
			want := shared.ErrBadEndpoint
			if name == "a store of nothing" {
				want = shared.ErrNoEndpoint
			}
			if _, err := shared.ReadEndpoint(dir); !errors.Is(err, want) {
				t.Errorf("ReadEndpoint = %v, want %v", err, want)
			}
			if name == "a folder" {
				return
			}
			if err := good.Write(dir); err != nil {
				t.Fatalf("Write = %v", err)
			}
			if text, err := os.ReadFile(target); err != nil || string(text) != "kept" {
				t.Errorf("the target of the link is %q (%v), want it untouched", text, err)
			}
			got, err := shared.ReadEndpoint(dir)
			if err != nil || got.Password != "secret" {
				t.Errorf("ReadEndpoint = %+v, %v", got, err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("the file has the mode %v (%v), want 0600", info.Mode(), err)
			}
		})
	}
}

// A web page cannot call a holder, even if it knows the address.
func TestNoPageCallsAService(t *testing.T) {
	t.Parallel()
	_, dir := serveFolder(t)
	at, err := shared.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := at.TLS()
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted}}
	defer client.CloseIdleConnections()
	for _, test := range []struct {
		origin   string
		password bool
		want     int
	}{
		{"", false, http.StatusUnauthorized}, {"https://evil.example", false, http.StatusUnauthorized},
		{"https://evil.example", true, http.StatusForbidden}, {"", true, http.StatusNoContent},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.Web+"/sync", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if test.password {
			r.SetBasicAuth(at.User, at.Password)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("POST /sync from %q, password %v: %d, want %d", test.origin, test.password, response.StatusCode, test.want)
		}
	}
}
