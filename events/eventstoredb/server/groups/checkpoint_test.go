package groups_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/groups"
)

// A checkpointStore is a CheckpointStore whose unsynced documents a kill removes.
type checkpointStore struct {
	mu     sync.Mutex
	saved  map[string][]byte
	synced map[string][]byte // synced
	saves  int
	fail   []error       // of the next saves
	gate   chan struct{} // if not nil, a sync waits for it
}

func (k *checkpointStore) SaveCheckpoint(_ context.Context, name string, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.saves++
	if len(k.fail) > 0 {
		err := k.fail[0]
		k.fail = k.fail[1:]
		return err
	}
	if k.saved == nil {
		k.saved = map[string][]byte{}
	}
	k.saved[name] = bytes.Clone(data)
	return nil
}

func (k *checkpointStore) LoadCheckpoint(_ context.Context, name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Clone(k.saved[name]), nil
}

func (k *checkpointStore) Sync(context.Context) error {
	k.mu.Lock()
	gate, saved := k.gate, maps.Clone(k.saved)
	k.mu.Unlock()
	if gate != nil {
		<-gate
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.synced = saved
	return nil
}

func (k *checkpointStore) survivors() *checkpointStore {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &checkpointStore{saved: maps.Clone(k.synced), synced: maps.Clone(k.synced)}
}

func (k *checkpointStore) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.saves
}

// An uncertainStore appends, and returns the errors in next for appends that it
// has made.
type uncertainStore struct {
	*eventstest.Slice
	mu   sync.Mutex
	next []error
	gate chan struct{} // if not nil, an append waits for it
}

func (u *uncertainStore) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	if err := u.Slice.Append(ctx, s, after, records...); err != nil {
		return err
	}
	if u.gate != nil {
		<-u.gate
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.next) == 0 {
		return nil
	}
	err := u.next[0]
	u.next = u.next[1:]
	return err
}

var errUncertain = errors.New("the append may have been made")

// After a kill, a group delivers again only entries that were settled after its
// last checkpoint.
func TestKillLosesNothingSettledBeforeTheCheckpoint(t *testing.T) {
	in(t, func(b *fixture) {
		all := groups.QualifiedName{Name: "all"}
		for _, key := range []groups.QualifiedName{key, all} {
			b.create(key, func(d *groups.GroupConfig) { d.Settings.MinCheckpoint = 2 })
		}
		b.write("s-1", "A", 5)
		for _, key := range []groups.QualifiedName{key, all} {
			c := b.join(b.group(key), 10)
			d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3 s-1/4 s-1/5")
			c.Ack(d[0].ID, d[1].ID, d[3].ID) // 3 is open, so that the checkpoint is after 2
		}
		time.Sleep(2 * time.Second)
		before := length(b)
		b.kill()
		for _, key := range []groups.QualifiedName{key, all} {
			if got := b.group(key).Stats().Saved; got == (groups.Cursor{}) {
				b.Errorf("%s is said to have saved nothing", key)
			}
			b.wantDelivered(b.join(b.group(key), 10), "s-1/3 s-1/4 s-1/5")
		}
		if got := length(b); got != before {
			b.Errorf("%d records became %d: how far a group has come is no record", before, got)
		}
	})
}

// A checkpoint is written when MinCheckpoint entries are settled and
// CheckpointAfter has passed.
func TestCheckpointWaitsForMinCheckpointOrItsTime(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 3)
		g := b.create(key, func(d *groups.GroupConfig) { d.Settings.MinCheckpoint = 2 })
		c := b.join(g, 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3")
		c.Ack(d[0].ID)
		saved := func() events.Revision { synctest.Wait(); return g.Stats().Saved.Revision }
		time.Sleep(time.Minute)
		if got := saved(); got != 0 {
			b.Errorf("saved %d, want 0: the group asked for two entries at least", got)
		}
		c.Ack(d[1].ID)
		if got := saved(); got != 2 {
			b.Errorf("saved %d, want 2: it was due", got)
		}
		c.Ack(d[2].ID)
		time.Sleep(time.Minute)
		if got := saved(); got != 2 {
			b.Errorf("saved %d, want 2: one entry is not worth it", got)
		}
		b.restart()
		b.wantDelivered(b.join(b.group(key), 10), "") // closing writes a checkpoint in any case
	})
}

