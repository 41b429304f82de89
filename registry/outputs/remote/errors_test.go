package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// silentServer returns the address of a listener that never responds.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "http://" + listener.Addr().String()
}

// closedPort returns an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

// callEach calls every method of a client once, and report with the name and the
// error of each call.
func callEach(ctx context.Context, c *Client, report func(string, error)) {
	r := refs(1)()
	_, err := c.Keep(ctx, r, mime, strings.NewReader("x"))
	report("Keep", err)
	report("Confirm", c.Confirm(ctx, r.Settlement()))
	report("Drop", c.Drop(ctx, r.Settlement()))
	_, err = c.Prune(ctx, r, "x", time.Now())
	report("Prune", err)
	_, err = c.Open(ctx, r)
	report("Open", err)
	_, err = c.Stat(ctx, r)
	report("Stat", err)
	report("Verify", c.Verify(ctx, r))
	for _, err := range c.All(ctx) {
		report("All", err)
	}
	for _, err := range c.Unconfirmed(ctx) {
		report("Unconfirmed", err)
	}
}

const calls = 9 // that each makes

// Every call to a node that is unreachable, foreign or refuses the credentials
// returns the sentinel for that.
func TestNodeThatCannotBeHadIsAnError(t *testing.T) {
	t.Parallel()
	other := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	closing := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { hangUp(w) }))
	secure := httptest.NewTLSServer(Serve(storeIn(t, vfs.NewMem()), ServerConfig{}))
	t.Cleanup(secure.Close)
	mute(secure)
	patient := Config{User: "ada", Password: "secret", IdleTimeout: 10 * time.Second, Retry: -1}
	quick := patient
	quick.IdleTimeout = 50 * time.Millisecond
	for name, at := range map[string]struct {
		address string
		want    error
	}{
		"nobody listens":           {closedPort(t), ErrUnreachable},
		"silence":                  {silentServer(t), ErrUnreachable},
		"hangs up":                 {closing, ErrUnreachable},
		"another server":           {other, ErrNotANode},
		"another path":             {serve(t, Serve(storeIn(t, vfs.NewMem()), ServerConfig{})) + "/elsewhere", ErrNotANode},
		"https to a node of http":  {"https://" + strings.TrimPrefix(other, "http://"), ErrUnreachable},
		"certificate of a nobody":  {secure.URL, ErrUnreachable},
		"name that does not exist": {"https://node.invalid:1", ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := patient
			if name == "silence" { // each call waits until the idle timeout
				config = quick
			}
			c := clientOf(t, at.address, config)
			n := 0
			callEach(t.Context(), c, func(what string, err error) {
				n++
				if !errors.Is(err, at.want) || errors.Is(err, context.Canceled) {
					t.Errorf("%s = %v, want %v", what, err, at.want)
					return
				}
				if !strings.Contains(err.Error(), c.Address()) || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s = %q, want it to name %s and no password", what, err, c.Address())
				}
				if what == "Keep" && !errors.Is(err, outputs.ErrNotKept) {
					t.Errorf("Keep = %v, want that it is not kept", err)
				}
			})
			if n != calls {
				t.Errorf("%d errors are told, want %d", n, calls)
			}
		})
	}
}

// mute discards the log of a server's failed handshakes.
func mute(s *httptest.Server) { s.Config.ErrorLog = discardLog }

