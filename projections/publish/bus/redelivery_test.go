package bus_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/publish/bus"
)

// put publishes a message for each UUID.
func put(t *testing.T, b *bus.Bus, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := b.Publisher().Publish(topic, message.NewMessage(id, []byte(`{"n": 1}`))); err != nil {
			t.Fatal(err)
		}
	}
}

// A subscription that receives no message from its channel blocks neither the others
// of its group nor other groups.
func TestASubscriberThatDoesNotReceiveBlocksNoOther(t *testing.T) {
	t.Parallel()
	b := busOver(openStore(t))
	subscribe(t, b, "g", "t")
	put(t, b, "t", "0", "1", "2")
	for _, group := range []string{"g", "other"} {
		from, _ := subscribe(t, b, group, "t")
		for _, want := range []string{"0", "1", "2"} {
			m := receive(t, from)
			if m.UUID != want {
				t.Fatalf("%s: got %s, want %s", group, m.UUID, want)
			}
			m.Ack()
		}
	}
}

// A refused message is redelivered at once, and after further refusals with growing
// delays.
func TestARefusedMessageComesAgainAfterGrowingWaits(t *testing.T) {
	t.Parallel()
	b := busOver(openStore(t))
	from, _ := subscribe(t, b, "g", "t")
	put(t, b, "t", "0")
	begun, n := time.Now(), 0
	for ; time.Since(begun) < time.Second; n++ {
		receive(t, from).Nack()
	}
	if n < 2 || n > 100 {
		t.Errorf("a refused message came %d times in a second, want a few", n)
	}
}

// busWith returns a new bus over a store, with other checkpoints and a Redelivery.
func busWith(store *embedded.Store, kept projections.Checkpoints, r bus.Redelivery) *bus.Bus {
	return bus.New(bus.Config{Store: store, Checkpoints: kept, Mint: domain.NewMint(time.Now, rand.Reader), Now: time.Now, Redelivery: r})
}

// deadLetters returns the dead letters of the group g of the topic t.
func deadLetters(t *testing.T, b *bus.Bus) (all []bus.DeadLetterMessage) {
	t.Helper()
	for d, err := range b.DeadLetters(t.Context(), "g", "t") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// wants returns the next message, which must have this UUID.
func wants(t *testing.T, from <-chan *message.Message, id string) *message.Message {
	t.Helper()
	m := receive(t, from)
	if m.UUID != id {
		t.Fatalf("got %s, want %s", m.UUID, id)
	}
	return m
}

// A message becomes a dead letter after the set number of refusals, and the next
// messages are delivered. Release redelivers it, also in another process, and it is
// no dead letter once it is acknowledged.
func TestAMessageThatIsAlwaysRefusedBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	b := busWith(store, store, bus.Redelivery{Refusals: 3})
	put(t, b, "t", "0", "1", "2")
	from, s := subscribe(t, b, "g", "t")
	for range 3 {
		wants(t, from, "0").Nack()
	}
	wants(t, from, "1").Ack()
	got := deadLetters(t, b)
	if len(got) != 1 || got[0].UUID != "0" || got[0].Revision != 1 || got[0].Refusals != 3 || got[0].Reason != "subscribers refused it 3 times" ||
		got[0].Message == nil || string(got[0].Message.Payload) != `{"n": 1}` || got[0].Released || got[0].Time.IsZero() {
		t.Errorf("dead letters = %+v, want message 0, refused 3 times", got)
	}
	if n, err := b.Release(t.Context(), "g", "t", 2); n != 0 || err != nil {
		t.Errorf("Release of no dead letter = %d, %v, want 0", n, err)
	}
	held := wants(t, from, "2")
	if n, err := b.Release(t.Context(), "g", "t", 1); n != 1 || err != nil {
		t.Errorf("Release = %d, %v, want 1", n, err)
	}
	held.Ack()
	for range 3 {
		wants(t, from, "0").Nack()
	}
	put(t, b, "t", "3")
	wants(t, from, "3").Ack()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := deadLetters(t, b); len(got) != 1 || got[0].Released {
		t.Errorf("dead letters = %+v, want message 0, refused again", got)
	}
	if n, err := b.Release(t.Context(), "g", "t"); n != 1 || err != nil {
		t.Errorf("Release of all = %d, %v, want 1", n, err)
	}
	another := busWith(store, store, bus.Redelivery{})
	from, _ = subscribe(t, another, "g", "t")
	wants(t, from, "0").Ack()
	put(t, another, "t", "4")
	wants(t, from, "4").Ack()
	if got := deadLetters(t, another); len(got) != 0 {
		t.Errorf("dead letters = %+v, want none", got)
	}
}

// Release wakes a group that waits for messages in another process.
func TestReleaseReachesAGroupThatWaits(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	b := busWith(store, store, bus.Redelivery{Refusals: 1})
	put(t, b, "t", "0", "1")
	from, _ := subscribe(t, b, "g", "t")
	wants(t, from, "0").Nack()
	wants(t, from, "1").Ack()
	if n, err := busOver(store).Release(t.Context(), "g", "t"); n != 1 || err != nil {
		t.Fatalf("Release = %d, %v, want 1", n, err)
	}
	wants(t, from, "0").Ack()
}

