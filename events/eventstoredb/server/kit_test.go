package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// rounds returns the number of repetitions of a test: few, or many if
// LEDGER_TEST_LONG is set.
func rounds(few, many int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return many
	}
	return few
}

// everything is a Config that allows a local client every call.
var everything = server.Config{Anonymous: auth.Ledger, Writable: []string{""}}

// serve serves a store on loopback until the test ends, and returns the
// address.
func serve(t *testing.T, store events.Store, cfg server.Config) string {
	t.Helper()
	server, err := server.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	address, done := listen(t, server)
	t.Cleanup(func() {
		server.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve() = %v, want nil", err)
		}
	})
	return address
}

// start serves a store with the Config everything, until the test shuts the
// server down.
func start(t *testing.T, store events.Store) (running *server.Server, address string, done chan error) {
	t.Helper()
	running, err := server.New(store, everything)
	if err != nil {
		t.Fatal(err)
	}
	address, done = listen(t, running)
	return running, address, done
}

func listen(t *testing.T, running *server.Server) (string, chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- running.Serve(listener) }()
	return listener.Addr().String(), done
}

// connect returns an official client that speaks to a server without TLS.
func connect(t *testing.T, address string) *esdb.Client {
	t.Helper()
	return dial(t, "esdb://"+address+"?tls=false")
}

func dial(t *testing.T, url string) *esdb.Client {
	t.Helper()
	cfg, err := esdb.ParseConnectionString(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = esdb.NoopLogging()
	client, err := esdb.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// pair serves an empty store to a client that may make every call.
func pair(t *testing.T) (*eventstest.Slice, *esdb.Client) {
	t.Helper()
	store := eventstest.NewSlice()
	return store, connect(t, serve(t, store, everything))
}

func proposed(kind, text string) esdb.EventData {
	return esdb.EventData{EventType: kind, ContentType: esdb.ContentTypeJson, Data: []byte(fmt.Sprintf("{%q:%q}", "text", text))}
}

func many(kind string, n int) (all []esdb.EventData) {
	for i := range n {
		all = append(all, proposed(kind, fmt.Sprint(i)))
	}
	return all
}

// collect reads to the end of a stream.
func collect(t *testing.T, stream *esdb.ReadStream, err error) (all []*esdb.RecordedEvent) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.OriginalEvent())
	}
}

// code returns the client's code for an error.
func code(err error) esdb.ErrorCode {
	var e *esdb.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return -1
}

func mustAppend(t *testing.T, c *esdb.Client, stream string, expect esdb.ExpectedRevision, all ...esdb.EventData) *esdb.WriteResult {
	t.Helper()
	result, err := c.AppendToStream(context.Background(), stream, esdb.AppendToStreamOptions{ExpectedRevision: expect}, all...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func numbers(all []*esdb.RecordedEvent) (n []uint64) {
	for _, e := range all {
		n = append(n, e.EventNumber)
	}
	return n
}

func mint(i byte) (id domain.EventID) {
	id = domain.EventIDFromBytes([16]byte{1, 15: i})
	return id
}