// Every call returns as soon as its context ends.
func TestContextEndsEveryCallAtOnce(t *testing.T) {
	t.Parallel()
	c := clientOf(t, silentServer(t), Config{})
	n := 0
	cause := errors.New("it is enough")
	callEach := func(ctx context.Context) {
		callEach(ctx, c, func(what string, err error) {
			n++
			if !errors.Is(err, cause) || errors.Is(err, ErrUnreachable) {
				t.Errorf("%s = %v, want %v", what, err, cause)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	callEach(ctx)
	ctx, stop := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, cause)
	defer stop()
	begun := time.Now()
	callEach(ctx)
	if took := time.Since(begun); took > 10*time.Second { // the idle timeout is 15 s
		t.Errorf("the calls took %v after their context ended", took)
	}
	if n != 2*calls {
		t.Errorf("%d errors are told, want %d", n, 2*calls)
	}
}

// The end of the context ends a transfer from an idle node.
func TestContextEndsATransfer(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	r, content := refs(1)(), random(3*pageSize, 1)
	mustKeep(t, Local(s), r, content)
	node := Serve(s, ServerConfig{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("it is enough")
	c := clientOf(t, serve(t, withProxy(node, func(n int64, q *http.Request) http.HandlerFunc {
		if n < 2 || q.Method != http.MethodGet {
			return nil
		}
		return func(w http.ResponseWriter, q *http.Request) {
			cancel(cause)
			<-q.Context().Done()
		}
	})), Config{})
	o, err := c.Open(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got, err := io.ReadAll(o)
	wantErr(t, "read", err, cause)
	if len(got) != pageSize {
		t.Errorf("%d bytes were read, want one page", len(got))
	}
}

// A request that Authorize refuses is denied and has no effect.
func TestOnlyWhoMayIsServed(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	address := serve(t, Serve(s, ServerConfig{Authorize: only("ada", "secret")}))
	r := refs(1)()
	mustKeep(t, clientOf(t, address, Config{User: "ada", Password: "secret"}), r, []byte("kept"))
	mustKeep(t, clientOf(t, strings.Replace(address, "://", "://ada:secret@", 1), Config{}), refs(2)(), []byte("kept"))
	for name, cfg := range map[string]Config{"wrong password": {User: "ada", Password: "Secret"}, "wrong user": {User: "eve", Password: "secret"}, "no user": {}} {
		n := 0
		callEach(t.Context(), clientOf(t, address, cfg), func(what string, err error) {
			n++
			if !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "ecret") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %s = %v, want %v and no password", name, what, err, ErrDenied)
			}
		})
		if n != calls {
			t.Errorf("%s: %d errors are told, want %d", name, n, calls)
		}
	}
	if got := readAll(t, Local(s), r); string(got) != "kept" {
		t.Errorf("it reads %q, want what was kept", got)
	}
}

// A cross-origin request of a browser is refused.
func TestPageOfAnotherOriginIsRefused(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	r := refs(1)()
	mustKeep(t, Local(s), r, []byte("kept"))
	q, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, serve(t, Serve(s, ServerConfig{}))+"/v1/settlements/"+r.Settlement().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Origin", "https://elsewhere.example")
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusUnauthorized {
		t.Errorf("DELETE from another origin = %d, want 401", a.StatusCode)
	}
	if got := readAll(t, Local(s), r); string(got) != "kept" {
		t.Errorf("it reads %q, want what was kept", got)
	}
}

// A blob over the limit of the node is an ErrTooLarge and is not stored.
func TestTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	c := clientOf(t, serve(t, Serve(s, ServerConfig{Limit: chunkSize})), Config{})
	ref := refs(1)
	mustKeep(t, c, ref(), random(chunkSize, 1))
	for _, size := range []int{chunkSize + 1, 8 * pageSize} {
		r := ref()
		_, err := c.Keep(t.Context(), r, mime, onlyReader{strings.NewReader(strings.Repeat("x", size))})
		wantErr(t, "Keep", err, ErrTooLarge)
		wantErr(t, "Keep", err, outputs.ErrNotKept)
		if want := fmt.Sprint(chunkSize, " bytes"); !strings.Contains(err.Error(), want) {
			t.Errorf("Keep = %q, want it to name the limit of %s", err, want)
		}
		wantNothing(t, s, r)
	}
}

// Open returns ErrBadAddress for an invalid address, without the password in the
// error.
func TestAddressThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	for address, user := range map[string]string{
		"": "", "127.0.0.1:80": "", "ftp://h": "", "http://": "", "http://h:80?x=1": "", "http://h:80#x": "", "esdb://h:1": "", "http://h:80:90/%zz": "",
		"http://10.0.0.1:80": "ada", "http://ada:secret@node.example": "", "http://localhost.example": "ada",
	} {
		c, err := Open(address, Config{User: user, Password: "secret"})
		if c != nil || !errors.Is(err, ErrBadAddress) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("Open(%q) = %v, want %v and no password", address, err, ErrBadAddress)
		}
	}
	for address, user := range map[string]string{
		"http://10.0.0.1:80": "", "https://10.0.0.1:80/ledger/": "ada", "http://127.0.0.1:1": "ada", "http://[::1]:1": "ada", "http://localhost:1": "ada",
	} {
		c, err := Open(address, Config{User: user, Password: "secret", TLS: &tls.Config{}})
		if err != nil {
			t.Errorf("Open(%q) = %v, want nil", address, err)
			continue
		}
		_ = c.Close()
	}
}

// An address may have a path, below which the node serves.
func TestNodeBelowAPathIsReached(t *testing.T) {
	t.Parallel()
	s := storeIn(t, vfs.NewMem())
	address := serve(t, http.StripPrefix("/ledger", Serve(s, ServerConfig{})))
	for i, suffix := range []string{"/ledger", "/ledger/"} {
		mustKeep(t, clientOf(t, address+suffix, Config{}), refs(byte(i))(), []byte("x"))
	}
}
