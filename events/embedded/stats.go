package embedded

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// Stats are the statistics of a store since it was opened.
type Stats struct {
	Durability  Durability
	Head        events.Position // of the last record visible to readers
	Durable     events.Position // of the last record known to be on the disk
	Appends     uint64          // successful appends that added records
	Records     uint64          // added by these appends
	Bytes       uint64          // size of these records, encoded, before compression
	Groups      uint64          // commit groups: appends written together
	Waiting     int             // appends waiting for the committer
	QueuedBytes int             // bytes of the appends waiting and in flight
	Network     string          // the network file system of the folder; empty: a local or an unknown one
	Health      Health          // of flushes, compactions and the disk
	Failure     error           // why the store takes no writes; nil: it takes them
	Recent      []CommitStats   // the last groups, at most 512, oldest first
	Syncs       []time.Duration // durations of the last syncs of the log, at most 512, oldest first
}

// CommitStats describe one commit group that was acknowledged.
type CommitStats struct {
	Appends int           // appends that added records
	Records int           // records of these appends
	Bytes   int           // their size, encoded, before compression
	Took    time.Duration // from the write to the acknowledgement; under Sync mostly the sync
}

// Health reports the failures of background work: flushes, compactions, slow writes.
type Health = pebblefiles.Health

// recentSamples is the number of groups and of syncs that Stats lists.
const recentSamples = 512

// storeStats counts commits and syncs since the opening. It is safe for concurrent
// use; mu guards all of it.
type storeStats struct {
	mu struct {
		sync.Mutex
		appends, records, bytes, groups uint64
		commits                         ring[CommitStats]
		syncs                           ring[time.Duration]
	}
}

// record counts a group that was acknowledged.
func (v *storeStats) record(g *commitGroup, took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.groups++
	v.mu.appends += uint64(len(g.added))
	v.mu.records += uint64(g.records)
	v.mu.bytes += uint64(g.bytes)
	v.mu.commits.add(CommitStats{Appends: len(g.added), Records: g.records, Bytes: g.bytes, Took: took})
}

// synced counts a sync of the log that took the given time.
func (v *storeStats) synced(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.syncs.add(took)
}

// Stats returns the statistics since the store was opened. It may be called after
// Close.
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

// A ring keeps the last recentSamples items that were added. The zero ring is empty.
type ring[T any] struct {
	items []T
	next  int // index of the oldest item, once the ring is full
}

// add adds an item. It overwrites the oldest one if the ring is full.
func (r *ring[T]) add(item T) {
	if len(r.items) < recentSamples {
		r.items = append(r.items, item)
		return
	}
	r.items[r.next] = item
	r.next = (r.next + 1) % recentSamples
}

// all returns a copy of the items, oldest first.
func (r *ring[T]) all() []T { return slices.Concat(r.items[r.next:], r.items[:r.next]) }

// A Summary summarizes the Stats of a store from its opening to its closing.
type Summary struct {
	Closed     time.Time     `json:"closed"`
	Durability string        `json:"durability"`
	Appends    uint64        `json:"appends"`
	Records    uint64        `json:"records"`
	Groups     uint64        `json:"groups"`
	Syncs      int           `json:"syncs"`   // syncs in the percentiles: the last ones, at most 512
	Median     time.Duration `json:"median"`  // duration of a sync; all durations are in nanoseconds
	P99        time.Duration `json:"p99"`     // the 99th percentile
	Longest    time.Duration `json:"longest"` // the longest of these syncs

	Health *pebblefiles.Health `json:"health,omitempty"` // nil: no failures, or an older program wrote it
}

// summaryName is the checkpoint that holds the last Summary.
const summaryName = "store/pace"

// Summary summarizes the statistics. at is the time of closing.
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

// LastSummary returns the Summary that Close saved last, and false if there is none. Close
// saves one if records were appended or background work failed.
func (s *Store) LastSummary(ctx context.Context) (p Summary, ok bool, err error) {
	data, err := s.LoadCheckpoint(ctx, summaryName)
	if err != nil || data == nil {
		return Summary{}, false, err
	}
	return p, json.Unmarshal(data, &p) == nil, nil
}

// saveSummary saves a Summary when the store closes. It ignores errors, because
// only people read it.
func (s *Store) saveSummary() {
	if v := s.Stats(); (v.Appends > 0 || !v.Health.Well()) && v.Failure == nil {
		if data, err := json.Marshal(v.Summary(time.Now())); err == nil {
			_ = s.db.Set(layout.CheckpointKey(summaryName), data, pebble.NoSync)
		}
	}
}
