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

// A broker is a NATS server in this process without a port, with one stream in
// files, and a connection to it through memory.
type broker struct {
	server *server.Server
	conn   *nats.Conn
	stream jetstream.JetStream
	events jetstream.Stream
}

const subject = "ledger.events"

// A durability says when the server syncs. By default it answers a publisher
// long before an event is on the disk.
type durability bool

const (
	syncAlways   durability = true
	syncInterval durability = false
)

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

func openNATS(ctx context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	return newBroker(ctx, g.Dir, syncAlways)
}

// Append publishes an event and waits until the server has it on the disk.
func (b *broker) Append(ctx context.Context, writer, _ int, event []byte) error {
	_, err := b.stream.Publish(ctx, "ledger.session-"+strconv.Itoa(writer), event)
	return err
}

// Close ends the connection and the server.
func (b *broker) Close() error {
	if b.conn != nil {
		b.conn.Close()
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	return nil
}

// scanned is how many events of a history the consumer is given: they are all
// alike, and it is slow.
const scanned = 200_000

// scanNATS sets a contestant up whose consumer is sent the headers of a history
// in order, and none of its payloads.
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

var errEnough = errors.New("there are enough events")

// fill publishes a part of a history.
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

// consume reads so many events in order, with an ordered consumer that asks for
// thousands at a time.
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