// A group writes at most one checkpoint in minCheckpointInterval.
func TestCheckpointsAreRateLimited(t *testing.T) {
	in(t, func(b *fixture) {
		g := b.create(key, func(d *groups.GroupConfig) { d.Settings.MaxCheckpoint = 1 })
		b.write("s-1", "A", 100)
		c := b.join(g, 1)
		for i := range 100 {
			d, err := c.Next(context.Background())
			if err != nil || d.Revision != events.Revision(i+1) {
				b.Fatalf("Next() = %d, %v, want %d", d.Revision, err, i+1)
			}
			c.Ack(d.ID)
			time.Sleep(10 * time.Millisecond)
		}
		if got := b.checkpoints.count(); got < 8 || got > 11 {
			b.Errorf("%d checkpoints in a second, want about 10", got)
		}
		time.Sleep(time.Hour)
		if got, saved := b.checkpoints.count(), g.Stats().Saved.Revision; got > 12 || saved != 100 {
			b.Errorf("%d checkpoints, the last at %d, want no more while nothing moves, and 100", got, saved)
		}
	})
}

// Entries acknowledged while a checkpoint is being synced count for the next
// checkpoint.
func TestEntriesSettledDuringACheckpointCountForTheNext(t *testing.T) {
	in(t, func(b *fixture) {
		b.checkpoints.gate = make(chan struct{})
		b.write("s-1", "A", 2)
		g := b.create(key, nil)
		c := b.join(g, 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2")
		c.Ack(d[0].ID)
		time.Sleep(2 * time.Second)
		synctest.Wait() // the disk is turning
		c.Ack(d[1].ID)
		close(b.checkpoints.gate)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := g.Stats().Saved.Revision; got != 2 {
			b.Errorf("saved %d, want 2", got)
		}
	})
}

// A new group ignores the checkpoint of a deleted group with the same key.
func TestCheckpointOfADeletedGroupIsIgnored(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 2)
		c := b.join(b.create(key, nil), 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2")
		c.Ack(d[0].ID, d[1].ID)
		if err := b.all.Delete(key); err != nil {
			b.Fatal(err)
		}
		b.wantDelivered(b.join(b.create(key, nil), 10), "s-1/1 s-1/2")
		b.kill()
		b.wantDelivered(b.join(b.group(key), 10), "s-1/1 s-1/2")
	})
}

// A group ignores its checkpoint if the log has lost records.
func TestCheckpointAheadOfTheLogIsIgnored(t *testing.T) {
	for _, key := range []groups.QualifiedName{key, {Name: "all"}} {
		t.Run(key.String(), func(t *testing.T) {
			in(t, func(b *fixture) {
				b.create(key, nil)
				b.write("s-1", "A", 5)
				c := b.join(b.group(key), 10)
				for _, d := range b.wantDelivered(c, "s-1/1 s-1/2 s-1/3 s-1/4 s-1/5") {
					c.Ack(d.ID)
				}
				b.all.Close()
				synced := b.store
				b.store = &uncertainStore{Slice: eventstest.NewSlice()}
				for e, err := range synced.ReadAll(context.Background(), events.Position{}) {
					if err != nil {
						b.Fatal(err)
					}
					if e.Stream == "s-1" && e.Revision > 3 {
						continue
					}
					if err := b.store.Append(context.Background(), e.Stream, e.Revision-1, e.Record); err != nil {
						b.Fatal(err)
					}
				}
				b.open()
				b.wantDelivered(b.join(b.group(key), 10), "s-1/1 s-1/2 s-1/3")
			})
		})
	}
}

// A GroupCheckpointed record of an earlier release sets the progress of a group.
func TestCheckpointRecordIsRead(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 3)
		b.create(key, nil)
		r := events.Record{Kind: "GroupCheckpointed", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte(`{"revision":2}`)}
		r.ID = domain.EventIDFromBytes([16]byte{2})
		if err := b.store.Append(context.Background(), "subscription-s-1::g", 1, r); err != nil {
			b.Fatal(err)
		}
		b.restart()
		b.wantDelivered(b.join(b.group(key), 10), "s-1/3")
	})
}

