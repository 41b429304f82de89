package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
	"github.com/settlement-ledger/ledger/events"
)

// A broker is a NATS server in this process and a connection to it. The server opens
// no port; the connection goes through memory. It has one JetStream stream in files,
// without replicas.
type broker struct {
	server *server.Server      // owned; Close joins it
	conn   *nats.Conn          // owned; nil until newBroker has connected
	stream jetstream.JetStream // publishes; at most 4096 asynchronous messages are pending
	events jetstream.Stream    // the stream of all events
}

// subject is the NATS subject of the events that fill publishes.
const subject = "ledger.events"

// A durability decides when the server syncs its files. With the default,
// syncInterval, the server acknowledges a message long before it is on the disk.
type durability bool

const (
	syncAlways   durability = true  // before each acknowledgement
	syncInterval durability = false // at intervals, the default of NATS
)

// newBroker starts a server with files in dir and creates the stream. The caller must
// close the broker. After an error the server is stopped. It returns an error if the
// server is not ready within 10 seconds.
func newBroker(ctx context.Context, dir string, d durability) (*broker, error) {
	s, err := server.NewServer(&server.Options{
		JetStream: true, StoreDir: dir, SyncAlways: bool(d), DontListen: true, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	b := &broker{server: s}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.Join(errors.New("the NATS server is not ready after 10 seconds"), b.Close())
	}
	if b.conn, err = nats.Connect("", nats.InProcessServer(s)); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if b.stream, err = jetstream.New(b.conn, jetstream.WithPublishAsyncMaxPending(4096)); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.events, err = b.stream.CreateStream(ctx, jetstream.StreamConfig{
		Name: "ledger", Subjects: []string{"ledger.>"}, Storage: jetstream.FileStorage, Replicas: 1,
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// openNATS returns a broker that syncs each message before it acknowledges it.
func openNATS(ctx context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	return newBroker(ctx, g.Dir, syncAlways)
}

// Append publishes an event on the subject of its writer. It returns when the server
// has acknowledged it, which with syncAlways means that it is on the disk. Several
// goroutines may append at once.
func (b *broker) Append(ctx context.Context, writer, _ int, event []byte) error {
	_, err := b.stream.Publish(ctx, "ledger.session-"+strconv.Itoa(writer), event)
	return err
}

// Close closes the connection, stops the server and waits until it has stopped. The
// error is always nil.
func (b *broker) Close() error {
	if b.conn != nil {
		b.conn.Close()
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	return nil
}

// scanned is the number of events that the consumer reads at scale 1. It is less than the
// whole history, because the consumer is slow. All events are alike, so the rate does not
// depend on their number.
const scanned = 200_000

// scanNATS returns a contestant whose consumer reads the headers of the events in
// order. The server sends no payloads. Filling the stream is not measured, so it does
// not sync each message.
func scanNATS(ctx context.Context, g *bench.Ground) (bench.Rig, error) {
	b, err := newBroker(ctx, g.Dir, syncInterval)
	if err != nil {
		return nil, err
	}
	n, err := b.fill(ctx, g)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return bench.NewRig(func(ctx context.Context) (bench.Sample, error) {
		begun := time.Now()
		if err := b.consume(ctx, n); err != nil {
			return nil, err
		}
		return bench.RateOf(n, time.Since(begun))
	}, b.Close), nil
}

// errEnough ends the loop of fill over the history. Callers of fill do not see it.
var errEnough = errors.New("there are enough events")

// fill publishes the first events of a history and returns the number n of published
// events. It stops after the batch that reaches the limit scanned, multiplied by the
// scale of the run, or at the end of the history. The message of an event has the ID,
// stream, revision, kind, version and time as headers, and the data as payload. fill
// returns after the server has acknowledged every message, or with the cause of ctx.
func (b *broker) fill(ctx context.Context, g *bench.Ground) (n int, err error) {
	most := g.Count(scanned)
	err = eachEntry(ctx, g, min(1000, most), func(entries []events.Entry) error {
		for _, e := range entries {
			header := nats.Header{
				"Id": {e.ID.String()}, "Stream": {string(e.Stream)}, "Revision": {strconv.FormatUint(uint64(e.Revision), 10)},
				"Kind": {e.Kind}, "Version": {strconv.Itoa(e.Version)}, "Time": {strconv.FormatInt(e.Time.UnixMicro(), 10)},
			}
			if _, err := b.stream.PublishMsgAsync(&nats.Msg{Subject: subject, Header: header, Data: e.Data}); err != nil {
				return err
			}
		}
		if n += len(entries); n >= most {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return n, err
	}
	select {
	case <-b.stream.PublishAsyncComplete():
		return n, nil
	case <-ctx.Done():
		return n, context.Cause(ctx)
	}
}

// consume reads n events in order with a new consumer, which prefetches 8192 messages.
// It returns an error for a message without the header Kind. ctx bounds only the
// creation of the consumer, not the reading.
func (b *broker) consume(ctx context.Context, n int) error {
	consumer, err := b.events.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(8192))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for i := range n {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		if m.Headers().Get("Kind") == "" {
			return fmt.Errorf("event %d of the consumer has no kind", i+1)
		}
	}
	return nil
}
