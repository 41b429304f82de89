package bus_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish/bus"
)

// openStore returns an empty store in memory, which the end of the test closes.
func openStore(t *testing.T) *embedded.Store {
	t.Helper()
	store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// busOver returns a new bus over a store. Two buses over one store stand for two
// processes.
func busOver(store *embedded.Store) *bus.Bus {
	return bus.New(bus.Config{Store: store, Checkpoints: store, Mint: domain.NewMint(time.Now, rand.Reader), Now: time.Now})
}

// ends returns a constructor of a publisher and a subscriber of a bus, for
// watermill's suite.
func ends(b *bus.Bus) tests.ConsumerGroupPubSubConstructor {
	return func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		s, err := b.Subscriber(group)
		if err != nil {
			t.Fatal(err)
		}
		return b.Publisher(), s
	}
}

// TestWatermillsSuite runs the suite that watermill provides for every Pub/Sub: with
// its small numbers of messages, or with the large ones if the environment sets
// LEDGER_TEST_LONG.
func TestWatermillsSuite(t *testing.T) {
	features := tests.Features{ConsumerGroups: true, GuaranteedOrder: true, Persistent: true, ForceShort: os.Getenv("LEDGER_TEST_LONG") == ""}
	store := openStore(t)
	b := busWith(store, store, bus.Redelivery{MaxBackoff: 5 * time.Millisecond}) // the suite refuses a message 300 times
	one := func(t *testing.T) (message.Publisher, message.Subscriber) { return ends(b)(t, "one") }
	tests.TestPubSub(t, features, one, ends(b))
	t.Run("TestNewSubscriberReceivesOldMessages of another group", func(t *testing.T) {
		features := features
		features.NewSubscriberReceivesOldMessages = true
		each := func(t *testing.T) (message.Publisher, message.Subscriber) { return ends(b)(t, watermill.NewUUID()) }
		tests.TestNewSubscriberReceivesOldMessages(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, each)
	})
}

// receive returns the next message of a channel, which it does not acknowledge.
func receive(t *testing.T, from <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-from:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return m
	case <-time.After(30 * time.Second):
		t.Fatal("no message comes")
	}
	return nil
}

// subscribe returns a new subscription of a group to a topic, and its Subscriber.
func subscribe(t *testing.T, b *bus.Bus, group, topic string) (<-chan *message.Message, *bus.Subscriber) {
	t.Helper()
	s, err := b.Subscriber(group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	out, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return out, s
}

// A message arrives with its UUID, payload and metadata, also if the payload is not
// JSON or not UTF-8.
func TestAMessageComesAsItWasPublished(t *testing.T) {
	t.Parallel()
	b := busOver(openStore(t))
	payloads := []string{`{"a": 1}`, "", "\x00\xff", `"text"`, "null", " 1\n", "\"\xff\""}
	var sent []*message.Message
	for i, p := range payloads {
		m := message.NewMessage(fmt.Sprint("uuid ", i), []byte(p))
		m.Metadata.Set("a <key>", "é\n"+p[:min(len(p), 0)])
		sent = append(sent, m)
	}
	p := b.Publisher()
	if err := p.Publish("a topic-ä", sent...); err != nil {
		t.Fatal(err)
	}
	from, _ := subscribe(t, b, "g", "a topic-ä")
	for _, want := range sent {
		got := receive(t, from)
		if diff := cmp.Diff(map[string]string(want.Metadata), map[string]string(got.Metadata)); diff != "" || got.UUID != want.UUID || string(got.Payload) != string(want.Payload) {
			t.Errorf("got %s %q, want %s %q; metadata %s", got.UUID, got.Payload, want.UUID, want.Payload, diff)
		}
		got.Ack()
	}
}

// In another process, a group continues with the first message that was not
// acknowledged.
func TestAGroupGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	first := busOver(store)
	for n := range 3 {
		if err := first.Publisher().Publish("t", message.NewMessage(fmt.Sprint(n), nil)); err != nil {
			t.Fatal(err)
		}
	}
	from, s := subscribe(t, first, "g", "t")
	receive(t, from).Ack()
	if m := receive(t, from); m.UUID != "1" { // received and not acknowledged
		t.Fatalf("got %s, want 1", m.UUID)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	second := busOver(store)
	if err := second.Publisher().Publish("t", message.NewMessage("3", nil)); err != nil {
		t.Fatal(err)
	}
	from, _ = subscribe(t, second, "g", "t")
	for _, want := range []string{"1", "2", "3"} {
		m := receive(t, from)
		if m.UUID != want {
			t.Errorf("got %s, want %s", m.UUID, want)
		}
		m.Ack()
	}
}

// A late store calls publish right after each read of topic t that found no message.
// Its Follow fails at the end of the log, where a subscriber would wait for ever for
// a message that it has missed.
type late struct {
	*embedded.Store
	publish func()
}

func (l late) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		found := false
		for e, err := range l.Store.Read(ctx, s, after) {
			if found = true; !yield(e, err) {
				return
			}
		}
		if !found && s == "topic-t" {
			l.publish()
		}
	}
}

