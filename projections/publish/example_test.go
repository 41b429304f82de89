package publish_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// Any watermill Publisher is a target, such as the ones for Kafka, AMQP, SQL and
// HTTP. This one publishes in memory.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "ledger")
	must(err)
	defer os.RemoveAll(dir)
	store, err := embedded.Open(ctx, "store", embedded.Config{FS: vfs.NewMem()})
	must(err)
	defer store.Close()
	now := func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	mint := domain.NewMint(now, strings.NewReader(strings.Repeat("seed", 100)))
	stream := events.SessionStream(mint.Session())
	must(store.Append(ctx, stream, 0,
		events.Record{ID: mint.Event(), Kind: "SessionOpened", Version: 1, Time: now(), Data: []byte(`{"agent":"build"}`)},
		events.Record{ID: mint.Event(), Kind: "CallSettled", Version: 1, Time: now(), Data: []byte(`{"tool":"bash"}`)}))

	bus := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, watermill.NopLogger{})
	defer bus.Close()
	received, err := bus.Subscribe(ctx, "calls.bash")
	must(err)

	topic, err := publish.ParseTopic("calls.{tool}")
	must(err)
	relay := publish.NewRelay(store, store, publish.NewFileLocker(filepath.Join(dir, "claims"), "example"), now)
	must(relay.CatchUp(ctx, publish.Job{Name: "bus", Target: "memory:", Topic: topic, Filter: publish.Filter{Tools: []string{"bash"}}}, bus))

	m := <-received
	m.Ack()
	fmt.Println(m.Metadata.Get(publish.KeyKind), m.Metadata.Get(publish.KeyAgent), m.Metadata.Get(publish.KeyRevision), string(m.Payload))
	c, err := relay.Consumer(ctx, "bus")
	must(err)
	fmt.Println(c.Name, "is at position", c.Position)
	// Output:
	// CallSettled build 2 {"tool":"bash"}
	// bus is at position 2
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
