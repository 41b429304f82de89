package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// serveShop starts ledger serve for a folder, open to anonymous writers, and returns
// the process and the connection string that it prints. The caller kills the process.
func serveShop(t *testing.T, store string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), commandPath(), "--store", store, "serve", "--listen", "127.0.0.1:0", "--writable", "", "--anonymous", "ledger")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url := regexp.MustCompile(`esdb://\S+`).FindString(lines.Text()); url != "" {
			go func() { // drains the pipe until the process ends
				for lines.Scan() {
				}
			}()
			return cmd, url
		}
	}
	t.Fatalf("ledger serve told no address: %v", cmd.Wait())
	return nil, ""
}

// A persistent subscription resumes after its last stored checkpoint when the server is
// killed and started again. The test waits for the server to report the checkpoint
// before the kill.
func TestAGroupGoesOnWhereItWasAfterSIGKILL(t *testing.T) {
	t.Parallel()
	const written, acknowledged = 20, 10
	store := filepath.Join(t.TempDir(), "store")
	for _, from := range []uint64{0, acknowledged} {
		server, url := serveShop(t, store)
		cfg, err := esdb.ParseConnectionString(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Logger = esdb.NoopLogging()
		client, err := esdb.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if from == 0 {
			fillShop(t, client, written)
		}
		sub, err := client.SubscribeToPersistentSubscription(t.Context(), "shop-1", "g", esdb.SubscribeToPersistentSubscriptionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(acknowledged) {
			e := sub.Recv().EventAppeared
			if e == nil || e.Event.Event.EventNumber != from+i {
				t.Fatalf("handed %+v, want revision %d", e, from+i)
			}
			if err := sub.Ack(e.Event); err != nil {
				t.Fatal(err)
			}
		}
		for kept := false; !kept; {
			info, err := client.GetPersistentSubscriptionInfo(t.Context(), "shop-1", "g", esdb.GetPersistentSubscriptionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			at := info.Stats.LastCheckpointedEventRevision
			kept = at != nil && *at == from+acknowledged-1
		}
		if err := server.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = server.Wait() // fails, since the process was killed
		_ = sub.Close()
		_ = client.Close()
	}
}

// fillShop appends n events to the stream shop-1 and creates the group g, which stores
// a checkpoint after each acknowledgement.
func fillShop(t *testing.T, client *esdb.Client, n int) {
	t.Helper()
	var all []esdb.EventData
	for range n {
		all = append(all, esdb.EventData{EventType: "Sold", ContentType: esdb.ContentTypeJson, Data: []byte("{}")})
	}
	if _, err := client.AppendToStream(t.Context(), "shop-1", esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, all...); err != nil {
		t.Fatal(err)
	}
	settings := esdb.SubscriptionSettingsDefault()
	settings.CheckpointLowerBound, settings.CheckpointUpperBound = 1, 1
	if err := client.CreatePersistentSubscription(t.Context(), "shop-1", "g", esdb.PersistentStreamSubscriptionOptions{StartFrom: esdb.Start{}, Settings: &settings}); err != nil {
		t.Fatal(err)
	}
}
