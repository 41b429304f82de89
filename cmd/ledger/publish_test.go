package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ledger publish --follow publishes all records to a NATS server and exits with status
// 0 on SIGTERM. Its position is durable, so the next run publishes no record again.
func TestPublishFollowsUntilItIsToldToEnd(t *testing.T) {
	t.Parallel()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	if !broker.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	store := filepath.Join(t.TempDir(), "store")
	if err := seed(store); err != nil {
		t.Fatal(err)
	}
	records := uint64(bytes.Count(ledger(t, store, "event", "ls", "-o", "jsonl").out, []byte("\n")))
	var out, told bytes.Buffer
	cmd := exec.CommandContext(t.Context(), commandPath(), "--store", store, "publish", "--to", broker.ClientURL(), "--name", "bus", "--follow", "-o", "jsonl")
	cmd.Stdout, cmd.Stderr = &out, &told
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(broker.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if about, err := js.StreamInfo("ledger"); err == nil && about.State.Msgs == records {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the records do not arrive: %s", told.String())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || told.Len() > 0 {
		t.Fatalf("publish = %v: %s, want an ordinary end", err, told.String())
	}
	if !strings.Contains(out.String(), `"name":"bus"`) {
		t.Errorf("publish told %s, want what it did", out.String())
	}
	again := ledger(t, store, "publish", "--to", broker.ClientURL(), "--name", "bus", "-o", "jsonl")
	if !strings.Contains(string(again.out), `"published_now":0`) {
		t.Errorf("publish again told %s%s, want that nothing was published", again.out, again.err)
	}
	listed := ledger(t, store, "consumer", "ls", "-o", "jsonl")
	if !strings.Contains(string(listed.out), `"target":"nats://127.0.0.1`) || !strings.Contains(string(listed.out), `"lag":0`) {
		t.Errorf("consumer ls told %s%s", listed.out, listed.err)
	}
}
