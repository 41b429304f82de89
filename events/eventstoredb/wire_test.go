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

// A wire passes bytes on between clients and a server, and breaks as wires do:
// at any byte, with what was sent and not yet heard lost both ways.
type wire struct {
	t       testing.TB
	to      string
	address string
	flow    sync.RWMutex // held for writing while nothing passes
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		ends  map[*net.TCPConn]bool // both of each connection
		halve int                   // how many of the next parts are cut in two, and their connections with them
	}
}

// newWire lays a wire to a server, which is taken away with the test.
func newWire(t testing.TB, to string) *wire {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, to: to, address: at.Addr().String()}
	w.mu.ends = map[*net.TCPConn]bool{}
	w.running.Go(func() {
		for {
			from, err := at.Accept()
			if err != nil {
				return
			}
			w.running.Go(func() { w.join(from.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { _ = at.Close(); w.cut(); w.running.Wait() })
	return w
}

// join passes on what one end sends to the other until one of them is gone.
func (w *wire) join(from *net.TCPConn) {
	defer from.Close()
	end, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	to := end.(*net.TCPConn)
	defer to.Close()
	w.mu.Lock()
	w.mu.ends[from], w.mu.ends[to] = true, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.mu.ends, from)
		delete(w.mu.ends, to)
	}()
	var back sync.WaitGroup
	back.Go(func() { w.pass(to, from) })
	w.pass(from, to)
	back.Wait()
}

func (w *wire) pass(from, to *net.TCPConn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		half := w.halves()
		if half {
			n /= 2
		}
		w.flow.RLock()
		_, failed := to.Write(b[:n])
		w.flow.RUnlock()
		if err != nil || failed != nil || half {
			return
		}
	}
}

func (w *wire) halves() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.halve == 0 {
		return false
	}
	w.mu.halve--
	return true
}

// cut resets every connection.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for end := range w.mu.ends {
		_ = end.SetLinger(0)
		_ = end.Close()
	}
}

// restless breaks the wire at random until the test ends.
func (w *wire) restless() {
	meddling(w.t, func(pause func(time.Duration) bool) {
		switch rand.N(3) {
		case 0:
			w.cut()
		case 1: // nothing passes, whoever connects, and then all is lost
			w.flow.Lock()
			pause(time.Duration(rand.N(100)) * time.Millisecond)
			w.cut()
			w.flow.Unlock()
		case 2:
			w.mu.Lock()
			w.mu.halve = 1 + rand.N(3)
			w.mu.Unlock()
		}
	})
}

func TestEveryLawHoldsWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	testUnder(t, connectionsBreak, func(t *testing.T) eventstest.Harness {
		d := newDatabase(t)
		d.config.Patience = faultPatience
		w := newWire(t, d.address)
		w.restless()
		h := d.harness()
		h.Open = func(ctx context.Context) (events.Store, error) {
			return eventstoredb.Open(ctx, "esdb://"+w.address+"?tls=false&gossipTimeout=1", d.config)
		}
		return h
	})
}

// A connection that nothing passes any more is noticed by its silence.
func TestAppendSurvivesAConnectionThatFellSilent(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	w := newWire(t, d.address)
	s, err := eventstoredb.Open(t.Context(), "esdb://"+w.address+"?tls=false&gossipTimeout=1&defaultDeadline=1000", d.config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	one, two := record(newMint(), "Kind", 1), record(newMint(), "Kind", 2)
	if err := s.Append(t.Context(), "silent-1", 0, one); err != nil {
		t.Fatal(err)
	}
	w.flow.Lock()
	made := make(chan error, 1)
	go func() { made <- s.Append(t.Context(), "silent-1", 1, two) }()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Append(ctx, "silent-2", 0, two); context.Cause(ctx) == nil {
		t.Errorf("Append over a wire that is silent = %v before its context ended", err)
	}
	w.cut()
	w.flow.Unlock()
	if err := <-made; err != nil {
		t.Errorf("Append = %v", err)
	}
	holds(t, s, "silent-1", one, two)
}
