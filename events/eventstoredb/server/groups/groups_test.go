package groups_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// A fixture is a store with groups, in a synctest bubble.
type fixture struct {
	*testing.T
	store       *uncertainStore
	checkpoints *checkpointStore
	all         *groups.Groups
	dead        []*groups.Groups // of processes that were killed
	next        byte
}

func newFixture(t *testing.T) *fixture {
	b := &fixture{T: t, store: &uncertainStore{Slice: eventstest.NewSlice()}, checkpoints: &checkpointStore{}}
	b.open()
	return b
}

func (b *fixture) open() {
	b.Helper()
	var err error
	b.all, err = groups.Open(context.Background(), b.store, groups.Config{Follow: b.follow, CompileFilter: matches, Checkpoints: b.checkpoints})
	if err != nil {
		b.Fatal(err)
	}
}

// kill loads the groups as another process does after a kill: from the records,
// and from the synced checkpoints.
func (b *fixture) kill() {
	b.Helper()
	synctest.Wait()
	b.dead = append(b.dead, b.all)
	b.checkpoints = b.checkpoints.survivors()
	b.open()
}

// restart closes the groups and loads them again.
func (b *fixture) restart() {
	b.Helper()
	b.all.Close()
	b.open()
}

func (b *fixture) follow(ctx context.Context, source events.Stream, after groups.Cursor) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range b.store.Follow(ctx, after.Position) {
			if err == nil && source != "" && (e.Stream != source || e.Revision <= after.Revision) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func matches(f groups.Filter) (func(events.Header) bool, error) {
	if f.Regex != "" {
		return nil, groups.ErrBadGroup
	}
	return func(h events.Header) bool { return strings.HasPrefix(h.Kind, f.Prefixes[0]) }, nil
}

// write appends records of a kind to a stream.
func (b *fixture) write(stream events.Stream, kind string, n int) {
	b.Helper()
	length := events.Revision(0)
	for e, err := range b.store.Read(context.Background(), stream, 0) {
		if err != nil {
			b.Fatal(err)
		}
		length = e.Revision
	}
	for range n {
		b.next++
		r := events.Record{Kind: kind, Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte("{}")}
		r.ID = domain.EventIDFromBytes([16]byte{1, 15: b.next})
		if err := b.store.Append(context.Background(), stream, length, r); err != nil {
			b.Fatal(err)
		}
		length++
	}
}

var settings = groups.Settings{
	Strategy: groups.RoundRobin, MessageTimeout: 30 * time.Second, MaxRetries: 2, Buffer: 10,
	MinCheckpoint: 1, MaxCheckpoint: 100, CheckpointAfter: 2 * time.Second,
}

var key = groups.QualifiedName{Source: "s-1", Name: "g"}

func (b *fixture) create(key groups.QualifiedName, set func(*groups.GroupConfig)) *groups.Group {
	b.Helper()
	def := groups.GroupConfig{QualifiedName: key, Settings: settings}
	if set != nil {
		set(&def)
	}
	if err := b.all.Create(def); err != nil {
		b.Fatal(err)
	}
	return b.group(key)
}

func (b *fixture) group(key groups.QualifiedName) *groups.Group {
	b.Helper()
	g, err := b.all.Group(key)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

func (b *fixture) join(g *groups.Group, room int) *groups.Consumer {
	b.Helper()
	c, err := g.Join(groups.ConsumerConfig{Capacity: room})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// errIdle ends Next when no delivery is pending.
var errIdle = errors.New("no delivery is pending")

// delivered returns all pending deliveries of a consumer, and a text with their
// streams, revisions and one ' for each retry.
func (b *fixture) delivered(c *groups.Consumer) (all []groups.Delivery, text string) {
	b.Helper()
	synctest.Wait()
	idle, cancel := context.WithCancelCause(context.Background())
	cancel(errIdle)
	for {
		d, err := c.Next(idle)
		if errors.Is(err, errIdle) {
			return all, text
		}
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, d)
		text += fmt.Sprintf("%s/%d", d.Stream, d.Revision)
		text += strings.Repeat("'", d.Retries) + " "
	}
}

func (b *fixture) wantDelivered(c *groups.Consumer, want string) []groups.Delivery {
	b.Helper()
	all, got := b.delivered(c)
	if strings.TrimSpace(got) != want {
		b.Errorf("delivered %q, want %q", strings.TrimSpace(got), want)
	}
	return all
}

func in(t *testing.T, f func(*fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t)
		f(b)
		b.all.Close()
		for _, dead := range b.dead {
			dead.Close()
		}
	})
}

// A consumer holds at most as many unacknowledged entries as its capacity.
func TestConsumerHoldsAtMostItsCapacity(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 5)
		c := b.join(b.create(key, nil), 2)
		first := b.wantDelivered(c, "s-1/1 s-1/2")
		c.Ack(first[1].ID)
		b.wantDelivered(c, "s-1/3")
		c.Ack(first[0].ID, first[0].ID) // of which there is one
		b.wantDelivered(c, "s-1/4")
	})
}

