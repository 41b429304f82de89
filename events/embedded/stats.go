package embedded

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// Stats are how a store has fared since it was opened.
type Stats struct {
	Durability Durability
	Head       events.Position // of the last record that readers see
	Durable    events.Position // of the last record known to be on the disk
	Appends    uint64          // that added records
	Records    uint64          // that they added
	Bytes      uint64          // of these records as they are kept, before compression
	Groups     uint64          // of appends that shared a write
	Waiting    int             // appends that wait for the committer
	QueuedBytes       int             // bytes of the appends that wait and that are in flight
	Network    string          // the network file system that the store is on; empty: none, or not known
	Health     Health          // of flushes, compactions and the disk
	Failure    error           // why the store stopped; nil: it did not
	Recent     []CommitStats   // the last groups, at most 512, the oldest first
	Syncs      []time.Duration // how long the last syncs took, at most 512, the oldest first
}

// A CommitStats is a group of appends that shared a write.
type CommitStats struct {
	Appends int
	Records int
	Bytes   int
	Took    time.Duration // from the write to the answer; under Sync most of it is the sync
}

// Health is what a database met in the background.
type Health = pebblefiles.Health

// recentSamples is how many groups and syncs are remembered.
const recentSamples = 512

// storeStats is what is counted.
type storeStats struct {
	mu struct {
		sync.Mutex
		appends, records, bytes, groups uint64
		commits                         ring[CommitStats]
		syncs                           ring[time.Duration]
	}
}

// record counts a group.
func (v *storeStats) record(g *commitGroup, took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.groups++
	v.mu.appends += uint64(len(g.added))
	v.mu.records += uint64(g.records)
	v.mu.bytes += uint64(g.bytes)
	v.mu.commits.add(CommitStats{Appends: len(g.added), Records: g.records, Bytes: g.bytes, Took: took})
}

// synced counts a sync.
func (v *storeStats) synced(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.syncs.add(took)
}

// Stats returns how the store has fared since it was opened. It may be called
// after Close.
func (s *Store) Stats() Stats {
	out := Stats{Durability: s.durability, Head: s.Head(), Durable: s.Durable(), Network: s.network, Health: s.health.Health(), Failure: s.failure()}
	out.Waiting, out.QueuedBytes = s.queue.size()
	v := &s.storeStats.mu
	v.Lock()
	defer v.Unlock()
	out.Appends, out.Records, out.Bytes, out.Groups = v.appends, v.records, v.bytes, v.groups
	out.Recent, out.Syncs = v.commits.all(), v.syncs.all()
	return out
}

// A ring holds the last things that were added to it.
type ring[T any] struct {
	items []T
	next  int // where the next one goes, when it is full
}

func (r *ring[T]) add(item T) {
	if len(r.items) < recentSamples {
		r.items = append(r.items, item)
		return
	}
	r.items[r.next] = item
	r.next = (r.next + 1) % recentSamples
}

// all returns a copy, the oldest first.
func (r *ring[T]) all() []T { return slices.Concat(r.items[r.next:], r.items[:r.next]) }

// A Pace sums up the Stats of a store from its opening to its closing.
type Summary struct {
	Closed     time.Time     `json:"closed"`
	Durability string        `json:"durability"`
	Appends    uint64        `json:"appends"`
	Records    uint64        `json:"records"`
	Groups     uint64        `json:"groups"`
	Syncs      int           `json:"syncs"`   // of which the durations are: the last, at most 512
	Median     time.Duration `json:"median"`  // in nanoseconds, as are the others
	P99        time.Duration `json:"p99"`     // the 99th percentile
	Longest    time.Duration `json:"longest"` // of these

	Health *pebblefiles.Health `json:"health,omitempty"` // nil: all was well, or a program before this was written
}

// summaryName is the checkpoint that keeps the last Pace.
const summaryName = "store/pace"

// Pace sums up what was noted until now, as of a moment.
func (v Stats) Summary(at time.Time) Summary {
	p := Summary{
		Closed: at.UTC(), Durability: v.Durability.String(),
		Appends: v.Appends, Records: v.Records, Groups: v.Groups, Syncs: len(v.Syncs),
	}
	if !v.Health.Well() {
		p.Health = &v.Health
	}
	if sorted := slices.Sorted(slices.Values(v.Syncs)); len(sorted) > 0 {
		p.Median, p.P99, p.Longest = sorted[len(sorted)/2], sorted[len(sorted)*99/100], sorted[len(sorted)-1]
	}
	return p
}

// LastSummary returns the Pace of the last time that the store was open, appended
// to and closed in order, and false if there was none.
func (s *Store) LastSummary(ctx context.Context) (p Summary, ok bool, err error) {
	data, err := s.LoadCheckpoint(ctx, summaryName)
	if err != nil || data == nil {
		return Summary{}, false, err
	}
	return p, json.Unmarshal(data, &p) == nil, nil
}

// saveSummary leaves a Pace for whoever opens the store next. It is of use to a
// person alone, so that nothing depends on its being kept.
func (s *Store) saveSummary() {
	if v := s.Stats(); (v.Appends > 0 || !v.Health.Well()) && v.Failure == nil {
		if data, err := json.Marshal(v.Summary(time.Now())); err == nil {
			_ = s.db.Set(checkpointKey(summaryName), data, pebble.NoSync)
		}
	}
}
