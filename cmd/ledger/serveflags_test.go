package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/publishing"
	"github.com/settlement-ledger/ledger/cmd/ledger/serve"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// terminateCommand sends SIGTERM to the process that serves a folder.
//
// Usage: terminate DIR
func terminateCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: terminate DIR")
	}
	ts.Check(syscall.Kill(shared.LastEndpoint(ts.MkAbs(args[0])).PID, syscall.SIGTERM))
}

// reportsCommand waits until the status page of the process that serves a folder has a
// value for a key.
//
// Usage: reports DIR KEY VALUE
func reportsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: reports DIR KEY VALUE")
	}
	at := shared.LastEndpoint(ts.MkAbs(args[0]))
	until(ts, args[1]+" is "+args[2], func() bool {
		text, err := askEndpoint(at, stores.StatusPath)
		var said map[string]any
		return err == nil && json.Unmarshal(text, &said) == nil && fmt.Sprint(said[args[1]]) == args[2]
	})
}

// appendCommand appends an event to a stream at CONNECTION with the EventStoreDB
// client. If negated, it requires the server to deny access.
//
// Usage: append STREAM
func appendCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: append STREAM")
	}
	client, err := clientAt(ts.Getenv("CONNECTION"))
	ts.Check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = client.AppendToStream(ctx, args[0], esdb.AppendToStreamOptions{}, esdb.EventData{EventType: "Sold", ContentType: esdb.ContentTypeJson, Data: []byte("{}")})
	var refused *esdb.Error
	switch {
	case neg && (!errors.As(err, &refused) || refused.Code() != esdb.ErrorCodeAccessDenied):
		ts.Fatalf("append to %s: %v, want that access is denied", args[0], err)
	case !neg:
		ts.Check(err)
	}
}

// clientAt returns an EventStoreDB client for a connection string, without logging. The
// caller closes it.
func clientAt(connection string) (*esdb.Client, error) {
	cfg, err := esdb.ParseConnectionString(connection)
	if err != nil {
		return nil, err
	}
	cfg.Logger = esdb.NoopLogging()
	return esdb.NewClient(cfg)
}

// A servingProcess is a running ledger serve.
type servingProcess struct {
	*exec.Cmd
	at   shared.Endpoint // where it serves
	told *transcript     // its standard error
}

// A transcript is a buffer that one goroutine writes while another reads it.
type transcript struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write appends p and returns no error.
func (l *transcript) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns the text written so far.
func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// beginServing starts ledger serve for a folder and returns once it serves. Its
// standard error goes to told.
func beginServing(t *testing.T, store string, args ...string) *servingProcess {
	t.Helper()
	p := &servingProcess{told: &transcript{}}
	p.Cmd = exec.CommandContext(t.Context(), commandPath(), append([]string{"--store", store, "serve", "--listen", "127.0.0.1:0", "-o", "json"}, args...)...)
	p.Env = append(os.Environ(), "SECRET=s3cret")
	p.Stderr = p.told
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	var row struct{ PID int }
	if err := json.NewDecoder(out).Decode(&row); err != nil {
		t.Fatalf("ledger serve: %v: %s", err, p.told)
	}
	p.at = shared.LastEndpoint(store)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return p
}

// public returns the connection string that ledger serve wrote into a folder for its
// owner.
func public(t *testing.T, store string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(store, serve.CredentialsFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// stop sends a signal to the process, waits for its end and fails the test unless its
// exit status is 0.
func (p *servingProcess) stop(t *testing.T, by os.Signal) {
	t.Helper()
	if err := p.Process.Signal(by); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("ledger serve ended with %v: %s", err, p.told)
	}
}

// eventually polls a condition, and fails the test if it is false for a minute. what
// describes the condition.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	if !poll(so) {
		t.Fatalf("after a minute it is not so that %s", what)
	}
}

// broker starts a NATS server with JetStream on a port, or on a free one for port 0.
// Each change may alter its options. The server stops when the test ends.
func broker(t *testing.T, port int, change ...func(*server.Options)) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	o := &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// consumers returns the rows of ledger consumer ls by consumer name.
func consumers(t *testing.T, store string) map[string]publishing.ConsumerRow {
	t.Helper()
	listed := ledger(t, store, "consumer", "ls", "-o", "json")
	if listed.exit != 0 {
		t.Fatalf("consumer ls: exit %d: %s", listed.exit, listed.err)
	}
	all := map[string]publishing.ConsumerRow{}
	for _, row := range decodeJSON[[]publishing.ConsumerRow](t, listed.out) {
		all[row.Name] = row
	}
	return all
}