// An entry that is not answered in time is delivered again, and parked after
// MaxRetries redeliveries.
func TestUnansweredEntryIsRetriedThenParked(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 3)
		g := b.create(key, nil)
		c := b.join(g, 2)
		b.wantDelivered(c, "s-1/1 s-1/2")
		time.Sleep(30 * time.Second)
		second := b.wantDelivered(c, "s-1/1' s-1/2'")
		c.Ack(second[1].ID)
		b.wantDelivered(c, "s-1/3")
		time.Sleep(30 * time.Second)
		b.wantDelivered(c, "s-1/1'' s-1/3'")
		time.Sleep(30 * time.Second)
		b.wantDelivered(c, "s-1/3''")
		if got := g.Stats(); got.Parked != 1 || got.InFlight != 1 {
			b.Errorf("%d parked, %d in flight, want 1 and 1", got.Parked, got.InFlight)
		}
	})
}

// Each action of a nack has its documented effect.
func TestNackActionsAreObeyed(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 6)
		g := b.create(key, nil)
		c := b.join(g, 4)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3 s-1/4")
		c.Nack(groups.Retry, "again", d[0].ID, d[1].ID)
		c.Nack(groups.Park, "odd", d[2].ID)
		c.Nack(groups.Skip, "no matter", d[3].ID)
		d = b.wantDelivered(c, "s-1/1' s-1/2' s-1/5 s-1/6")
		c.Ack(d[0].ID, d[1].ID, d[2].ID)
		other := b.join(g, 4)
		c.Nack(groups.Stop, "enough", d[3].ID)
		if _, err := c.Next(context.Background()); !errors.Is(err, groups.ErrStopped) {
			b.Errorf("Next() of a consumer that stopped = %v, want ErrStopped", err)
		}
		b.wantDelivered(other, "s-1/6")
	})
}

// The unacknowledged entries of a consumer that leaves go to other consumers.
func TestEntriesOfALeavingConsumerGoToOthers(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 4)
		g := b.create(key, nil)
		gone := b.join(g, 2)
		b.wantDelivered(gone, "s-1/1 s-1/2")
		stays := b.join(g, 10)
		b.wantDelivered(stays, "s-1/3 s-1/4")
		gone.Leave()
		gone.Leave()
		b.wantDelivered(stays, "s-1/1 s-1/2")
	})
}

// A replayed entry stays recorded as parked until it is acknowledged, also across
// a restart.
func TestReplayDeliversParkedEntriesUntilAcknowledged(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 3)
		g := b.create(key, nil)
		c := b.join(g, 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3")
		c.Nack(groups.Park, "", d[0].ID, d[1].ID, d[2].ID)
		synctest.Wait()
		if err := g.Replay(2); err != nil {
			b.Fatal(err)
		}
		d = b.wantDelivered(c, "s-1/1 s-1/2")
		if err := g.Replay(1); err != nil {
			b.Fatal(err)
		}
		b.wantDelivered(c, "s-1/3")
		c.Ack(d[0].ID)
		b.restart() // in the middle of the replay
		g = b.group(key)
		if got := g.Stats().Parked; got != 2 {
			b.Errorf("%d parked after a restart, want the 2 that were not acknowledged", got)
		}
		c = b.join(g, 10)
		b.wantDelivered(c, "")
		if err := g.Replay(0); err != nil {
			b.Fatal(err)
		}
		d = b.wantDelivered(c, "s-1/2 s-1/3")
		c.Nack(groups.Park, "again", d[0].ID)
		synctest.Wait()
		if got := g.Stats().Parked; got != 1 {
			b.Errorf("%d parked, want the one that was parked again", got)
		}
	})
}

// A group continues at its checkpoint after a restart.
func TestGroupResumesAtItsCheckpoint(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 5)
		c := b.join(b.create(key, nil), 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3 s-1/4 s-1/5")
		c.Ack(d[0].ID, d[1].ID, d[3].ID) // 3 is open, so that the checkpoint is behind 2
		b.restart()
		c = b.join(b.group(key), 10)
		b.wantDelivered(c, "s-1/3 s-1/4 s-1/5")
	})
}

// A group reads at most as many unsettled entries as its buffer holds.
func TestGroupBuffersABoundedNumberOfEntries(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 30)
		g := b.create(key, nil)
		c := b.join(g, 1)
		for i := range 30 {
			d := b.wantDelivered(c, fmt.Sprintf("s-1/%d", i+1))
			if got := g.Stats(); got.Waiting+got.InFlight > settings.Buffer {
				b.Errorf("%d wait and %d are in flight, want at most %d", got.Waiting, got.InFlight, settings.Buffer)
			}
			c.Ack(d[0].ID)
		}
	})
}