// A checkpoint that could not be written is written again.
func TestFailedCheckpointIsRetried(t *testing.T) {
	in(t, func(b *fixture) {
		for range 10 {
			b.checkpoints.fail = append(b.checkpoints.fail, errUncertain)
		}
		b.write("s-1", "A", 1)
		g := b.create(key, nil)
		c := b.join(g, 10)
		c.Ack(b.wantDelivered(c, "s-1/1")[0].ID)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := b.checkpoints.count(); got < 3 || got > 5 {
			b.Errorf("%d tries in three seconds, want one a second", got)
		}
		time.Sleep(time.Minute)
		if got := g.Stats(); got.Saved.Revision != 1 || got.Ended != nil {
			b.Errorf("saved %d, ended %v, want 1 and nil", got.Saved.Revision, got.Ended)
		}
		b.checkpoints.fail = []error{events.ErrClosed}
		b.write("s-1", "A", 1)
		c.Ack(b.wantDelivered(c, "s-1/2")[0].ID)
		time.Sleep(5 * time.Second)
		if _, err := c.Next(context.Background()); !errors.Is(err, groups.ErrStopped) || !errors.Is(err, events.ErrClosed) {
			b.Errorf("Next() over a store that is closed = %v, want ErrStopped for ErrClosed", err)
		}
	})
}

// If the store does not know whether it recorded a parked entry, the group
// records it once.
func TestParkedEntryIsRecordedOnce(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 2)
		g := b.create(key, nil)
		c := b.join(g, 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2")
		b.store.next = []error{errUncertain, errUncertain}
		before := length(b)
		c.Nack(groups.Park, "odd", d[0].ID)
		time.Sleep(time.Minute)
		if got := length(b) - before; got != 1 || g.Stats().Parked != 1 {
			b.Errorf("%d records and %d parked, want 1 and 1", got, g.Stats().Parked)
		}
		c.Nack(groups.Park, "odd", d[1].ID)
		time.Sleep(time.Minute)
		if got := length(b) - before; got != 2 || g.Stats().Parked != 2 {
			b.Errorf("%d records and %d parked, want 2 and 2", got, g.Stats().Parked)
		}
	})
}

// If one batch has a parked entry and a checkpoint, and the checkpoint fails,
// the entry is recorded once.
func TestParkedEntryIsRecordedOnceWhereTheCheckpointFails(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 4)
		g := b.create(key, func(d *groups.GroupConfig) { d.Settings.MinCheckpoint = 2 })
		c := b.join(g, 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3 s-1/4")
		before := length(b)
		time.Sleep(time.Minute / 3)
		b.store.gate = make(chan struct{})
		c.Nack(groups.Park, "", d[3].ID)
		synctest.Wait()
		c.Ack(d[0].ID, d[1].ID)
		c.Nack(groups.Park, "", d[2].ID)
		b.checkpoints.fail = []error{errUncertain}
		close(b.store.gate)
		time.Sleep(time.Minute)
		if got := length(b) - before; got != 2 || g.Stats().Parked != 2 || g.Stats().Ended != nil {
			b.Errorf("%d records and %d parked, ended %v, want 2, 2 and nil", got, g.Stats().Parked, g.Stats().Ended)
		}
	})
}

