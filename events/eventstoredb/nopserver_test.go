package eventstoredb_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
	"google.golang.org/grpc"
)

// A nopServer is the smallest server of EventStoreDB's protocol, to measure the cost
// of the official client: it responds to appends at once, stores no event, and sends
// the same bytes to all subscribers.
type nopServer struct {
	serverfeatures.UnimplementedServerFeaturesServer
	streams.UnimplementedStreamsServer
	appended atomic.Uint64
	mu       struct {
		sync.Mutex
		moved chan struct{} // closed when there is another event
		event *grpc.PreparedMsg
		count int
	}
}

func (f *nopServer) Append(from streams.Streams_AppendServer) error {
	revision := uint64(0)
	for {
		m, err := from.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if o, ok := m.GetOptions().GetExpectedStreamRevision().(*streams.AppendReq_Options_Revision); ok {
			revision = o.Revision + 1
		}
	}
	at := f.appended.Add(1)
	return from.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_Success_{Success: &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: revision},
		PositionOption:        &streams.AppendResp_Success_Position{Position: &streams.AppendResp_Position{CommitPosition: at, PreparePosition: at}},
	}}})
}

// Read sends each event to a subscriber.
func (f *nopServer) Read(_ *streams.ReadReq, to streams.Streams_ReadServer) error {
	if err := to.Send(confirmation); err != nil {
		return err
	}
	for seen := 0; ; {
		f.mu.Lock()
		event, count, moved := f.mu.event, f.mu.count, f.mu.moved
		f.mu.Unlock()
		if count == seen {
			select {
			case <-moved:
				continue
			case <-to.Context().Done():
				return to.Context().Err()
			}
		}
		if seen = count; event == nil {
			if err := f.prepare(to); err != nil {
				return err
			}
			seen--
			continue
		}
		if err := to.SendMsg(event); err != nil {
			return err
		}
	}
}

// prepare encodes the event once for all subscribers.
func (f *nopServer) prepare(to grpc.ServerStream) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.event != nil {
		return nil
	}
	f.mu.event = &grpc.PreparedMsg{}
	return f.mu.event.Encode(to, recordedEvent("bench-1", "Kind", `{"$ledger":{"v":1,"t":"2026-01-02T03:04:05.000006Z"}}`, 1, 1))
}

// publish sends the event to all subscribers.
func (f *nopServer) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.mu.moved)
	f.mu.moved = make(chan struct{})
	f.mu.count++
}

// startNopServer serves a nopServer, and returns it with a number of official clients
// of it.
func startNopServer(b *testing.B, clients int) (*nopServer, []*esdb.Client) {
	b.Helper()
	f := &nopServer{}
	f.mu.moved = make(chan struct{})
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	streams.RegisterStreamsServer(server, f)
	serverfeatures.RegisterServerFeaturesServer(server, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(at) })
	var all []*esdb.Client
	for range clients {
		config, err := esdb.ParseConnectionString("esdb://" + at.Addr().String() + "?tls=false")
		if err != nil {
			b.Fatal(err)
		}
		config.Logger = esdb.NoopLogging()
		client, err := esdb.NewClient(config)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, client)
	}
	b.Cleanup(func() {
		for _, c := range all {
			_ = c.Close()
		}
		server.Stop()
		serving.Wait()
	})
	return f, all
}

// officialAppender appends with official clients in turn.
func officialAppender(b *testing.B, clients []*esdb.Client) appender {
	var turn atomic.Uint64
	return func(stream events.Stream, after events.Revision, r events.Record) error {
		f, err := mapping.FromRecord(r)
		if err != nil {
			return err
		}
		var expected esdb.ExpectedRevision = esdb.NoStream{}
		if after > 0 {
			expected = esdb.Revision(uint64(after) - 1)
		}
		client := clients[turn.Add(1)%uint64(len(clients))]
		_, err = client.AppendToStream(b.Context(), string(stream), esdb.AppendToStreamOptions{ExpectedRevision: expected},
			esdb.EventData{EventID: f.ID, EventType: f.Type, ContentType: esdb.ContentTypeJson, Data: f.Data, Metadata: f.Metadata})
		return err
	}
}