// Each strategy delivers entries to the consumers that its doc comment names.
func TestStrategyChoosesTheConsumer(t *testing.T) {
	in(t, func(b *fixture) {
		for i := range 4 {
			b.write(events.Stream(fmt.Sprintf("s-%d", i)), "A", 2)
		}
		of := func(s groups.Strategy) (got []string) {
			g := b.create(groups.QualifiedName{Name: string(s)}, func(d *groups.GroupConfig) { d.Settings.Strategy = s })
			consumers := []*groups.Consumer{b.join(g, 6), b.join(g, 6)}
			for _, c := range consumers {
				_, text := b.delivered(c)
				got = append(got, strings.TrimSpace(text))
			}
			return got
		}
		if got := of(groups.DispatchToSingle); got[0] != "s-0/1 s-0/2 s-1/1 s-1/2 s-2/1 s-2/2" || got[1] != "s-3/1 s-3/2" {
			b.Errorf("%s: %q", groups.DispatchToSingle, got)
		}
		g := b.create(groups.QualifiedName{Name: "turns"}, nil)
		one, two := b.join(g, 6), b.join(g, 6)
		_, first := b.delivered(one)
		_, second := b.delivered(two)
		if n, m := strings.Count(first, " "), strings.Count(second, " "); n+m != 8 || n == 0 || m == 0 {
			b.Errorf("%s: %q and %q, want 8 shared", groups.RoundRobin, first, second)
		}
		pinned := b.create(groups.QualifiedName{Name: "pinned"}, func(d *groups.GroupConfig) { d.Settings.Strategy = groups.Pinned })
		to := map[string]int{}
		for i, c := range []*groups.Consumer{b.join(pinned, 100), b.join(pinned, 100)} {
			all, _ := b.delivered(c)
			c.Ack()
			for _, d := range all {
				to[string(d.Stream)] = i
			}
		}
	})
}

// The entries of a pinned stream go to one consumer while the consumers stay the
// same.
func TestPinnedStreamsStayWithTheirConsumer(t *testing.T) {
	in(t, func(b *fixture) {
		g := b.create(groups.QualifiedName{Name: "pinned"}, func(d *groups.GroupConfig) {
			d.Settings.Strategy, d.Settings.Buffer = groups.Pinned, 200
		})
		consumers := []*groups.Consumer{b.join(g, 100), b.join(g, 100)}
		holder := map[events.Stream]int{}
		for range 2 {
			for i := range 20 {
				b.write(events.Stream(fmt.Sprintf("s-%d", i)), "A", 1)
			}
			for i, c := range consumers {
				all, _ := b.delivered(c)
				for _, d := range all {
					if was, ok := holder[d.Stream]; ok && was != i {
						b.Errorf("%s went to consumer %d and then to %d", d.Stream, was, i)
					}
					holder[d.Stream] = i
				}
			}
		}
		if len(holder) != 20 {
			b.Errorf("%d streams were delivered, want 20", len(holder))
		}
	})
}

