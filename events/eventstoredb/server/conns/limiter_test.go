package conns_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
)

// A pair is both ends of a connection.
type pair struct {
	server *conns.Conn
	client net.Conn
}

// served listens with limits. The returned function makes one more connection;
// a refused one has no server end.
func served(t *testing.T, cfg conns.Config) (limiter *conns.Limiter, connect func() pair) {
	t.Helper()
	limiter = conns.New(cfg)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := limiter.Listener(plain)
	accepted := make(chan *conns.Conn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := at.Accept()
			if err != nil {
				return
			}
			accepted <- conns.Of(c)
		}
	}()
	t.Cleanup(func() { at.Close(); <-done })
	return limiter, func() pair {
		refused := limiter.Stats().Refused
		client, err := net.Dial("tcp", plain.Addr().String())
		if errors.Is(err, syscall.ECONNRESET) {
			return pair{}
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		for {
			select {
			case c := <-accepted:
				t.Cleanup(func() { c.Close() })
				return pair{c, client}
			case <-time.After(10 * time.Millisecond):
				if s := limiter.Stats(); s.Refused > refused && s.Unauthenticated == 0 {
					return pair{nil, client}
				}
			}
		}
	}
}

// ended reports whether the server has closed a connection. An open connection
// has no data to read.
func ended(t *testing.T, c net.Conn, patience time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	if err == nil {
		t.Fatal("there was something to read")
	}
	return true
}

// A connection over the limit of unauthenticated ones displaces the oldest of
// them, and never an authenticated one.
func TestUnauthenticatedConnectionsDisplaceEachOther(t *testing.T) {
	t.Parallel()
	limiter, connect := served(t, conns.Config{Unauthenticated: 2, Max: 10, Grace: time.Hour})
	known := connect()
	known.server.Authenticated()
	var waiting []pair
	for range 4 {
		waiting = append(waiting, connect())
	}
	for i, p := range waiting[:2] {
		if !ended(t, p.client, time.Minute) {
			t.Errorf("connection %d is open, want that two newer ones displaced it", i)
		}
	}
	for _, p := range append(waiting[2:], known) {
		if ended(t, p.client, time.Millisecond) {
			t.Error("a connection is closed that nothing displaces")
		}
	}
	if got, want := limiter.Stats(), (conns.Stats{Open: 3, Unauthenticated: 2, Refused: 2}); got != want {
		t.Errorf("the connections are %+v, want %+v", got, want)
	}
}

// When authenticated connections fill the limit, a new one is refused until one
// closes. Closing a connection twice counts once.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	limiter, connect := served(t, conns.Config{Max: 2, Grace: time.Hour})
	first := connect()
	first.server.Authenticated()
	connect().server.Authenticated()
	if third := connect(); third.server != nil || third.client != nil && !ended(t, third.client, time.Minute) {
		t.Error("a third connection was admitted, want two")
	}
	for range 2 {
		_ = first.server.Close()
	}
	if fourth := connect(); fourth.server == nil {
		t.Error("a connection in place of one that ended was refused")
	}
	if got, want := limiter.Stats(), (conns.Stats{Open: 2, Unauthenticated: 1, Refused: 1}); got != want {
		t.Errorf("the connections are %+v, want %+v", got, want)
	}
}

// A connection that is not authenticated in time is closed; an authenticated
// one stays open.
func TestConnectionsAuthenticateInTime(t *testing.T) {
	t.Parallel()
	limiter, connect := served(t, conns.Config{Grace: 50 * time.Millisecond})
	known, idle := connect(), connect()
	known.server.Authenticated()
	if !ended(t, idle.client, time.Minute) {
		t.Error("a connection stays open that was not authenticated")
	}
	if ended(t, known.client, 100*time.Millisecond) || limiter.Stats().Open != 1 {
		t.Errorf("the connections are %+v, want the one that is authenticated", limiter.Stats())
	}
}

// Shed closes the unauthenticated connections.
func TestShedKeepsAuthenticatedConnections(t *testing.T) {
	t.Parallel()
	limiter, connect := served(t, conns.Config{})
	known, idle := connect(), connect()
	known.server.Authenticated()
	limiter.Shed()
	if !ended(t, idle.client, time.Minute) || ended(t, known.client, time.Millisecond) {
		t.Error("want the idle connection closed, and the one that is authenticated open")
	}
}

// A server finds the Conn of a request in its context, or nil.
func TestConnIsFoundByItsContext(t *testing.T) {
	t.Parallel()
	_, connect := served(t, conns.Config{})
	c := connect().server
	if got := conns.FromContext(conns.NewContext(context.Background(), c)); got != c {
		t.Errorf("the context has %v, want %v", got, c)
	}
	other, _ := net.Pipe()
	none := conns.FromContext(conns.NewContext(context.Background(), other))
	none.Authenticated()
	none.Failed()
	if none != nil || none.HasFailed() {
		t.Errorf("the context of another connection has %v", none)
	}
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Error(err)
	}
}
