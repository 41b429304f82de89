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

// The bounds of an idIndex. With 32 bits for each ID and 8 probes, a full filter
// has about 22 % of its bits set, and reports about 6 absent IDs in a million as
// possibly present.
const (
	// blockIDs is the number of event IDs of one Bloom filter.
	blockIDs = 1024
	// filterBits is the number of bits of one Bloom filter: 32 for each ID.
	filterBits = 1 << 15
	// probes is the number of bits that each ID sets.
	probes = 8
	// indexBytes is the capacity of a server's index: IDs of about 16 million
	// events.
	indexBytes = 64 << 20
	// streamCost is the estimated number of bytes of a stream in the index, in
	// addition to its name and IDs.
	streamCost = 512
)

// An idIndex finds event IDs in streams, so that an append without an exact
// revision can recognise a repeat however old it is. It is safe for concurrent
// use. It is a cache: the first use of a stream reads the headers of all its
// entries, and each further use reads only the headers of new entries. When the
// index has more than capacity bytes, it evicts the least recently used
// streams.
//
// A stream's IDs are in blocks of blockIDs IDs. A full block is a Bloom filter
// with 4 bytes for each ID; only the last, incomplete block holds the IDs
// themselves. If a filter reports that an ID is absent, that is certain. If it
// reports that an ID is possibly present, find reads the headers of the block
// from the store, so find never returns a wrong result.
type idIndex struct {
	seed     maphash.Seed
	capacity int // bytes
	mu       struct {
		sync.Mutex
		// byStream holds the element of each cached stream in used. The values
		// are *streamIDs.
		byStream map[events.Stream]*list.Element
		// used has the streams in order of use, the most recently used first.
		used list.List
		// bytes is the sum of streamIDs.cost over the cached streams.
		bytes int
	}
}

// newIDIndex returns an empty index with a capacity in bytes.
func newIDIndex(capacity int) *idIndex {
	x := &idIndex{seed: maphash.MakeSeed(), capacity: capacity}
	x.mu.byStream = map[events.Stream]*list.Element{}
	return x
}

// streamIDs holds the event IDs of one stream up to a length: full blocks as
// Bloom filters, and the IDs after them in a slice. The caller that holds the
// lock, between acquire and release, owns all fields but cost.
type streamIDs struct {
	index  *idIndex
	stream events.Stream
	// lock is a mutex with a context: it holds a value while a caller has
	// acquired the IDs.
	lock chan struct{}
	// length and end identify the last entry whose ID is held: the length of the
	// stream up to it, and its position. update reads on from there.
	length events.Revision
	end    events.Position
	blocks []idBlock
	// tail has the IDs after the blocks, fewer than blockIDs between calls of
	// update.
	tail []domain.EventID
	// start is the position of the entry before the first ID of tail. find scans
	// after it.
	start events.Position
	// cost is the number of bytes that the index counts for this stream. index.mu
	// guards it.
	cost int
}

// An idBlock is a Bloom filter of blockIDs consecutive event IDs of a stream.
type idBlock struct {
	bits *[filterBits / 64]uint64
	// start is the position of the entry before the first ID of the block.
	start events.Position
}

// acquire returns the IDs of a stream and locks them until the caller calls
// release. While another caller holds the lock, acquire waits; if ctx ends
// first, it returns the cause of ctx.
//
// The lock only prevents conflicts between the callers. Appends are correct
// without it, because the store rejects an append after a length that another
// append has changed. Two callers can therefore hold different streamIDs of one
// stream: if the index evicts the stream between their calls, the second caller
// gets a new streamIDs.
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

// release updates the size of the stream in the index and unlocks the IDs for the
// next caller.
func (s *streamIDs) release() {
	s.index.count(s)
	<-s.lock
}

// count updates the size of a stream, and evicts the least recently used streams
// while the index is over its capacity. It never evicts s itself, so one stream
// may exceed the capacity. It does not change the index if s was evicted earlier.
func (x *idIndex) count(s *streamIDs) {
	cost := streamCost + len(s.stream) + len(s.blocks)*filterBits/8 + cap(s.tail)*len([16]byte{})
	x.mu.Lock()
	defer x.mu.Unlock()
	element, ok := x.mu.byStream[s.stream]
	if !ok || element.Value.(*streamIDs) != s { // s was evicted
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

// update reads the headers of the entries that were appended since the last
// update, and reports whether there were any. After an error the entries read so
// far are kept. The caller holds the lock of s.
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

// seal turns the full tail into a block and empties the tail.
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

// bits yields the filter bits that an ID sets, by double hashing: the low half of
// a 64-bit hash is the start, and the high half, made odd, is the step. The hash
// depends on a random seed, so that callers cannot choose IDs with the same bits.
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

// mayHave reports whether a block may contain an ID. False is certain; true can
// be a false positive of the Bloom filter.
func (s *streamIDs) mayHave(b idBlock, id domain.EventID) bool {
	for bit := range s.index.bits(id) {
		if b.bits[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// find returns the headers of the stream's entries that have the IDs of the
// records, by ID. If several entries have one ID, it returns the first. It
// reads from the store only the blocks whose filter matches an ID, and the tail
// if the tail has an ID. For new IDs it usually reads no block. The caller
// holds the lock of s and has called update.
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