// Follow fails after the last record, because the test has published the message by
// then.
func (l late) Follow(ctx context.Context, after events.Position, f ...events.Following) iter.Seq2[events.Entry, error] {
	if after.Compare(l.Head()) < 0 {
		return l.Store.Follow(ctx, after, f...)
	}
	return func(yield func(events.Entry, error) bool) {
		yield(events.Entry{}, errors.New("the message is behind the position to wait at"))
	}
}

// A message that is published between the last read of a subscriber and its wait is
// delivered.
func TestAMessagePublishedBetweenReadAndWaitComes(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	publisher := busOver(store).Publisher()
	published := false
	b := bus.New(bus.Config{
		Store: late{store, func() {
			if !published {
				published = true
				if err := publisher.Publish("t", message.NewMessage("1", nil)); err != nil {
					t.Error(err)
				}
			}
		}},
		Checkpoints: store, Mint: domain.NewMint(time.Now, rand.Reader), Now: time.Now,
	})
	from, _ := subscribe(t, b, "g", "t")
	receive(t, from).Ack()
}

// A subscriber receives no messages of topics whose names begin with the name of its
// topic.
func TestATopicHasItsOwnMessages(t *testing.T) {
	t.Parallel()
	b := busOver(openStore(t))
	from, _ := subscribe(t, b, "g", "a")
	for _, topic := range []string{"ab", "a-b", "a"} {
		if err := b.Publisher().Publish(topic, message.NewMessage(topic, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if m := receive(t, from); m.UUID != "a" {
		t.Errorf("got the message of %s, want that of a", m.UUID)
	}
}

// Invalid topics, groups and messages, and calls after Close, return their sentinel
// errors.
func TestInvalidNamesAndMessagesAreRefused(t *testing.T) {
	t.Parallel()
	b := busOver(openStore(t))
	p := b.Publisher()
	bad := message.NewMessage("u", nil)
	bad.Metadata.Set("k", "\xff")
	for name, c := range map[string]struct{ got, want error }{
		"no topic":       {p.Publish("", message.NewMessage("u", nil)), bus.ErrBadTopic},
		"control":        {p.Publish("a\x00", message.NewMessage("u", nil)), bus.ErrBadTopic},
		"long":           {p.Publish(strings.Repeat("a", 501), message.NewMessage("u", nil)), bus.ErrBadTopic},
		"metadata":       {p.Publish("a", bad), bus.ErrBadMessage},
		"UUID":           {p.Publish("a", message.NewMessage("\xff", nil)), bus.ErrBadMessage},
		"all or nothing": {p.Publish("a", message.NewMessage("u", nil), bad), bus.ErrBadMessage},
		"group":          {second(b.Subscriber("")), bus.ErrBadGroup},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish("a", message.NewMessage("u", nil)); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Publish = %v, want ErrClosed", err)
	}
	s, err := b.Subscriber("g")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context(), "a"); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Subscribe = %v, want ErrClosed", err)
	}
}

// second returns the second of two values, an error.
func second[T any](_ T, err error) error { return err }

// An error of the store closes the channel of a subscription and reaches
// Config.Failed.
func TestTheErrorThatEndsASubscriptionIsReported(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	told := make(chan error, 1)
	b := bus.New(bus.Config{
		Store: store, Checkpoints: store, Mint: domain.NewMint(time.Now, rand.Reader), Now: time.Now,
		Failed: func(_, _ string, err error) { told <- err },
	})
	s, err := b.Subscriber("g")
	if err != nil {
		t.Fatal(err)
	}
	from, err := s.Subscribe(context.Background(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-from; open {
		t.Error("a message came")
	}
	if err := <-told; !errors.Is(err, events.ErrClosed) {
		t.Errorf("told %v, want ErrClosed", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
