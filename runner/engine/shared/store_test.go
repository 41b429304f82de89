package shared_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

func open(t *testing.T, dir string, cfg shared.Config) *shared.Store {
	t.Helper()
	if cfg.Command == "" {
		cfg.Command = "test"
	}
	cfg.Timeout = time.Minute
	s, err := shared.Open(t.Context(), dir, cfg)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) }) // a second time, perhaps
	return s
}

// The laws of a store hold through the holder of the folder.
func TestEveryLawHolds(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(t *testing.T) eventstest.Harness {
		dir := filepath.Join(t.TempDir(), "store")
		var holder *shared.Store
		return eventstest.Harness{
			Open: func(ctx context.Context) (_ events.Store, err error) {
				if holder, err = shared.Open(ctx, dir, shared.Config{Command: "holder", Timeout: time.Minute}); err != nil {
					return nil, err
				}
				client, err := shared.Open(ctx, dir, shared.Config{Command: "client", Timeout: time.Minute})
				if err != nil {
					return nil, errors.Join(err, holder.Close(ctx))
				}
				return client, nil
			},
			Close: func(client events.Store) error {
				return errors.Join(client.(*shared.Store).Close(t.Context()), holder.Close(t.Context()))
			},
		}
	})
}

func record(m *domain.Mint, text string) events.Record {
	return events.Record{ID: m.Event(), Kind: "Happened", Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond), Data: fmt.Appendf(nil, "%q", text)}
}