// A group of all streams delivers neither entries that its filter excludes nor
// entries of groups' streams.
func TestGroupOfAllSkipsFilteredEntriesAndGroupRecords(t *testing.T) {
	in(t, func(b *fixture) {
		everything := groups.QualifiedName{Name: "all"}
		filtered := groups.QualifiedName{Name: "filtered"}
		b.create(everything, nil)
		g := b.create(filtered, func(d *groups.GroupConfig) { d.Filter = &groups.Filter{ByKind: true, Prefixes: []string{"B"}} })
		b.write("s-1", "A", 2)
		b.write("s-1", "B", 1)
		c := b.join(b.group(everything), 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3")
		c.Ack(d[0].ID, d[1].ID, d[2].ID)
		f := b.join(g, 10)
		f.Ack(b.wantDelivered(f, "s-1/3")[0].ID)
		before := length(b)
		for range 100 {
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if got := length(b); got != before {
			b.Errorf("%d records became %d while nothing was written", before, got)
		}
		b.restart()
		b.wantDelivered(b.join(b.group(filtered), 10), "")
	})
}

func length(b *fixture) (n int) {
	for _, err := range b.store.ReadAll(context.Background(), events.Position{}) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	return n
}

// Creating an existing group returns ErrExists, an update applies at once and
// survives a restart, and a deletion ends the group and its consumers.
func TestGroupsAreCreatedUpdatedAndDeletedOnce(t *testing.T) {
	in(t, func(b *fixture) {
		ctx := context.Background()
		b.write("s-1", "A", 1)
		g := b.create(key, nil)
		if err := b.all.Create(groups.GroupConfig{QualifiedName: key, Settings: settings}); !errors.Is(err, groups.ErrExists) {
			b.Errorf("Create() again = %v, want ErrExists", err)
		}
		one := settings
		one.MaxConsumers = 1
		if err := b.all.Update(key, one); err != nil {
			b.Fatal(err)
		}
		c := b.join(g, 1)
		if _, err := g.Join(groups.ConsumerConfig{}); !errors.Is(err, groups.ErrFull) {
			b.Errorf("Join() of a second = %v, want ErrFull", err)
		}
		b.restart()
		if _, err := c.Next(ctx); !errors.Is(err, groups.ErrStopped) {
			b.Errorf("Next() after Close = %v, want ErrStopped", err)
		}
		g = b.group(key)
		if diff := cmp.Diff(g.Stats().Settings, one); diff != "" {
			b.Errorf("settings after a restart: got − want +\n%s", diff)
		}
		c = b.join(g, 1)
		if err := b.all.Delete(key); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Next(ctx); !errors.Is(err, groups.ErrDeleted) {
			b.Errorf("Next() after Delete = %v, want ErrDeleted", err)
		}
		for name, err := range map[string]error{"Delete": b.all.Delete(key), "Update": b.all.Update(key, settings)} {
			if !errors.Is(err, groups.ErrNotFound) {
				b.Errorf("%s() of none = %v, want ErrNotFound", name, err)
			}
		}
		b.restart()
		b.create(key, nil)
		b.restart()
		b.wantDelivered(b.join(b.group(key), 1), "s-1/1")
	})
}

// Create returns ErrBadGroup for an invalid definition.
func TestInvalidGroupsAreRefused(t *testing.T) {
	in(t, func(b *fixture) {
		for name, spoil := range map[string]func(*groups.GroupConfig){
			"name":       func(d *groups.GroupConfig) { d.Name = "" },
			"colons":     func(d *groups.GroupConfig) { d.Name = "a::b" },
			"a colon":    func(d *groups.GroupConfig) { d.Name = ":b" },
			"source":     func(d *groups.GroupConfig) { d.Source = "subscription-x" },
			"filter":     func(d *groups.GroupConfig) { d.Filter = &groups.Filter{Prefixes: []string{"a"}} },
			"regex":      func(d *groups.GroupConfig) { d.Source, d.Filter = "", &groups.Filter{Regex: "("} },
			"strategy":   func(d *groups.GroupConfig) { d.Settings.Strategy = "" },
			"time":       func(d *groups.GroupConfig) { d.Settings.MessageTimeout = -1 },
			"number":     func(d *groups.GroupConfig) { d.Settings.MaxRetries = -1 },
			"buffer":     func(d *groups.GroupConfig) { d.Settings.Buffer = 0 },
			"checkpoint": func(d *groups.GroupConfig) { d.Settings.MaxCheckpoint = 0 },
		} {
			def := groups.GroupConfig{QualifiedName: key, Settings: settings}
			spoil(&def)
			if err := b.all.Create(def); !errors.Is(err, groups.ErrBadGroup) {
				b.Errorf("%s: Create() = %v, want ErrBadGroup", name, err)
			}
		}
		if got := length(b); got != 0 {
			b.Errorf("%d records of groups that were refused", got)
		}
	})
}

// A group stops when another process appends to its stream.
func TestGroupStopsWhenAnotherProcessWritesItsStream(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 1)
		c := b.join(b.create(key, nil), 1)
		d := b.wantDelivered(c, "s-1/1")
		b.write("subscription-s-1::g", "GroupCheckpointed", 1)
		c.Nack(groups.Park, "", d[0].ID)
		if _, err := c.Next(context.Background()); !errors.Is(err, groups.ErrStopped) || !errors.Is(err, events.ErrConflict) {
			b.Errorf("Next() = %v, want ErrStopped for a conflict", err)
		}
	})
}

// FuzzOpen checks that Open returns groups or an error, and does not panic, for
// any record in a group's stream.
func FuzzOpen(f *testing.F) {
	f.Add("GroupCreated", []byte(`{"name":"g","settings":{"strategy":"Pinned","buffer":1,"max_checkpoint":1}}`))
	f.Add("EntryParked", []byte(`{"stream":"s-1","revision":1}`))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		store := eventstest.NewSlice()
		r := events.Record{Kind: kind, Version: 1, Time: time.Unix(0, 0).UTC(), Data: data}
		r.ID = domain.EventIDFromBytes([16]byte{1})
		if store.Append(t.Context(), "subscription-s-1::g", 0, r) != nil {
			return
		}
		all, err := groups.Open(t.Context(), store, groups.Config{CompileFilter: matches})
		if err != nil {
			if !errors.Is(err, events.ErrDamaged) && !errors.Is(err, groups.ErrBadGroup) {
				t.Errorf("Open() = %v, want ErrDamaged", err)
			}
			return
		}
		all.Close()
	})
}