// A message without an answer within AckWait is delivered to another subscription,
// and becomes a dead letter after the set number of such deliveries. The subscription
// that had it first can still acknowledge it.
func TestAnUnansweredMessageGoesToAnotherSubscriber(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	b := busWith(store, store, bus.Redelivery{AckWait: 20 * time.Millisecond, Unanswered: 5})
	put(t, b, "t", "0", "1", "2")
	first, _ := subscribe(t, b, "g", "t")
	slow := wants(t, first, "0")
	second, _ := subscribe(t, b, "g", "t")
	wants(t, second, "0")
	if slow.Context().Err() != nil {
		t.Error("the context of a message ended that can still be acknowledged")
	}
	slow.Ack()
	for range 5 { // deliveries to either subscription
		select {
		case slow = <-first:
		case slow = <-second:
		}
		if slow.UUID != "1" {
			t.Fatalf("got %s, want 1", slow.UUID)
		}
	}
	wants(t, second, "2").Ack()
	if got := deadLetters(t, b); len(got) != 1 || got[0].UUID != "1" || got[0].Unanswered != 5 || !strings.Contains(got[0].Reason, "did not answer within 20ms, 5 times") {
		t.Errorf("dead letters = %+v, want message 1, unanswered 5 times", got)
	}
}

// The unacknowledged message of a closed subscription is delivered to another one at
// once.
func TestAClosedSubscriberGivesItsMessageBack(t *testing.T) {
	t.Parallel()
	b := busOver(openStore(t))
	put(t, b, "t", "0", "1")
	first, closing := subscribe(t, b, "g", "t")
	second, _ := subscribe(t, b, "g", "t")
	var m *message.Message
	var from <-chan *message.Message
	for from == nil {
		select {
		case m = <-first:
			from = second
		case m = <-second:
			m.Nack() // the second subscription refuses it until the first one receives it
		}
	}
	if err := closing.Close(); err != nil {
		t.Fatal(err)
	}
	if m.Context().Err() == nil {
		t.Error("the context of a message outlives its subscription")
	}
	wants(t, from, "0").Ack()
	wants(t, from, "1").Ack()
}

// A message whose record does not decode is a dead letter at once.
func TestADamagedMessageIsADeadLetter(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	b := busOver(store)
	damaged := events.Record{
		ID: domain.NewMint(time.Now, rand.Reader).Event(), Kind: "MessagePublished", Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond),
		Data: []byte(`{"not":"base64"}`), Metadata: []byte(`{"uuid":"u","encoding":"base64"}`),
	}
	if err := store.Append(t.Context(), "topic-t", 0, damaged); err != nil {
		t.Fatal(err)
	}
	put(t, b, "t", "1")
	from, _ := subscribe(t, b, "g", "t")
	wants(t, from, "1").Ack()
	if got := deadLetters(t, b); len(got) != 1 || got[0].Message != nil || got[0].Event != damaged.ID || !strings.Contains(got[0].Reason, "damaged") {
		t.Errorf("dead letters = %+v, want the damaged record", got)
	}
}

// An unsaved is a Checkpoints whose saves fail with errUnsaved.
type unsaved struct{ projections.Checkpoints }

var errUnsaved = errors.New("it is not saved")

func (unsaved) SaveCheckpoint(context.Context, string, []byte) error { return errUnsaved }

// If the offset is not saved after a dead letter was recorded, the next process
// neither delivers the message nor records it again.
func TestADeadLetterIsListedOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	b := busWith(store, unsaved{store}, bus.Redelivery{Refusals: 1})
	put(t, b, "t", "0", "1")
	from, _ := subscribe(t, b, "g", "t")
	wants(t, from, "0").Nack()
	if _, open := <-from; open {
		t.Fatal("the subscription goes on without its offset")
	}
	b = busWith(store, store, bus.Redelivery{Refusals: 1})
	from, _ = subscribe(t, b, "g", "t")
	wants(t, from, "1").Ack()
	if got := deadLetters(t, b); len(got) != 1 {
		t.Errorf("dead letters = %+v, want one", got)
	}
	n := 0
	for _, err := range store.Read(t.Context(), "deadletter-g/t", 0) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("%d records list the dead letter, want 1", n)
	}
}

// A subscriber that changes a message before it refuses it does not change the
// redelivered one.
func TestARefusedMessageComesAsItWasPublished(t *testing.T) {
	t.Parallel()
	b := busOver(openStore(t))
	put(t, b, "t", "0")
	from, _ := subscribe(t, b, "g", "t")
	m := receive(t, from)
	m.Payload[0] = 'X'
	m.Metadata.Set("k", "v")
	m.Nack()
	if m = receive(t, from); string(m.Payload) != `{"n": 1}` || len(m.Metadata) > 0 {
		t.Errorf("got %q with %v, want it as it was published", m.Payload, m.Metadata)
	}
}

// The records of a dead letter stream have the kinds and the JSON that
// docs/formats.md documents, which never change.
func TestRecordsOfDeadLetters(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	b := busWith(store, store, bus.Redelivery{Refusals: 1})
	put(t, b, "t", "u")
	from, _ := subscribe(t, b, "g", "t")
	wants(t, from, "u").Nack()
	put(t, b, "t", "1")
	wants(t, from, "1").Ack()
	if _, err := b.Release(t.Context(), "g", "t"); err != nil {
		t.Fatal(err)
	}
	wants(t, from, "u").Ack()
	put(t, b, "t", "2")
	wants(t, from, "2").Ack()
	var message events.Entry
	for message = range store.Read(t.Context(), "topic-t", 0) {
		break
	}
	want := []string{
		`MessageDeadLettered {"group":"g","topic":"t","revision":1,"event":"` + message.ID.String() + `","uuid":"u","reason":"subscribers refused it 1 times","refusals":1}`,
		`DeadLettersReleased {"revisions":[1]}`,
		`DeadLetterAcknowledged {"revision":1}`,
	}
	var got []string
	for e, err := range store.Read(t.Context(), "deadletter-g/t", 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Kind+" "+string(e.Data))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
