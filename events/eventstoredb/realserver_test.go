package eventstoredb_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
)

// The environment of the RealServer tests, which hold the adapter against any
// server. Each test uses namespaces of its own, so that the server may hold
// other records.
const (
	realServer  = "LEDGER_TEST_REAL_SERVER"      // its connection string; empty: the tests are skipped
	realKill    = "LEDGER_TEST_REAL_SERVER_KILL" // a shell command that kills the server and starts it again
	realLength  = "LEDGER_TEST_REAL_SERVER_SOAK" // how long the soak takes, such as 10m; empty: a minute
	killTimeout = 2 * time.Minute
)

// A realDatabase is a server that the environment names.
type realDatabase struct{ address string }

// newRealDatabase returns the server of the environment, or skips the test.
func newRealDatabase(t *testing.T) realDatabase {
	t.Helper()
	address := os.Getenv(realServer)
	if address == "" {
		t.Skip(realServer + " does not name a server: see docs/eventstoredb.md")
	}
	return realDatabase{address}
}

// namespace returns a configuration for a ledger that the server does not hold yet.
func (realDatabase) namespace() eventstoredb.Config {
	return eventstoredb.Config{Namespace: fmt.Sprintf("test%016x.", rand.Uint64()), RetryTimeout: time.Minute}
}

// kill runs the command that kills the server. It returns when the command has.
func (realDatabase) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", os.Getenv(realKill)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", realKill, err, out)
	}
	return nil
}

// harness returns a harness of the adapter over a new namespace. Without a
// command that kills the server, it has no power cuts.
func (d realDatabase) harness() eventstest.Harness {
	config := d.namespace()
	h := eventstest.Harness{
		Open:  func(ctx context.Context) (events.Store, error) { return eventstoredb.Open(ctx, d.address, config) },
		Close: func(s events.Store) error { return s.(*eventstoredb.Store).Close() },
	}
	if os.Getenv(realKill) != "" {
		h.CutPower = func(s events.Store) error {
			if err := d.kill(context.Background()); err != nil {
				return err
			}
			return s.(*eventstoredb.Store).Close()
		}
	}
	return h
}

// The laws of a store hold with the server of the environment.
func TestRealServerKeepsEveryLaw(t *testing.T) {
	d := newRealDatabase(t)
	eventstest.Test(t, func(*testing.T) eventstest.Harness { return d.harness() })
}

// A random history has the same results on the server of the environment and on a
// slice in memory.
func TestRealServerHasTheHistoryOfASlice(t *testing.T) {
	d := newRealDatabase(t)
	eventstest.TestSame(t, 20, d.harness, eventstest.SliceHarness)
}

// Acknowledged records are stored and delivered once while writers and followers use
// the server of the environment for a while. If the environment has a command that
// kills the server, the test runs it every ten seconds.
func TestRealServerSoak(t *testing.T) {
	d := newRealDatabase(t)
	length := time.Minute
	if text := os.Getenv(realLength); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", realLength, err)
		}
	}
	s, err := eventstoredb.Open(t.Context(), d.address, d.namespace())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	soak(t, s, length, min(length/4, 10*time.Second), func() {
		if os.Getenv(realKill) == "" {
			return
		}
		if err := d.kill(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