// ledger serve publishes to the targets of a configuration file. It retries a NATS
// server that is unreachable at first, refuses other commands that would use or forget
// a running consumer, and after a kill the next process continues from the stored
// positions. No log line holds the password.
func TestServePublishesMeanwhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, config := filepath.Join(dir, "store"), filepath.Join(dir, "publish.toml")
	if err := seed(store); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	target := fmt.Sprintf("nats://ada:${SECRET}@127.0.0.1:%d", port)
	text := fmt.Sprintf("[[publish]]\nname = 'bus'\nto = '%s'\n[[publish]]\nname = 'calls'\nto = 'file:%s/calls.jsonl'\nkinds = ['CallSettled']\n", target, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	first := beginServing(t, store, "--publish", config)
	eventually(t, "the file has all calls", func() bool {
		row, known := consumers(t, store)["calls"]
		return known && *row.Lag == 0 && row.Published > 0
	})
	all, err := os.ReadFile(filepath.Join(dir, "calls.jsonl"))
	if err != nil || len(all) == 0 || bytes.Count(all, []byte(`"kind":"CallSettled"`)) != bytes.Count(all, []byte("\n")) {
		t.Errorf("the file is %s (%v), want settled calls", all, err)
	}
	running := "process " + strconv.Itoa(first.Process.Pid) + " (ledger serve)"
	for _, args := range [][]string{
		{"publish", "--name", "calls", "--to", "file:" + filepath.Join(dir, "calls.jsonl"), "--kind", "CallSettled"},
		{"consumer", "forget", "calls"},
	} {
		refused := ledger(t, store, args...)
		if refused.exit != fault.ExitConflict || !strings.Contains(string(refused.err), running) || !strings.Contains(string(refused.err), "hint: ") {
			t.Errorf("ledger %s: exit %d, %s; want %d and that %s has it", strings.Join(args, " "), refused.exit, refused.err, fault.ExitConflict, running)
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // fails, since the process was killed

	js := streams(t, broker(t, port))
	second := beginServing(t, store, "--publish", config)
	records := bytes.Count(ledger(t, store, "event", "ls", "-o", "jsonl").out, []byte("\n"))
	eventually(t, "the bus has all records", func() bool {
		row, known := consumers(t, store)["bus"]
		return known && *row.Lag == 0 && int(row.Published) == records
	})
	if about, err := js.StreamInfo("ledger"); err != nil || int(about.State.Msgs) != records {
		t.Errorf("the stream has %+v (%v), want %d records", about, err, records)
	}
	second.stop(t, syscall.SIGTERM)
	for _, told := range []string{first.told.String(), second.told.String()} {
		if strings.Contains(told, "s3cret") {
			t.Errorf("the password is told: %s", told)
		}
	}
	if !strings.Contains(first.told.String(), "no server answers") {
		t.Errorf("told %s, want that the bus was not there", first.told)
	}
}

// ledger consumer retry makes the serving process publish a dead letter once more, and
// only the one at the given position.
func TestRetryReachesServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, config := filepath.Join(dir, "store"), filepath.Join(dir, "publish.toml")
	fill(t, store, 3)
	bus := broker(t, 0, func(o *server.Options) { o.MaxPayload = 1000 })
	if err := os.WriteFile(config, fmt.Appendf(nil, "[[publish]]\nname = 'bus'\nto = '%s'\n", bus.ClientURL()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := beginServing(t, store, "--publish", config)
	tries := func() (all []string) {
		for _, p := range decodeJSON[[]publish.DeadLetter](t, ledger(t, store, "consumer", "show", "bus", "-o", "json").out) {
			all = append(all, fmt.Sprint(p.Position, ":", p.Tries, ":", p.Retry))
		}
		return all
	}
	eventually(t, "all are dead letters", func() bool {
		row, known := consumers(t, store)["bus"]
		return known && row.Poison == 3 && row.Error != nil && strings.Contains(*row.Error, "maximum payload exceeded")
	})
	if asked := ledger(t, store, "consumer", "retry", "bus", "2"); asked.exit != 0 || !strings.Contains(string(asked.out), "1 record to publish again") {
		t.Errorf("consumer retry: exit %d, %s%s", asked.exit, asked.out, asked.err)
	}
	eventually(t, "the second was retried", func() bool { return slices.Equal(tries(), []string{"1:1:false", "2:2:false", "3:1:false"}) })
	p.stop(t, syscall.SIGTERM)
}

// streams returns a JetStream connection to a broker, which is closed when the test
// ends.
func streams(t *testing.T, s *server.Server) nats.JetStreamContext {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A call in flight when the server receives SIGTERM may complete within --drain. After
// that time the server cuts it off.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	fill(t, store, 4000)
	for name, c := range map[string]struct {
		drain string
		goOn  bool // the client continues to read while the server drains
	}{"in time": {"1m", true}, "too late": {"100ms", false}} {
		t.Run(name, func(t *testing.T) {
			p := beginServing(t, store, "--drain", c.drain)
			client, err := clientAt(public(t, store))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			reading, err := client.ReadAll(t.Context(), esdb.ReadAllOptions{}, 1<<40)
			if err != nil {
				t.Fatal(err)
			}
			defer reading.Close()
			if _, err := reading.Recv(); err != nil {
				t.Fatal(err)
			}
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is ending", func() bool { return strings.Contains(p.told.String(), `"msg":"ending"`) })
			n := 1
			for c.goOn {
				if _, err := reading.Recv(); err != nil {
					break
				}
				n++
			}
			if err := p.Wait(); err != nil {
				t.Errorf("ledger serve ended with %v: %s", err, p.told)
			}
			if c.goOn && n != 4000 {
				t.Errorf("%d records were read while it ended, want 4000", n)
			}
			if cut := strings.Contains(p.told.String(), "calls were cut off"); cut == c.goOn {
				t.Errorf("told %s; cut off: %v, want %v", p.told, cut, !c.goOn)
			}
		})
	}
}

// fill makes a store with the given number of records of 1 KiB in the stream thing-1.
func fill(t *testing.T, dir string, records int) {
	t.Helper()
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	mint := domain.NewMint(func() time.Time { return now }, rand.Reader)
	batch := make([]events.Record, records)
	for i := range batch {
		batch[i] = events.Record{ID: mint.Event(), Kind: "Happened", Version: 1, Time: now, Data: fmt.Appendf(nil, "%q", strings.Repeat("x", 1024))}
	}
	if err := errors.Join(store.Append(t.Context(), "thing-1", 0, batch...), store.Close()); err != nil {
		t.Fatal(err)
	}
}
