package eventstoredb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	_ "github.com/settlement-ledger/ledger/events/eventstoredb/clientrace"
	"google.golang.org/grpc/codes"
)

// The race detector does not report the client's races on the trailer of an append,
// because package clientrace excludes them. The test lets appends of the official
// client fail while their contexts end; the client then reads the trailer while gRPC
// writes it.
func TestRacesOfTheClientAreNotReported(t *testing.T) {
	t.Parallel()
	m := newFaultProxy(t, newDatabase(t).address)
	m.inject(firstCalls(appendMethod, 1<<30, fault{refuse: statusOf(codes.Aborted)}))
	config, err := esdb.ParseConnectionString(m.url())
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = func(esdb.LogLevel, string, ...any) {}
	client, err := esdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.GetServerVersion(); err != nil {
		t.Fatal(err)
	}
	sent := make([]esdb.EventData, 200)
	for i := range sent {
		sent[i] = esdb.EventData{EventType: "Kind", Data: make([]byte, 1000)}
	}
	var appends sync.WaitGroup
	for worker := range 8 {
		appends.Go(func() {
			for n := range 25 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*200*time.Microsecond)
				_, err := client.AppendToStream(ctx, fmt.Sprint("raced-", worker), esdb.AppendToStreamOptions{}, sent...)
				cancel()
				if err == nil {
					t.Error("AppendToStream() = nil, want the error of the server or of the context")
				}
			}
		})
	}
	appends.Wait()
}