// While holders come and go, each process appends to a stream of its own and follows
// all streams: no acknowledged record is lost or stored twice, and a follower yields
// all of them in order.
func TestTakeoverLosesNothing(t *testing.T) {
	t.Parallel()
	const writers, records = 3, 60
	dir := filepath.Join(t.TempDir(), "store")
	first := open(t, dir, shared.Config{})
	var stores []*shared.Store
	for range writers {
		stores = append(stores, open(t, dir, shared.Config{}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing, following sync.WaitGroup
	followed := make([][]events.Entry, writers)
	for i, s := range stores {
		following.Go(func() {
			for e, err := range s.Follow(ctx, events.Position{}) {
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Follow = %v", err)
					}
					return
				}
				if followed[i] = append(followed[i], e); len(followed[i]) == writers*records {
					return
				}
			}
		})
		writing.Go(func() {
			mint := domain.NewMint(time.Now, zeroReader{})
			for n := range events.Revision(records) {
				if err := s.Append(ctx, events.Stream(fmt.Sprint("thing-", i)), n, record(mint, fmt.Sprint(i, " ", n))); err != nil {
					t.Errorf("Append %d of %d = %v", n, i, err)
					return
				}
				if n == records/3 && i == 0 {
					if err := first.Close(ctx); err != nil {
						t.Errorf("Close = %v", err)
					}
				}
			}
		})
	}
	writing.Wait()
	following.Wait()
	cancel()
	holders := 0
	for _, s := range stores {
		if s.Holds() {
			holders++
		}
	}
	if holders != 1 {
		t.Errorf("%d processes hold the folder, want 1", holders)
	}
	for i, s := range stores {
		if !slices.EqualFunc(followed[i], followed[0], func(a, b events.Entry) bool { return a.ID == b.ID && a.Position == b.Position }) {
			t.Errorf("follower %d got other entries than the first", i)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	log, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for i := range writers {
		n := 0
		for e, err := range log.Read(t.Context(), events.Stream(fmt.Sprint("thing-", i)), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("%q", fmt.Sprint(i, " ", n)); string(e.Data) != want {
				t.Fatalf("record %d of stream %d is %s, want %s", n, i, e.Data, want)
			}
			n++
		}
		if n != records {
			t.Errorf("stream %d has %d records, want %d", i, n, records)
		}
	}
}

// Each loop over one sequence of Follow begins at the start of the sequence, and has
// its own CaughtUp.
func TestLoopsOverOneFollowAreIndependent(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store"), shared.Config{})
	if err := s.Append(t.Context(), "thing-1", 0, record(domain.NewMint(time.Now, zeroReader{}), "1")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	caughtUp := make(chan struct{}, 2)
	entries := s.Follow(ctx, events.Position{}, events.Following{CaughtUp: func(events.Position) { caughtUp <- struct{}{} }})
	var following sync.WaitGroup
	for i := range 2 {
		following.Go(func() {
			for _, err := range entries {
				if err != nil && ctx.Err() == nil {
					t.Errorf("loop %d: Follow = %v", i, err)
				}
			}
		})
		select {
		case <-caughtUp:
		case <-ctx.Done():
			t.Errorf("loop %d did not report that it caught up", i)
		}
	}
	cancel()
	following.Wait()
}

// Outputs and checkpoints survive a takeover like records, and an open reader of an
// output continues with the next holder.
func TestTakeoverKeepsOutputsAndCheckpoints(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	first := open(t, dir, shared.Config{})
	second := open(t, dir, shared.Config{})
	mint := domain.NewMint(time.Now, zeroReader{})
	ref := domain.NewRef(mint.Event(), domain.TextChannel)
	text := strings.Repeat("0123456789", 1<<18)
	if _, err := second.Outputs().Keep(t.Context(), ref, "text/plain", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second.Outputs().Confirm(t.Context(), ref.Settlement()), second.SaveCheckpoint(t.Context(), "x", []byte("1")), second.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	o, err := second.Outputs().Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got := make([]byte, 0, len(text))
	page := make([]byte, 100_000)
	for len(got) < len(text) {
		n, err := o.Read(page)
		if err != nil {
			t.Fatalf("Read after %d bytes = %v", len(got), err)
		}
		if len(got) == 0 {
			if err := first.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, page[:n]...)
	}
	if string(got) != text {
		t.Error("the output that was read is another one")
	}
	if data, err := second.LoadCheckpoint(t.Context(), "x"); err != nil || string(data) != "1" {
		t.Errorf("LoadCheckpoint = %q, %v", data, err)
	}
	n := 0
	for _, err := range second.Outputs().All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 || !second.Holds() {
		t.Errorf("All yields %d outputs, want 1; holds: %v, want true", n, second.Holds())
	}
}

// Of processes that open a new folder at once, one is the holder, and when it closes,
// another one becomes it.
func TestOneOfManyHolds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	stores := make([]*shared.Store, 6)
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() {
			var err error
			if stores[i], err = shared.Open(t.Context(), dir, shared.Config{Command: fmt.Sprint("test ", i), Timeout: time.Minute}); err != nil {
				t.Errorf("Open = %v", err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for len(stores) > 0 {
		i := slices.IndexFunc(stores, (*shared.Store).Holds)
		if i < 0 { // a client takes over at its next operation
			if _, err := stores[0].LoadCheckpoint(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := stores[i].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		stores = slices.Delete(stores, i, i+1)
	}
}

// The error for a folder that a process has open without sharing it names that
// process.
func TestAProcessThatDoesNotShareIsNamed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	log, err := embedded.Open(t.Context(), dir, embedded.Config{Owner: storedir.Owner{Command: "alone"}})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, err = shared.Open(t.Context(), dir, shared.Config{Command: "test"})
	if !errors.Is(err, events.ErrInUse) || !strings.Contains(err.Error(), "(alone on ") {
		t.Errorf("Open = %v, want an ErrInUse that names the process", err)
	}
}

// A process opens a folder with the endpoint of a killed holder, and reports one that
// a process on another machine wrote.
func TestStaleEndpoints(t *testing.T) {
	t.Parallel()
	t.Run("of a process that was killed", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "store")
		mint := domain.NewMint(time.Now, zeroReader{})
		dead, before := mint.Process(), mint.Process()
		if err := open(t, dir, shared.Config{}).Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		stale := shared.Endpoint{PID: 1, Host: "h", Web: "https://127.0.0.1:1", Process: dead, Before: []domain.ProcessID{before}, Certificate: "x"}
		if err := stale.Write(dir); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, shared.Config{})
		if got := s.Before(); !slices.Equal(got, []domain.ProcessID{before, dead}) {
			t.Errorf("Before = %v, want %v and %v", got, before, dead)
		}
		if err := s.Recovered(); err != nil {
			t.Errorf("Recovered = %v", err)
		}
		if at := shared.LastEndpoint(dir); len(at.Before) != 0 {
			t.Errorf("after Recovered the endpoint names %v before it", at.Before)
		}
	})
	t.Run("of another machine", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "store")
		started := time.Now().UTC()
		log, err := embedded.Open(t.Context(), dir, embedded.Config{Owner: storedir.Owner{Command: "ledger run", Host: "elsewhere", PID: 4711, Started: started, Shares: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		id, err := shared.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		at := shared.Endpoint{PID: 4711, Host: "elsewhere", Started: started, Command: "ledger run", Log: "127.0.0.1:1", Web: "https://127.0.0.1:1", Certificate: id.Certificate}
		if err := at.Write(dir); err != nil {
			t.Fatal(err)
		}
		_, err = shared.Open(t.Context(), dir, shared.Config{Command: "test"})
		if !errors.Is(err, events.ErrInUse) || !strings.Contains(err.Error(), "process 4711 (ledger run on elsewhere") || !strings.Contains(err.Error(), "another machine") {
			t.Errorf("Open = %v, want an ErrInUse that names the host", err)
		}
	})
	t.Run("of a process that has the lock and does not serve yet", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "store")
		started := time.Now().UTC()
		log, err := embedded.Open(t.Context(), dir, embedded.Config{Owner: storedir.Owner{Command: "ledger run", Started: started, Shares: true}})
		if err != nil {
			t.Fatal(err)
		}
		notified := make(chan shared.LockWait, 1)
		opened := make(chan error, 1)
		go func() {
			s, err := shared.Open(t.Context(), dir, shared.Config{Command: "test", Timeout: time.Minute, Waiting: func(w shared.LockWait) { notified <- w }})
			if err == nil {
				err = s.Close(context.Background())
			}
			opened <- err
		}()
		if w := <-notified; w.Owner.Command != "ledger run" || w.Stopped {
			t.Errorf("waits for %v, want the process that has the lock", w)
		}
		if err := log.Close(); err != nil { // it ends before it served
			t.Fatal(err)
		}
		if err := <-opened; err != nil {
			t.Errorf("Open = %v", err)
		}
	})
}

// A process that has the lock and never serves is named in the error after the
// timeout.
func TestSilenceIsNamed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	log, err := embedded.Open(t.Context(), dir, embedded.Config{Owner: storedir.Owner{Command: "ledger run", Shares: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, err = shared.Open(t.Context(), dir, shared.Config{Command: "test", Timeout: 100 * time.Millisecond})
	if !errors.Is(err, shared.ErrUnresponsive) || !errors.Is(err, events.ErrInUse) || !strings.Contains(err.Error(), "(ledger run on ") {
		t.Errorf("Open = %v, want an ErrSilent that names the process", err)
	}
}

// A process that only reads never becomes the holder: it opens a folder without a
// holder by Config.ReadOnly, and connects to a holder that starts later.
func TestAReaderHoldsNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	writer := open(t, dir, shared.Config{})
	mint := domain.NewMint(time.Now, zeroReader{})
	if err := writer.Append(t.Context(), "thing-1", 0, record(mint, "a")); err != nil {
		t.Fatal(err)
	}
	opened := 0
	reader := open(t, dir, shared.Config{ReadOnly: func(ctx context.Context) (shared.Backend, error) {
		log, err := embedded.OpenReader(ctx, dir, embedded.Config{})
		if err != nil {
			return shared.Backend{}, err
		}
		opened++
		return shared.Backend{Log: log, Checkpoints: log, Close: log.Close}, nil
	}})
	count := func() (n int) {
		for _, err := range reader.ReadAll(t.Context(), events.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	if n := count(); n != 1 || opened != 0 {
		t.Errorf("%d entries through the holder, and opened %d times, want 1 and 0", n, opened)
	}
	if err := writer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 1 || opened != 1 || reader.Holds() {
		t.Errorf("%d entries without a holder, opened %d times, holds: %v; want 1, 1 and false", n, opened, reader.Holds())
	}
}

// A copy of a folder that was made while a process held it opens as the copy, and not
// as the folder that the process has open.
func TestACopyOfAHeldFolderIsRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	writer, mint := open(t, dir, shared.Config{}), domain.NewMint(time.Now, zeroReader{})
	if err := writer.Append(t.Context(), "thing-1", 0, record(mint, "a")); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Append(t.Context(), "thing-1", 1, record(mint, "b")); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"owner", shared.EndpointName} {
		path := filepath.Join(copied, name)
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, bytes.ReplaceAll(text, []byte(`"host":"`+host), []byte(`"host":"elsewhere`)), 0o600)
		}
		if err == nil {
			err = os.Chmod(path, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	reader := open(t, copied, shared.Config{ReadOnly: func(ctx context.Context) (shared.Backend, error) {
		log, err := embedded.OpenReader(ctx, copied, embedded.Config{})
		if err != nil {
			return shared.Backend{}, err
		}
		return shared.Backend{Log: log, Checkpoints: log, Close: log.Close}, nil
	}})
	n := 0
	for _, err := range reader.ReadAll(t.Context(), events.Position{}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("%d entries in the copy, want 1", n)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A holder gives the folder up to a process that requests it, such as ledger serve,
// and continues as a client of the next holder, with its loops.
func TestAHolderYields(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	first := open(t, dir, shared.Config{Command: "first"})
	mint := domain.NewMint(time.Now, zeroReader{})
	if err := first.Append(t.Context(), "thing-1", 0, record(mint, "a")); err != nil {
		t.Fatal(err)
	}
	got := make(chan events.Entry, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		for e, err := range first.Follow(ctx, events.Position{}) {
			if err != nil {
				return
			}
			got <- e
		}
	})
	defer following.Wait()
	defer cancel()
	<-got
	yields, err := shared.RequestYield(t.Context(), dir)
	if err != nil || !yields {
		t.Fatalf("AskToYield = %v, %v", yields, err)
	}
	second := open(t, dir, shared.Config{Command: "second"})
	if err := first.Append(t.Context(), "thing-1", 1, record(mint, "b")); err != nil {
		t.Fatal(err)
	}
	if e := <-got; e.Revision != 2 {
		t.Errorf("followed revision %d, want 2", e.Revision)
	}
	if first.Holds() || !second.Holds() {
		t.Error("the first process holds the folder that it gave up")
	}
}
