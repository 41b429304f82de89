package eventstoredb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// A database is an embedded store behind a server at a constant address.
type database struct {
	t       testing.TB
	address string
	config  eventstoredb.Config
	fs      *vfs.MemFS
	served  server.Config
	mu      sync.Mutex // held while the server is started or stopped
	store   *embedded.Store
	server  *server.Server
	serving sync.WaitGroup
}

// newDatabase starts a database, which ends with the test.
func newDatabase(t testing.TB) *database {
	t.Helper()
	d := &database{t: t, fs: vfs.NewCrashableMem(), served: server.Config{Anonymous: auth.Ledger}}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.address = at.Addr().String()
	d.serve(at)
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *database) url() string { return "esdb://" + d.address + "?tls=false" }

// serve opens the store if it is closed, and serves it.
func (d *database) serve(at net.Listener) {
	d.t.Helper()
	if d.store == nil {
		store, err := embedded.Open(context.Background(), "db", embedded.Config{FS: d.fs})
		if err != nil {
			d.t.Fatal(err)
		}
		d.store = store
	}
	server, err := server.New(d.store, d.served)
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = server
	d.serving.Go(func() {
		if err := server.Serve(at); err != nil {
			d.t.Errorf("Serve: %v", err)
		}
	})
}

// listen listens at the address of the database again. A closing connection may hold
// the address for a short time.
func (d *database) listen() net.Listener {
	d.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		at, err := net.Listen("tcp", d.address)
		if err == nil {
			return at
		}
		if time.Now().After(deadline) {
			d.t.Fatal(err)
		}
	}
}

// hangUp stops the server and leaves the store open.
func (d *database) hangUp() {
	if d.server != nil {
		d.server.Close()
		d.serving.Wait()
		d.server = nil
	}
}

func (d *database) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		d.serve(d.listen())
	}
}

// stop stops the server and closes the store.
func (d *database) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangUp()
	if d.store != nil {
		if err := d.store.Close(); err != nil {
			d.t.Errorf("close the embedded store: %v", err)
		}
		d.store = nil
	}
}

// restart ends every call on the server and starts another at its address.
func (d *database) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangUp()
	d.serve(d.listen())
}

// cutPower stops the server and loses the data that the store has not synced.
func (d *database) cutPower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	crashed := d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 2))})
	d.hangUp()
	_ = d.store.Close() // its memory is lost
	d.store, d.fs = nil, crashed
	d.serve(d.listen())
}

// restartAtRandom restarts the server at random until the test ends.
func (d *database) restartAtRandom() {
	d.config.RetryTimeout = faultRetryTimeout
	injectAtRandom(d.t, func(func(time.Duration) bool) { d.restart() })
}

// faultRetryTimeout is the retry timeout of stores under constant faults: on a busy
// machine a call may need many of the pauses between two faults.
const faultRetryTimeout = time.Minute

// injectAtRandom calls do again and again until the test ends. pause returns false
// when the test has ended. The delay between two calls is mostly some ten milliseconds
// and sometimes a second, and grows with the number of calls, so that the slowest
// machine makes progress between two faults.
func injectAtRandom(t testing.TB, do func(pause func(time.Duration) bool)) {
	done := make(chan struct{})
	pause := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-done:
			return false
		}
	}
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; pause((10 * time.Millisecond << rand.N(8)) * time.Duration(4+n) / 4); n++ {
			do(pause)
		}
	})
	t.Cleanup(func() { close(done); running.Wait() })
}

func (d *database) open() *eventstoredb.Store {
	d.t.Helper()
	s, err := eventstoredb.Open(context.Background(), d.url(), d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, events.ErrClosed) {
			d.t.Errorf("Close: %v", err)
		}
	})
	return s
}

// harness returns a harness of the adapter over the database.
func (d *database) harness() eventstest.Harness {
	return eventstest.Harness{
		Open: func(ctx context.Context) (events.Store, error) { return eventstoredb.Open(ctx, d.url(), d.config) },
		Close: func(s events.Store) error {
			return s.(*eventstoredb.Store).Close()
		},
		CutPower: func(s events.Store) error {
			d.cutPower()
			return s.(*eventstoredb.Store).Close()
		},
	}
}

// addForeignStreams adds streams outside of the namespace.
func (d *database) addForeignStreams() {
	mint := newMint()
	for i := range 40 {
		stream := events.Stream(fmt.Sprintf("%s.order-%d", []string{"other", "acmes", "ac"}[i%3], i))
		if err := d.store.Append(d.t.Context(), stream, 0, record(mint, "Kind1", i), record(mint, "Kind2", i)); err != nil {
			d.t.Fatal(err)
		}
	}
}

func newMint() *domain.Mint {
	key := [32]byte{}
	for i := range key {
		key[i] = byte(rand.Uint32())
	}
	return domain.NewMint(time.Now, rand.NewChaCha8(key))
}

func record(mint *domain.Mint, kind string, n int) events.Record {
	return events.Record{
		ID: mint.Event(), Kind: kind, Version: 1, Time: time.UnixMicro(int64(n)).UTC(),
		Data: fmt.Appendf(nil, `{"n":%d}`, n), Metadata: fmt.Appendf(nil, `{"by":%d}`, n),
	}
}
