package groups_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// A parked entry is not delivered again after a kill.
func TestParkedEntryIsSkippedAfterAKill(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 3)
		c := b.join(b.create(key, nil), 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3")
		c.Nack(groups.Park, "", d[1].ID)
		b.kill()
		b.wantDelivered(b.join(b.group(key), 10), "s-1/1 s-1/3")
	})
}

// Replayed entries come before waiting ones, and are recorded as released when
// they are acknowledged.
func TestReplayedEntriesComeFirstAndAreReleasedWhenAcknowledged(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 4)
		g := b.create(key, nil)
		c := b.join(g, 1)
		for range 2 {
			d, err := c.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			c.Nack(groups.Park, "", d.ID)
		}
		d := b.wantDelivered(c, "s-1/3")
		if err := g.Replay(0); err != nil {
			b.Fatal(err)
		}
		synctest.Wait()
		c.Ack(d[0].ID)
		d = b.wantDelivered(c, "s-1/1")
		c.Ack(d[0].ID)
		d = b.wantDelivered(c, "s-1/2")
		c.Ack(d[0].ID)
		b.wantDelivered(c, "s-1/4")
		if got := g.Stats().Parked; got != 0 {
			b.Errorf("%d parked, want none", got)
		}
	})
}

// A replay of more entries than the buffer holds reads them in parts, in order.
func TestReplayBuffersABoundedNumberOfEntries(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 3*settings.Buffer)
		g := b.create(key, nil)
		c := b.join(g, 1)
		for range 3 * settings.Buffer {
			d, err := c.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			c.Nack(groups.Park, "", d.ID)
		}
		synctest.Wait()
		if err := g.Replay(0); err != nil {
			b.Fatal(err)
		}
		for i := range 3 * settings.Buffer {
			d := b.wantDelivered(c, fmt.Sprintf("s-1/%d", i+1))
			if got := g.Stats(); got.Waiting > settings.Buffer {
				b.Errorf("%d wait, want at most %d", got.Waiting, settings.Buffer)
			}
			c.Ack(d[0].ID)
		}
	})
}

// Next does not return a delivery that timed out before the call.
func TestEntryTakenBackIsNotReturnedByNext(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 3)
		c := b.join(b.create(key, nil), 3)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		c.Ack(eventID(3)) // whose ID the consumer knows from another source
		b.wantDelivered(c, "s-1/1' s-1/2'")
	})
}

func eventID(n byte) (id domain.EventID) {
	id = domain.EventIDFromBytes([16]byte{1, 15: n})
	return id
}

// The entries of a consumer that leaves are delivered to the next consumer in
// their order.
func TestEntriesOfALeavingConsumerKeepTheirOrder(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 9)
		g := b.create(key, nil)
		gone := b.join(g, 8)
		b.delivered(gone)
		stays := b.join(g, 0)
		d := b.wantDelivered(stays, "s-1/9")
		gone.Leave()
		for i := range 8 {
			stays.Ack(d[0].ID)
			d = b.wantDelivered(stays, fmt.Sprintf("s-1/%d", i+1))
		}
		if got := g.Stats(); got.Total != 17 || got.InFlight != 1 || got.Consumers[0].Total != 9 || got.Consumers[0].Capacity != 1 {
			b.Errorf("%+v, want 17 deliveries, 9 of them to the consumer with a capacity of 1", got)
		}
	})
}

// A pinned consumer holds at most as many entries as its capacity.
func TestPinnedConsumerHoldsAtMostItsCapacity(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 4)
		c := b.join(b.create(key, func(d *groups.GroupConfig) { d.Settings.Strategy = groups.Pinned }), 2)
		d := b.wantDelivered(c, "s-1/1 s-1/2")
		c.Ack(d[0].ID, d[1].ID)
		b.wantDelivered(c, "s-1/3 s-1/4")
	})
}

// PinnedByCorrelation delivers entries of many streams with one correlation ID
// to one consumer.
func TestCorrelatedEntriesGoToOneConsumer(t *testing.T) {
	in(t, func(b *fixture) {
		g := b.create(groups.QualifiedName{Name: "pinned"}, func(d *groups.GroupConfig) {
			d.Settings.Strategy, d.Settings.Buffer = groups.PinnedByCorrelation, 200
		})
		consumers := []*groups.Consumer{b.join(g, 100), b.join(g, 100)}
		for i := range 100 {
			r := events.Record{ID: eventID(byte(i + 1)), Kind: "A", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte("{}")}
			r.Metadata = fmt.Appendf(nil, `{"$correlationId":"of-%d"}`, i%10)
			if err := b.store.Append(context.Background(), events.Stream(fmt.Sprint("s-", i)), 0, r); err != nil {
				b.Fatal(err)
			}
		}
		holder := map[string]int{}
		for i, c := range consumers {
			all, _ := b.delivered(c)
			for _, d := range all {
				if was, ok := holder[string(d.Metadata)]; ok && was != i {
					b.Errorf("%s went to both consumers", d.Metadata)
				}
				holder[string(d.Metadata)] = i
			}
		}
		if len(holder) != 10 {
			b.Errorf("%d correlations were delivered, want 10", len(holder))
		}
	})
}

// RoundRobin delivers to the consumers in turn.
func TestRoundRobinTakesTurns(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 4)
		g := b.create(key, nil)
		one, two := b.join(g, 1), b.join(g, 1)
		first, second := b.wantDelivered(one, "s-1/1"), b.wantDelivered(two, "s-1/2")
		two.Ack(second[0].ID)
		one.Ack(first[0].ID)
		_, a := b.delivered(one)
		_, z := b.delivered(two)
		if got := strings.Fields(a + z); len(got) != 2 || a == "" {
			b.Errorf("delivered %q and %q, want one each", a, z)
		}
	})
}
