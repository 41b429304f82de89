package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jetstream"
)

// The environment variables that make the test program a publisher, with its store
// and its target, and the one that sets the number of records.
const (
	publisherStore  = "LEDGER_TEST_PUBLISHER_STORE"
	publisherTarget = "LEDGER_TEST_PUBLISHER_TARGET"
	manyRecords     = "LEDGER_TEST_PUBLISH_EVENTS"
)

// streams is the number of streams of records in the store.
const streams = 40

// TestMain runs publishAll in place of the tests if the environment sets
// publisherStore.
func TestMain(m *testing.M) {
	if dir := os.Getenv(publisherStore); dir != "" {
		if err := publishAll(dir, os.Getenv(publisherTarget)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// publishAll is the publisher that the test kills: it publishes the store in dir to
// target.
func publishAll(dir, target string) error {
	ctx := context.Background()
	store, err := embedded.Open(ctx, dir, embedded.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	topic, err := publish.ParseTopic("ledger.{category}.{kind}")
	if err != nil {
		return err
	}
	p, err := jetstream.Open(ctx, target, topic, "test")
	if err != nil {
		return err
	}
	defer p.Close()
	return publish.NewRelay(store, store, publish.NewFileLocker(filepath.Join(dir, "claims"), "test"), time.Now).CatchUp(ctx, publish.Job{
		Name: "test", Target: publish.Redacted(target), Topic: topic,
		Policy: publish.Policy{Workers: jetstream.Workers, MaxBackoff: time.Second, SaveInterval: 20 * time.Millisecond},
	}, p)
}

// While the publisher is killed three times and the server restarted once, every
// record arrives, the records of a stream in order, and each repeat with the same
// bytes. If the environment sets LEDGER_TEST_LONG, there are five kills, two restarts
// and more records.
func TestAllArriveThoughPublisherAndServerDie(t *testing.T) {
	t.Parallel()
	records, publisherKills, serverRestarts := 600, 3, 1
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		records, publisherKills, serverRestarts = 20000, 5, 2
	}
	if text := os.Getenv(manyRecords); text != "" {
		var err error
		if records, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir, kept := t.TempDir(), t.TempDir()
	want := write(t, dir, records)
	s := serve(t, func(o *server.Options) { o.StoreDir = kept })
	port := s.Addr().(*net.TCPAddr).Port
	target := s.ClientURL()
	watching := watch(t, target)
	p := begin(t, dir, target)
	kills := 0
	for n := range publisherKills + serverRestarts {
		watching.await(t, uint64((n+1)*records/(publisherKills+serverRestarts+2)))
		if n%3 == 2 { // the third and the sixth step restart the server
			stop(s)
			s = serve(t, func(o *server.Options) { o.StoreDir, o.Port = kept, port })
			continue
		}
		if p.kill(t) {
			kills++
		}
		p = begin(t, dir, target)
	}
	if kills == 0 {
		t.Error("no publisher was killed at work")
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("the last publisher ended with %v: %s", err, p.told.String())
	}
	all := stored(t, s, "ledger.*.*")
	got, repeats := map[string]events.Revision{}, 0
	ids := map[string]bool{}
	for _, m := range all {
		read, err := (&wnats.NATSMarshaler{}).Unmarshal(m)
		if err != nil {
			t.Fatal(err)
		}
		stream, revision := read.Metadata.Get(publish.KeyStream), read.Metadata.Get(publish.KeyRevision)
		place := stream + " " + revision
		n, err := strconv.ParseUint(revision, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if want[place] != read.UUID || string(read.Payload) != fmt.Sprintf(`{"n":%d}`, n) {
			t.Fatalf("%s arrived as %s %s, want %s", place, read.UUID, read.Payload, want[place])
		}
		if events.Revision(n) > got[stream]+1 {
			t.Fatalf("%s: revision %d after %d", stream, n, got[stream])
		}
		got[stream] = max(got[stream], events.Revision(n))
		if ids[read.UUID] {
			repeats++
		}
		ids[read.UUID] = true
	}
	if len(ids) != records {
		t.Errorf("%d of %d records arrived", len(ids), records)
	}
	t.Logf("%d records arrived, %d of them again; %d kills, %d restarts", len(ids), repeats, kills, serverRestarts)
}

// write fills a store with records and returns the event ID of each by its stream and
// revision.
func write(t *testing.T, dir string, records int) map[string]string {
	t.Helper()
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	mint := domain.NewMint(func() time.Time { return now }, rand.NewChaCha8([32]byte{3}))
	all := map[string]string{}
	lengths := make([]events.Revision, streams)
	for n := 0; n < records; {
		// Each run of 50 records has another stream.
		s := n / 50 % streams
		stream := events.Stream(fmt.Sprintf("thing-%d", s))
		var batch []events.Record
		for range min(50, records-n) {
			revision := lengths[s] + events.Revision(len(batch)) + 1
			r := events.Record{ID: mint.Event(), Kind: "Happened", Version: 1, Time: now, Data: fmt.Appendf(nil, `{"n":%d}`, revision)}
			batch = append(batch, r)
			all[fmt.Sprint(stream, " ", revision)] = r.ID.String()
		}
		if err := store.Append(t.Context(), stream, lengths[s], batch...); err != nil {
			t.Fatal(err)
		}
		lengths[s] += events.Revision(len(batch))
		n += len(batch)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A publisher is a running process of this test program that publishes. Its standard
// error goes to the buffer.
type publisher struct {
	*exec.Cmd
	told *bytes.Buffer
}

// begin starts a publisher.
func begin(t *testing.T, dir, target string) publisher {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), publisherStore+"="+dir, publisherTarget+"="+target)
	told := &bytes.Buffer{}
	cmd.Stderr = told
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return publisher{cmd, told}
}

// kill kills a publisher and reports whether it was still publishing. On a busy
// machine it may have published everything by then, which is no failure.
func (p publisher) kill(t *testing.T) bool {
	t.Helper()
	if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	err := p.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && (!ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
		t.Fatalf("the publisher ended before it was killed, with %v: %s", err, p.told.String())
	}
	return err != nil
}

// A watcher reads the number of messages in the stream, also after restarts of the
// server.
type watcher struct{ js nats.JetStreamContext }

// watch returns a watcher whose connection survives restarts of the server.
func watch(t *testing.T, target string) watcher {
	t.Helper()
	conn, err := nats.Connect(target, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := conn.JetStream(nats.MaxWait(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return watcher{js}
}

// await returns once the stream has a number of messages.
func (w watcher) await(t *testing.T, messages uint64) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		about, err := w.js.StreamInfo("ledger")
		if err == nil && about.State.Msgs >= messages {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stream never had %d messages: %+v, %v", messages, about, err)
		}
	}
}
