package server

import (
	"container/list"
	"context"
	"hash/maphash"
	"iter"
	"strings"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The bounds of an idIndex.
const (
	blockIDs   = 1024    // event IDs of one Bloom filter
	filterBits = 1 << 15 // bits of one Bloom filter: 32 for each ID
	probes     = 8       // bits that each ID sets
	indexBytes = 64 << 20
	streamCost = 512 // estimated bytes of a stream in the index, in addition to its name and IDs
)

// An idIndex finds event IDs in streams. It is a cache: on first use it reads
// the headers of a stream, before each use it reads the new ones, and it evicts
// the least recently used streams when it has more than capacity bytes. It is
// safe for concurrent use.
type idIndex struct {
	seed     maphash.Seed
	capacity int // bytes
	mu       struct {
		sync.Mutex
		byStream map[events.Stream]*list.Element // values are *streamIDs
		used     list.List                       // most recently used first
		bytes    int
	}
}

// newIDIndex returns an empty index of a capacity in bytes.
func newIDIndex(capacity int) *idIndex {
	x := &idIndex{seed: maphash.MakeSeed(), capacity: capacity}
	x.mu.byStream = map[events.Stream]*list.Element{}
	return x
}

// streamIDs holds the event IDs of one stream up to a length: full blocks as
// Bloom filters, and the IDs after them in a slice. Its holder, between acquire
// and release, may use all fields but cost.
type streamIDs struct {
	index  *idIndex
	stream events.Stream
	lock   chan struct{} // has a value while the IDs are acquired
	length events.Revision
	end    events.Position // of the entry at length
	blocks []idBlock
	tail   []domain.EventID // the IDs after the blocks, at most blockIDs
	start  events.Position  // of the entry before the first ID of tail
	cost   int              // bytes that the index counts for this stream; guarded by index.mu
}

// An idBlock is a Bloom filter of blockIDs consecutive event IDs of a stream.
type idBlock struct {
	bits  *[filterBits / 64]uint64
	start events.Position // of the entry before the first ID
}

// acquire returns the IDs of a stream and locks them until the caller calls
// release. It waits for other callers until ctx ends, and then returns the
// cause. The lock avoids conflicts and is not needed for correctness: the store
// resolves concurrent appends, for example of two callers between whom the
// stream was evicted.
func (x *idIndex) acquire(ctx context.Context, stream events.Stream) (*streamIDs, error) {
	x.mu.Lock()
	element, ok := x.mu.byStream[stream]
	if !ok {
		name := events.Stream(strings.Clone(string(stream)))
		s := &streamIDs{index: x, stream: name, lock: make(chan struct{}, 1), cost: streamCost + len(name)}
		element = x.mu.used.PushFront(s)
		x.mu.byStream[name] = element
		x.mu.bytes += s.cost // also for a caller whose context ends before it acquires
	}
	x.mu.used.MoveToFront(element)
	s := element.Value.(*streamIDs)
	x.mu.Unlock()
	select {
	case s.lock <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// release unlocks the IDs for the next caller.
func (s *streamIDs) release() {
	s.index.count(s)
	<-s.lock
}

// count updates the size of a stream, and evicts other streams while the index
// is over its capacity.
func (x *idIndex) count(s *streamIDs) {
	cost := streamCost + len(s.stream) + len(s.blocks)*filterBits/8 + cap(s.tail)*len([16]byte{})
	x.mu.Lock()
	defer x.mu.Unlock()
	element, ok := x.mu.byStream[s.stream]
	if !ok || element.Value.(*streamIDs) != s { // it was evicted
		return
	}
	x.mu.bytes += cost - s.cost
	s.cost = cost
	for last := x.mu.used.Back(); x.mu.bytes > x.capacity && last != nil && last != element; last = x.mu.used.Back() {
		evicted := last.Value.(*streamIDs)
		x.mu.used.Remove(last)
		delete(x.mu.byStream, evicted.stream)
		x.mu.bytes -= evicted.cost
	}
}

// update reads the headers of entries that were appended since the last update.
// It reports whether there were any.
func (s *streamIDs) update(ctx context.Context, store events.Store) (grown bool, err error) {
	for h, err := range events.Headers(ctx, store, events.Query{Stream: s.stream, After: s.end}) {
		if err != nil {
			return grown, err
		}
		s.length, s.end, grown = h.Revision, h.Position, true
		if s.tail = append(s.tail, h.ID); len(s.tail) == blockIDs {
			s.seal()
		}
	}
	return grown, nil
}

// seal turns the tail into a block.
func (s *streamIDs) seal() {
	b := idBlock{bits: new([filterBits / 64]uint64), start: s.start}
	for _, id := range s.tail {
		for bit := range s.index.bits(id) {
			b.bits[bit/64] |= 1 << (bit % 64)
		}
	}
	s.blocks = append(s.blocks, b)
	s.tail, s.start = s.tail[:0], s.end
}

// bits yields the filter bits that an ID sets. They depend on a random seed, so
// that callers cannot choose IDs with the same bits.
func (x *idIndex) bits(id domain.EventID) iter.Seq[uint64] {
	b := id.Bytes()
	h := maphash.Bytes(x.seed, b[:])
	step := h>>32 | 1
	return func(yield func(uint64) bool) {
		for i := range uint64(probes) {
			if !yield((h + i*step) % filterBits) {
				return
			}
		}
	}
}

// mayHave reports whether a block may contain an ID. It may be wrong if it
// returns true.
func (s *streamIDs) mayHave(b idBlock, id domain.EventID) bool {
	for bit := range s.index.bits(id) {
		if b.bits[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// find returns the headers of the records whose IDs are in the stream: for each
// ID the first, if there are several. It reads the store only where a Bloom
// filter matches.
func (s *streamIDs) find(ctx context.Context, store events.Store, records []events.Record) (map[domain.EventID]events.Header, error) {
	wanted := make(map[domain.EventID]bool, len(records))
	for _, r := range records {
		wanted[r.ID] = true
	}
	found := map[domain.EventID]events.Header{}
	read := func(after events.Position) error {
		n := 0
		for h, err := range events.Headers(ctx, store, events.Query{Stream: s.stream, After: after}) {
			if err != nil {
				return err
			}
			if wanted[h.ID] {
				found[h.ID] = h
				delete(wanted, h.ID)
			}
			if n++; n == blockIDs || len(wanted) == 0 {
				break
			}
		}
		return nil
	}
	for _, b := range s.blocks {
		for id := range wanted {
			if !s.mayHave(b, id) {
				continue
			}
			if err := read(b.start); err != nil {
				return nil, err
			}
			break
		}
	}
	for _, id := range s.tail {
		if wanted[id] {
			return found, read(s.start)
		}
	}
	return found, nil
}
