package stores

import (
	"bytes"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// nodeIn returns the outputs in the folder of a node as one process sees them, and closes
// them at the end of the test.
func nodeIn(t *testing.T, dir string) nodeOutputs {
	t.Helper()
	n := nodeOutputs{&NodeStore{dir: dir}}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// newRefs returns a function that mints references to text outputs.
func newRefs() func() domain.Ref {
	mint := domain.NewMint(time.Now, rand.Reader)
	return func() domain.Ref { return domain.NewRef(mint.Event(), domain.TextChannel) }
}

// mustKeepIn stores and confirms an output with a text.
func mustKeepIn(t *testing.T, n nodeOutputs, ref domain.Ref, text string) {
	t.Helper()
	if _, err := n.Keep(t.Context(), ref, "text/plain", strings.NewReader(text)); err != nil {
		t.Fatalf("Keep = %v", err)
	}
	if err := n.Confirm(t.Context(), ref.Settlement()); err != nil {
		t.Fatalf("Confirm = %v", err)
	}
}

// wantKept checks that an output reads back as want and passes Verify.
func wantKept(t *testing.T, n nodeOutputs, ref domain.Ref, want string) {
	t.Helper()
	o, err := n.Open(t.Context(), ref)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	got, err := io.ReadAll(o)
	if err := errors.Join(err, o.Close(), n.Verify(t.Context(), ref)); err != nil || string(got) != want {
		t.Errorf("it reads %q, %v, want %q", got, err, want)
	}
}

// Processes of one machine take turns to store outputs in the folder of a node, and each
// reads all of them. A process that has an output open keeps the folder.
func TestProcessesShareANodesFolder(t *testing.T) {
	t.Parallel()
	dir, next := t.TempDir(), newRefs()
	one, two := nodeIn(t, dir), nodeIn(t, dir)
	first, second := next(), next()
	mustKeepIn(t, one, first, "first")
	mustKeepIn(t, two, second, "second") // it waits until the idle timeout of one
	wantKept(t, one, second, "second")
	o, err := one.Open(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	one.closeIdle() // as its timer does after idleTimeout
	if _, err := two.try(); !errors.Is(err, outputs.ErrInUse) {
		t.Fatalf("while the other reads, try = %v, want %v", err, outputs.ErrInUse)
	}
	if err := errors.Join(o.Close(), o.Close()); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	wantKept(t, two, first, "first")
	n := 0
	for _, err := range two.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("All yields %d outputs, want 2", n)
	}
}

// A nodeServer serves the outputs of a node as another process would. It can drop responses.
type nodeServer struct {
	node   *NodeStore
	http   *httptest.Server
	silent atomic.Bool // if set, the server stores the blob of a PUT request and closes the connection without a response
}

// serveNode holds the outputs in dir, serves them over TLS and writes the endpoint file by
// which clients find the server.
func serveNode(t *testing.T, dir string) *nodeServer {
	t.Helper()
	s := &nodeServer{node: &NodeStore{dir: dir}}
	kept, err := s.node.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	handler := remote.Serve(kept, remote.ServerConfig{})
	s.http = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.silent.Load() {
			if r.Method == http.MethodPut {
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	if err := (shared.Endpoint{PID: os.Getpid(), Web: s.http.URL, Certificate: string(certificate)}).Write(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.die)
	return s
}

// die ends a server as a kill does: the endpoint file stays in the folder.
func (s *nodeServer) die() {
	s.http.CloseClientConnections()
	s.http.Close()
	_ = s.node.Close() // the cleanup may call die again
}

// A client of a serving process continues after that process dies, and with the next one
// that serves the folder.
func TestANodeIsFollowedToWhoeverServesIt(t *testing.T) {
	t.Parallel()
	dir, next := t.TempDir(), newRefs()
	n := nodeIn(t, dir)
	server := serveNode(t, dir)
	served, alone, again := next(), next(), next()
	mustKeepIn(t, n, served, "served")
	if n.mu.local != nil {
		t.Error("it opened the folder, which is served")
	}
	if _, err := (&NodeStore{dir: dir}).Hold(t.Context()); !errors.Is(err, outputs.ErrInUse) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("a second hold = %v, want one that names the process", err)
	}
	server.die()
	mustKeepIn(t, n, alone, "alone")
	wantKept(t, n, served, "served")
	serveNode(t, dir)
	mustKeepIn(t, n, again, "again")
	for ref, want := range map[domain.Ref]string{served: "served", alone: "alone", again: "again"} {
		wantKept(t, n, ref, want)
	}
	if n.mu.local != nil {
		t.Error("it opened the folder, which is served again")
	}
}

// If a server stores a blob and dies before it responds, Keep of a seekable reader retries
// and succeeds with one copy. Keep of a reader that can be read only once returns an
// outputs.ErrNotKept.
func TestAnAnswerThatWentWithItsServerIsFoundOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		r    io.Reader
		want error
	}{
		"read again": {bytes.NewReader([]byte("kept")), nil},
		"read once":  {io.MultiReader(strings.NewReader("kept")), outputs.ErrNotKept},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, next := t.TempDir(), newRefs()
			n := nodeIn(t, dir)
			server := serveNode(t, dir)
			server.silent.Store(true)
			kept := make(chan error, 1)
			ref := next()
			go func() {
				retained, err := n.Keep(t.Context(), ref, "text/plain", test.r)
				if err == nil && retained.Bytes != 4 {
					err = errors.New("it is of another size")
				}
				kept <- err
			}()
			for { // until the server has it
				if _, err := server.node.mu.local.Stat(t.Context(), ref); err == nil {
					break
				}
				if err := Sleep(t.Context(), RetryInterval); err != nil {
					t.Fatal(err)
				}
			}
			server.die()
			if err := <-kept; !errors.Is(err, test.want) {
				t.Errorf("Keep = %v, want %v", err, test.want)
			}
			wantKept(t, n, ref, "kept")
		})
	}
}