// A checkpoint is written after CheckpointAfter if MinCheckpoint is 0, and at
// once after MaxCheckpoint settled entries.
func TestCheckpointBoundsAreObeyed(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 4)
		none := groups.QualifiedName{Source: "s-1", Name: "none"}
		b.create(none, func(d *groups.GroupConfig) { d.Settings.MinCheckpoint = 0 })
		three := groups.QualifiedName{Source: "s-1", Name: "three"}
		b.create(three, func(d *groups.GroupConfig) { d.Settings.MaxCheckpoint, d.Settings.CheckpointAfter = 3, time.Hour })
		saved := func(key groups.QualifiedName) events.Revision {
			synctest.Wait()
			return b.group(key).Stats().Saved.Revision
		}
		c := b.join(b.group(none), 10)
		c.Ack(b.wantDelivered(c, "s-1/1 s-1/2 s-1/3 s-1/4")[0].ID)
		time.Sleep(2 * time.Second)
		if got := saved(none); got != 1 {
			b.Errorf("saved %d, want 1: the time was up", got)
		}
		c = b.join(b.group(three), 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2 s-1/3 s-1/4")
		c.Ack(d[0].ID)
		synctest.Wait()
		c.Ack(d[1].ID)
		time.Sleep(time.Second)
		if got := saved(three); got != 0 {
			b.Errorf("saved %d, want 0: neither three entries nor the time", got)
		}
		c.Ack(d[2].ID)
		if got := saved(three); got != 3 {
			b.Errorf("saved %d, want 3: three entries", got)
		}
	})
}

// Entries that the filter excludes advance the checkpoint.
func TestFilteredEntriesAdvanceTheCheckpoint(t *testing.T) {
	in(t, func(b *fixture) {
		filtered := groups.QualifiedName{Name: "filtered"}
		b.create(filtered, func(d *groups.GroupConfig) { d.Filter = &groups.Filter{ByKind: true, Prefixes: []string{"B"}} })
		c := b.join(b.group(filtered), 10)
		b.write("s-1", "A", 50)
		b.wantDelivered(c, "")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, want := b.group(filtered).Stats().Saved.Position, events.NewPosition(51, 51); got != want {
			b.Errorf("saved %s, want %s: all was passed over", got, want)
		}
	})
}

// Restart loads a stopped group again, with the settings and the progress that
// the store has. After Close it returns ErrStopped.
func TestRestartLoadsRecordedGroups(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 2)
		g := b.create(key, nil)
		c := b.join(g, 10)
		d := b.wantDelivered(c, "s-1/1 s-1/2")
		c.Ack(d[0].ID)
		r := events.Record{Kind: "GroupUpdated", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte(`{"strategy":"Pinned","buffer":7,"max_checkpoint":1}`)}
		r.ID = domain.EventIDFromBytes([16]byte{2})
		if err := b.store.Append(context.Background(), "subscription-s-1::g", 1, r); err != nil {
			b.Fatal(err)
		}
		c.Nack(groups.Park, "", d[1].ID)
		if _, err := c.Next(context.Background()); !errors.Is(err, groups.ErrStopped) {
			b.Errorf("Next() of a group that another process wrote = %v, want ErrStopped", err)
		}
		if _, err := g.Join(groups.ConsumerConfig{}); !errors.Is(err, groups.ErrStopped) {
			b.Errorf("Join() of a group that stopped = %v, want ErrStopped", err)
		}
		if err := b.all.Restart(context.Background()); err != nil {
			b.Fatal(err)
		}
		if got := b.group(key).Stats(); got.Ended != nil || got.Settings.Buffer != 7 {
			b.Errorf("after a restart: ended %v with %+v, want what is on record", got.Ended, got.Settings)
		}
		b.wantDelivered(b.join(b.group(key), 10), "s-1/2")
		b.all.Close()
		if err := b.all.Restart(context.Background()); !errors.Is(err, groups.ErrStopped) {
			b.Errorf("Restart() after Close = %v, want ErrStopped", err)
		}
	})
}

// Groups without a checkpoint store deliver all entries again after a restart.
func TestCheckpointsAreLostWithoutAStore(t *testing.T) {
	in(t, func(b *fixture) {
		b.write("s-1", "A", 1)
		for range 2 {
			b.all.Close()
			var err error
			if b.all, err = groups.Open(context.Background(), b.store, groups.Config{Follow: b.follow, CompileFilter: matches}); err != nil {
				b.Fatal(err)
			}
			if len(b.all.All()) == 0 {
				b.create(key, nil)
			}
			c := b.join(b.group(key), 10)
			c.Ack(b.wantDelivered(c, "s-1/1")[0].ID)
			if err := b.all.Restart(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.wantDelivered(b.join(b.group(key), 10), "")
		}
	})
}
