package eventstoredb_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
)

// A tcpProxy passes bytes between clients and a server, and fails as networks do: at
// any byte, with the bytes in flight lost in both directions.
type tcpProxy struct {
	t       testing.TB
	to      string
	address string
	gate    sync.RWMutex // held for writing while no byte passes
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		conns    map[*net.TCPConn]bool // both of each connection
		truncate int                   // how many of the next parts are cut in two, and their connections with them
	}
}

// newTCPProxy starts a proxy in front of a server, which ends with the test.
func newTCPProxy(t testing.TB, to string) *tcpProxy {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &tcpProxy{t: t, to: to, address: at.Addr().String()}
	w.mu.conns = map[*net.TCPConn]bool{}
	w.running.Go(func() {
		for {
			from, err := at.Accept()
			if err != nil {
				return
			}
			w.running.Go(func() { w.relay(from.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { _ = at.Close(); w.cut(); w.running.Wait() })
	return w
}

// relay copies bytes between two connections until one of them ends.
func (w *tcpProxy) relay(from *net.TCPConn) {
	defer from.Close()
	end, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	to := end.(*net.TCPConn)
	defer to.Close()
	w.mu.Lock()
	w.mu.conns[from], w.mu.conns[to] = true, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.mu.conns, from)
		delete(w.mu.conns, to)
	}()
	var back sync.WaitGroup
	back.Go(func() { w.copyBytes(to, from) })
	w.copyBytes(from, to)
	back.Wait()
}

func (w *tcpProxy) copyBytes(from, to *net.TCPConn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		half := w.takeTruncation()
		if half {
			n /= 2
		}
		w.gate.RLock()
		_, failed := to.Write(b[:n])
		w.gate.RUnlock()
		if err != nil || failed != nil || half {
			return
		}
	}
}

func (w *tcpProxy) takeTruncation() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.truncate == 0 {
		return false
	}
	w.mu.truncate--
	return true
}

// cut resets every connection.
func (w *tcpProxy) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := range w.mu.conns {
		_ = end.SetLinger(0)
		_ = end.Close()
	}
}

// breakAtRandom breaks connections at random until the test ends.
func (w *tcpProxy) breakAtRandom() {
	injectAtRandom(w.t, func(pause func(time.Duration) bool) {
		switch rand.N(3) {
		case 0:
			w.cut()
		case 1: // no byte passes for a while, and then every connection is reset
			w.gate.Lock()
			pause(time.Duration(rand.N(100)) * time.Millisecond)
			w.cut()
			w.gate.Unlock()
		case 2:
			w.mu.Lock()
			w.mu.truncate = 1 + rand.N(3)
			w.mu.Unlock()
		}
	})
}

// The laws of a store hold while connections break at random.
func TestEveryLawHoldsWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	testUnder(t, connectionsBreak, func(t *testing.T) eventstest.Harness {
		d := newDatabase(t)
		d.config.RetryTimeout = faultRetryTimeout
		w := newTCPProxy(t, d.address)
		w.breakAtRandom()
		h := d.harness()
		h.Open = func(ctx context.Context) (events.Store, error) {
			return eventstoredb.Open(ctx, "esdb://"+w.address+"?tls=false&gossipTimeout=1", d.config)
		}
		return h
	})
}

// A connection without traffic is detected by the deadline of the call.
func TestAppendSurvivesAConnectionThatFellSilent(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	w := newTCPProxy(t, d.address)
	s, err := eventstoredb.Open(t.Context(), "esdb://"+w.address+"?tls=false&gossipTimeout=1&defaultDeadline=1000", d.config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	one, two := record(newMint(), "Kind", 1), record(newMint(), "Kind", 2)
	if err := s.Append(t.Context(), "silent-1", 0, one); err != nil {
		t.Fatal(err)
	}
	w.gate.Lock()
	made := make(chan error, 1)
	go func() { made <- s.Append(t.Context(), "silent-1", 1, two) }()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Append(ctx, "silent-2", 0, two); context.Cause(ctx) == nil {
		t.Errorf("Append over a wire that is silent = %v before its context ended", err)
	}
	w.cut()
	w.gate.Unlock()
	if err := <-made; err != nil {
		t.Errorf("Append = %v", err)
	}
	holds(t, s, "silent-1", one, two)
}
